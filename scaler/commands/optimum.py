"""`headrace optimum`: what no policy can beat in a world, and the problem whose answer that is."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scaler.commands.simulate import PIPED_WIDTH
from scaler.commands.worlds import WRONG_INPUT, WorldOptions, told, world_of
from scaler.simulate.optimum import Bound, problem_of, solve
from scaler.simulate.scenario import Scenario

NOBODY = "rate_match"
"""The optimum asks no policy; a world needs one all the same."""


def run_optimum(options: WorldOptions, problem: Path | None, *, as_json: bool) -> int:
    """Bound the cost of one world and print it. 0: done; 2: an argument names no world, or the file cannot be written."""
    return told(lambda: _optimum(options, problem, as_json=as_json))


def _optimum(options: WorldOptions, problem: Path | None, *, as_json: bool) -> int:
    scenario = world_of(options)
    if problem is not None and not _written(scenario, problem):
        return WRONG_INPUT
    bound = solve(scenario)
    if as_json:
        print(json.dumps(figures(bound, scenario), indent=1, allow_nan=False))
    else:
        Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(_table(bound, scenario))
    return 0


def _written(scenario: Scenario, path: Path) -> bool:
    try:
        path.write_text(json.dumps(problem_of(scenario).to_json(), allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{path}: it cannot be written: {error.strerror}", file=sys.stderr)
        return False
    return True


def figures(bound: Bound, scenario: Scenario) -> dict[str, object]:
    """All figures by name, and where the capacity came from. What is infinite is null: JSON has no word for it."""
    found = bound.to_json() | {"capacity": scenario.metadata, "balance_replicas": scenario.balance_replicas}
    return {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in found.items()}


def _table(bound: Bound, scenario: Scenario) -> Table:
    table = Table(title=f"optimum of {bound.scenario}, {bound.hours:g} h, whatever the seed", show_header=False)
    for name, value in _lines(bound, scenario):
        table.add_row(name, value)
    return table


def _lines(bound: Bound, scenario: Scenario) -> Iterator[tuple[str, str]]:
    rents = [f"{name} {usd:,.0f}" for name, usd in bound.cost_by_capacity_usd.items() if usd]
    cost = ", ".join([f"trainer {bound.cost_trainer_usd:,.0f}", *rents])
    yield "no policy costs less per 1,000 samples than", f"{bound.cost_usd_per_1k_samples:,.2f} USD"
    yield "nor, before refunds, than", f"{bound.before_refunds_usd_per_1k_samples:,.2f} USD"
    yield "a plan that costs so little", f"{bound.cost_usd:,.2f} USD: {cost}"
    yield "its refunds, taken off", f"{bound.refunds_usd:,.2f} USD"
    yield "its samples trained", f"{bound.samples_trained:,.0f}"
    yield "its trainer waits", f"{bound.trainer_wait_ratio:.1%}"
    yield "its ready replicas, mean", f"{bound.replicas_mean:.1f}, balance {scenario.balance_replicas:.1f}"
    yield "capacity is", bound.regime
    if bound.refunds_unlimited:
        yield "loose", "instances are taken at times of their own and refunded: every first hour is let be free"
    yield "the solver says", f"{bound.status}, {bound.steps:,} steps, {bound.turns} programs"
    yield "computed in", f"{bound.wall_s:.1f} s"
