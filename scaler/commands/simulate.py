"""`headrace simulate` and `headrace scenarios`."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scaler.commands.money import cost_in_parts, dollars
from scaler.commands.outputs import check_writable
from scaler.commands.progress import progress
from scaler.commands.simulate_report import write_run
from scaler.commands.worlds import WorldOptions, told, world_of
from scaler.simulate.loading import ScenarioFile, load_scenario, scenario_schema, shipped_scenarios
from scaler.simulate.report.amounts import duration, in_terminal, plural
from scaler.simulate.report.too_stale import say_too_stale
from scaler.simulate.result import Summary
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import simulate

PIPED_WIDTH = 160
"""Characters of the table where no terminal says how many it has."""


def run_simulate(options: WorldOptions, *, as_json: bool, report: Path | None = None) -> int:
    """Simulate one world and print its figures.

    0: done; 2: an argument names no policy, scenario or stretch of a trace, or the report cannot be written.
    """
    return told(lambda: _simulate(options, as_json=as_json, report=report))


def _simulate(options: WorldOptions, *, as_json: bool, report: Path | None) -> int:
    check_writable(report)
    scenario = world_of(options)
    with progress("simulating", scenario.end_s, as_share=True) as tell:
        run = simulate(scenario, options.seed, passed=tell)
    summary = run.summary
    if as_json:
        print(json.dumps(figures(summary, scenario), indent=1, allow_nan=False))
    else:
        Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(_table(summary, scenario))
        print(_where(scenario))
    if caution := say_too_stale(summary, scenario.balance_replicas):
        print(in_terminal(caution), file=sys.stderr)
    if report is not None:
        write_run(report, scenario, run)
    return 0


def figures(summary: Summary, scenario: Scenario) -> dict[str, object]:
    """All figures by name, and where the capacity came from. What is infinite is null: JSON has no word for it."""
    found = summary.to_json() | {"capacity": scenario.metadata, "balance_replicas": scenario.balance_replicas}
    return {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in found.items()}


def _table(summary: Summary, scenario: Scenario) -> Table:
    title = f"{summary.policy} in {summary.scenario}, {duration(summary.hours)}, seed {summary.seed}"
    table = Table(title=in_terminal(title), show_header=False)
    for name, value in _lines(summary, scenario):
        table.add_row(name, in_terminal(value))
    return table


def _where(scenario: Scenario) -> str:
    found = scenario.metadata
    return f"capacity: {found['trace']}, {found['zones']}, from hour {found['start_h']}"


def _lines(summary: Summary, scenario: Scenario) -> Iterator[tuple[str, str]]:
    yield "cost per 1,000 samples", dollars(summary.cost_usd_per_1k_samples)
    yield "cost", cost_in_parts(summary.cost_usd, summary.cost_trainer_usd, summary.cost_by_capacity_usd)
    yield "refunds, taken off", dollars(summary.refunds_usd)
    yield "samples trained", f"{summary.samples_trained:,} in {plural(summary.policy_updates, 'policy update')}"
    yield "samples filtered, too stale", f"{summary.samples_filtered:,}, {summary.samples_dropped:,}"
    yield "trainer waited", f"{summary.trainer_wait_ratio:.1%}"
    yield "ready replicas, mean", f"{summary.replicas_mean:.1f}, balance {scenario.balance_replicas:.1f}"
    yield "launches asked for, of them refused", f"{summary.launches:,}, {summary.refusals:,}"
    yield "interruptions, of them unnoticed", f"{summary.interruptions:,}, {summary.interruptions_unnoticed:,}"
    yield "tokens generated", f"{summary.tokens_generated:,}"
    yield "tokens salvaged", f"{summary.tokens_salvaged:,}"
    yield "tokens wasted, never in a finished sample", _of(summary.tokens_wasted, summary.tokens_generated)
    yield "tokens of samples dropped, too stale", _of(summary.tokens_stale, summary.tokens_generated)
    yield "computed in", f"{summary.wall_s:.1f} s"


def _of(part: int, whole: int) -> str:
    return f"{part:,}, {part / max(1, whole):.1%}"


def list_scenarios(*, as_json: bool) -> int:
    """Print the shipped scenarios. Returns 0."""
    rows = [_about(load_scenario(name)) for name in sorted(shipped_scenarios())]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(_line(row))
    return 0


def print_scenario_schema() -> int:
    """Print the JSON Schema of a scenario. Returns 0."""
    print(json.dumps(scenario_schema(), indent=2))
    return 0


def _about(found: ScenarioFile) -> dict[str, object]:
    spec = found.spec
    return {
        "name": found.name,
        "description": found.document.metadata.description,
        "balance_replicas": spec.balance_replicas,
        "ceiling": spec.guard_rails.ceiling,
        "trainer_usd_per_h": spec.trainer.usd_per_h,
        "spot_usd_per_h": spec.spot.price_usd_per_h * spec.replica.nodes,
        "on_demand_usd_per_h": spec.on_demand.price_usd_per_h * spec.replica.nodes,
    }


def _line(row: dict[str, object]) -> str:
    return (
        f"{row['name']}: {row['description']}; n* {row['balance_replicas']:.1f} of at most {row['ceiling']}, USD/h: trainer "
        f"{row['trainer_usd_per_h']:.2f}, a spot replica {row['spot_usd_per_h']:.2f}, on demand {row['on_demand_usd_per_h']:.2f}"
    )
