"""`headrace validate` and `headrace schema`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from scaler.config.controller import KIND as CONTROLLER
from scaler.config.controller import Controller, load_controller
from scaler.config.documents import SCENARIO
from scaler.config.faults import ConfigError, one_line
from scaler.config.json_schema import fleet_json_schema, json_schema_of
from scaler.config.loader import load_fleets
from scaler.config.schema import RolloutFleet
from scaler.config.yaml_text import read_bytes, read_documents

if TYPE_CHECKING:
    from scaler.simulate.loading import ScenarioFile


def validate_file(path: Path) -> int:
    """Print one line a fleet or controller, or one line a fault on stderr. Returns 0, or 2 where there is a fault."""
    try:
        lines = _summaries(path)
    except ConfigError as error:
        for fault in error.faults:
            typer.echo(str(fault), err=True)
        return 2
    for line in lines:
        typer.echo(one_line(line))
    return 0


def _summaries(path: Path) -> list[str]:
    """Of what the file holds, by the kinds that its documents name."""
    values = [document.value for document in read_documents(read_bytes(path), path)]
    if any(isinstance(value, dict) and value.get("kind") == CONTROLLER for value in values):
        return [controller_summary(load_controller(path))]
    if any(isinstance(value, dict) and value.get("kind") == SCENARIO for value in values):
        from scaler.simulate.loading import parse_scenario  # a fleet's check does not wait for the simulator

        return [scenario_summary(parse_scenario(read_bytes(path), path))]
    return [summary(fleet) for fleet in load_fleets(path)]


def controller_summary(controller: Controller) -> str:
    """A controller's settings in one line."""
    spec = controller.spec
    where = ", ".join(spec.namespaces) or "all namespaces"
    aws = "no AWS" if spec.aws is None else f"AWS in {spec.aws.region}"
    told = {
        "a queue": spec.notices.queue is not None,
        "nodes": spec.notices.nodes,
        "instance status": spec.notices.instance_status and spec.aws is not None,
    }
    sources = ", ".join(name for name, on in told.items() if on) or "nowhere"
    return (
        f"ok: controller {controller.metadata.name}: fleets in {where}, {aws}, notices from {sources}, "
        f"lease {spec.election.namespace}/{spec.election.name}, listens on {spec.listen}"
    )


def scenario_summary(scenario: "ScenarioFile") -> str:
    """A scenario in one line."""
    spec = scenario.spec
    return (
        f"ok: scenario {scenario.name}: runs of {spec.hours:g} h, {spec.balance_replicas:.1f} replicas in balance of "
        f"{spec.guard_rails.floor} to {spec.guard_rails.ceiling}, units of {spec.mean_tokens:,.0f} tokens, "
        f"trainer {spec.trainer.usd_per_h:.2f} USD/h"
    )


def summary(fleet: RolloutFleet) -> str:
    """A fleet in one line, for a person to see that the file says what was meant."""
    spec = fleet.spec
    pools = sum(len(stage.pools) for stage in spec.stages)
    sizes = ", ".join(
        f"{stage.name} {stage.guard_rails.floor} to {stage.guard_rails.ceiling} replicas by {stage.policy.type}"
        for stage in spec.stages
    )
    state = "paused" if spec.paused else "dry run: changes nothing" if spec.dry_run else "acts"
    return (
        f"ok: fleet {fleet.metadata.name}: {_count(len(spec.stages), 'stage')}, {_count(pools, 'pool')}, {sizes}, "
        f"at most {spec.spend_cap_usd_per_h:.2f} USD/h, {state}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_schema() -> int:
    """Print the JSON Schema of a fleet's YAML. Returns 0."""
    typer.echo(schema_text(), nl=False)
    return 0


def print_definition() -> int:
    """Print the CustomResourceDefinition of a fleet. Returns 0."""
    from scaler.config.crd import definition_text

    typer.echo(definition_text(), nl=False)
    return 0


def print_controller_schema() -> int:
    """Print the JSON Schema of the controller's settings. Returns 0."""
    typer.echo(controller_schema_text(), nl=False)
    return 0


def schema_text() -> str:
    """The schema as it is printed, and kept in `deploy/schema`."""
    return json.dumps(fleet_json_schema(), indent=2) + "\n"


def controller_schema_text() -> str:
    """Likewise that of the controller's settings."""
    return json.dumps(json_schema_of(Controller), indent=2) + "\n"
