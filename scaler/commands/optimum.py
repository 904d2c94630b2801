"""`headrace optimum`: what no policy can beat in a world, and the problem whose answer that is."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from scaler.commands.money import cost_in_parts, dollars
from scaler.commands.outputs import check_writable, write_text
from scaler.commands.progress import progress
from scaler.commands.simulate import PIPED_WIDTH
from scaler.commands.worlds import WRONG_INPUT, WorldOptions, told, world_of
from scaler.model.units import format_duration, parse_duration_s
from scaler.simulate.compare import over
from scaler.simulate.optimum import Bound, problem_of, solve
from scaler.simulate.optimum.bound import IN_THE_MEAN
from scaler.simulate.optimum.foresight import achieved
from scaler.simulate.report.amounts import duration, in_terminal, plural
from scaler.simulate.result import Summary
from scaler.simulate.scenario import Scenario

Rung: TypeAlias = tuple[float, Summary]
"""Seconds of foresight, and what came of it."""
NOBODY = "rate_match"
"""The optimum asks no policy; a world needs one all the same."""


ALL = "all"
"""Of the window: the foresight of one who knows it whole."""


def run_optimum(
    options: WorldOptions, problem: Path | None, foresight: str, *, in_the_mean: bool, as_json: bool
) -> int:
    """Bound the cost of one world and print it, with what so much foresight achieves where that is asked for.

    0: done; 2: an argument names no world, a foresight is no duration, or the file cannot be written.
    """
    return told(lambda: _optimum(options, problem, foresight, in_the_mean=in_the_mean, as_json=as_json))


def _optimum(options: WorldOptions, problem: Path | None, foresight: str, *, in_the_mean: bool, as_json: bool) -> int:
    try:
        ladder_s = _foresights_s(foresight)
    except ValueError as error:
        print(f"--foresight {foresight}: {error}", file=sys.stderr)
        return WRONG_INPUT
    check_writable(problem)
    scenario = world_of(options)
    if problem is not None:
        write_text(problem, json.dumps(problem_of(scenario, in_the_mean=in_the_mean).to_json(), allow_nan=False) + "\n")
    bound = solve(scenario, in_the_mean=in_the_mean)
    first = _lambda(bound, scenario)
    rungs = _climbed(scenario, ladder_s, first, options.seed)
    if as_json:
        print(json.dumps(figures(bound, scenario) | _ladder(rungs), indent=1, allow_nan=False))
    else:
        Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(_table(bound, scenario, rungs))
    return 0


def _climbed(scenario: Scenario, ladder_s: Sequence[float], first: float, seed: int) -> list[Rung]:
    rungs: list[Rung] = []
    with progress("foresight", len(ladder_s)) as tell:
        for rung_s in ladder_s:
            rungs.append((rung_s, achieved(scenario, rung_s, first, seed)))
            tell(len(rungs))
    return rungs


def _foresights_s(words: str) -> list[float]:
    """Each once, in the order asked for; none where nothing is asked. `ValueError` where a word is no duration."""
    listed = [word.strip() for word in words.split(",")] if words else []
    return list(dict.fromkeys(math.inf if word == ALL else parse_duration_s(word) for word in listed))


def _lambda(bound: Bound, scenario: Scenario) -> float:
    """What a sample costs, to start from (USD): without a bound, as if a sample were the trainer's time alone."""
    if math.isfinite(bound.before_refunds_usd_per_1k_samples):
        return bound.before_refunds_usd_per_1k_samples / 1000.0
    return scenario.trainer.usd_per_h / 3600.0 / scenario.unblocked_samples_per_s


def _ladder(rungs: Sequence[Rung]) -> dict[str, object]:
    """Under `foresight`, in the order asked for; `foresight_s` null is all of the window."""
    if not rungs:
        return {}
    found = [
        {"foresight_s": None if math.isinf(rung_s) else rung_s, "bound": "none, achieved"} | _finite(run.to_json())
        for rung_s, run in rungs
    ]
    return {"foresight": found}


def _finite(found: dict[str, object]) -> dict[str, object]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in found.items()
    }


def figures(bound: Bound, scenario: Scenario) -> dict[str, object]:
    """All figures by name, and where the capacity came from. What is infinite is null: JSON has no word for it."""
    found = bound.to_json() | {"capacity": scenario.metadata, "balance_replicas": scenario.balance_replicas}
    return _finite(found)


def _table(bound: Bound, scenario: Scenario, rungs: Sequence[Rung]) -> Table:
    title = f"optimum of {bound.scenario}, {duration(bound.hours)}, whatever the seed"
    table = Table(title=in_terminal(title), show_header=False)
    for name, value in (*_lines(bound, scenario), *_rungs(bound, rungs)):
        table.add_row(name, in_terminal(value))
    return table


def _rungs(bound: Bound, rungs: Sequence[Rung]) -> Iterator[tuple[str, str]]:
    for rung_s, run in rungs:
        known = "the whole window" if math.isinf(rung_s) else format_duration(rung_s)
        cost, times = run.cost_usd_per_1k_samples, over(run.cost_usd_per_1k_samples, bound.cost_usd_per_1k_samples)
        beside = f", {times:.3f} of the bound" if math.isfinite(times) else ""
        yield (
            f"a planner that foresees {known} reaches",
            f"{dollars(cost)}{beside}; it waits {run.trainer_wait_ratio:.1%}",
        )
    if rungs:
        yield "such a planner's cost is", "what it achieved, no optimum: more foresight need not cost less"


def _lines(bound: Bound, scenario: Scenario) -> Iterator[tuple[str, str]]:
    cost = cost_in_parts(bound.cost_usd, bound.cost_trainer_usd, bound.cost_by_capacity_usd)
    no_policy = "no policy, in the mean over draws," if bound.bound == IN_THE_MEAN else "no policy"
    yield f"{no_policy} costs less per 1,000 samples than", dollars(bound.cost_usd_per_1k_samples)
    yield "nor, before refunds, than", dollars(bound.before_refunds_usd_per_1k_samples)
    yield "a plan that costs so little", cost
    yield "its refunds, taken off", dollars(bound.refunds_usd)
    yield "its samples trained", f"{bound.samples_trained:,.0f}"
    yield "its trainer waits", f"{bound.trainer_wait_ratio:.1%}"
    if math.isfinite(bound.least_trainer_wait_ratio):
        yield "nobody who pays at most 1 % more waits less than", f"{bound.least_trainer_wait_ratio:.1%}"
    yield "its ready replicas, mean", f"{bound.replicas_mean:.1f}, balance {scenario.balance_replicas:.1f}"
    yield "capacity is", bound.regime
    if bound.refunds_unlimited:
        yield "loose", "instances are taken at times of their own and refunded: every first hour is let be free"
    yield "the solver says", f"{bound.status}, {plural(bound.steps, 'step')}, {plural(bound.turns, 'program')}"
    yield "computed in", f"{bound.wall_s:.1f} s"
