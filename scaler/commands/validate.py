"""`headrace validate` and `headrace schema`."""

import json
from pathlib import Path

import typer

from scaler.config.faults import ConfigError, one_line
from scaler.config.json_schema import fleet_json_schema
from scaler.config.loader import load_fleets
from scaler.config.schema import RolloutFleet


def validate_file(path: Path) -> int:
    """Print one line a fleet, or one line a fault on stderr. Returns 0, or 2 where there is a fault."""
    try:
        fleets = load_fleets(path)
    except ConfigError as error:
        for fault in error.faults:
            typer.echo(str(fault), err=True)
        return 2
    for fleet in fleets:
        typer.echo(one_line(summary(fleet)))
    return 0


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


def schema_text() -> str:
    """The schema as it is printed, and kept in `deploy/schema`."""
    return json.dumps(fleet_json_schema(), indent=2) + "\n"
