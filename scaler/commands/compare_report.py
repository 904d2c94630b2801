"""The page of a comparison: means by scenario and regime, and every policy at work in one window of each scenario.

The window shown is the one in the middle of each scenario's rows, run again with the first seed: results keep figures, not
what happened.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from scaler.commands.compare_verdict import sentences
from scaler.commands.outputs import writing
from scaler.commands.simulate_report import shown_optimum
from scaler.simulate.bootstrap import DRAWS
from scaler.simulate.compare import Comparison, Estimate, Group, Row
from scaler.simulate.jobs import OPTIMUM
from scaler.simulate.policy_file import PolicyChoice
from scaler.simulate.report import (
    Case,
    ComparisonRow,
    PolicyRun,
    Report,
    Spread,
    facts_of,
    set_points,
    write_report,
)
from scaler.simulate.report.amounts import number
from scaler.simulate.world import simulate


def write_comparison(file: Path, comparison: Comparison, policies: Sequence[PolicyChoice]) -> None:
    """Write the page. `OutputError` where it cannot be written."""
    optima = [row for row in comparison.rows if row.policy == OPTIMUM]
    by_scenario = [
        [row for row in optima if row.scenario == name] for name in dict.fromkeys(r.scenario for r in optima)
    ]
    report = Report(
        title=f"Policies compared on {', '.join(rows[0].scenario for rows in by_scenario)}",
        cases=tuple(_case(rows[len(rows) // 2], policies) for rows in by_scenario),
        comparison=tuple(_line(group) for group in comparison.groups if group.policy != OPTIMUM),
        notes=tuple(_notes(comparison)),
    )
    with writing(file):
        write_report(file, report)


def _notes(comparison: Comparison) -> Iterator[str]:
    yield from sentences(comparison)
    yield f"Gaps are measured from {comparison.baseline}."
    if any(group.ratio.interval is not None for group in comparison.groups):
        yield (
            f"Intervals hold 95 %: windows drawn anew {number(DRAWS)} times, singly and in moving blocks in time order, "
            "whichever is wider."
        )
    yield "The fleets shown are those of the middle window of each scenario, with the first seed."


def _case(row: Row, policies: Sequence[PolicyChoice]) -> Case:
    worlds = [row.place.bind(policy) for policy in policies]
    runs = tuple(
        PolicyRun(run=simulate(world), set_points=set_points(policy.sizing, world.job.batch_samples))
        for world, policy in zip(worlds, policies, strict=True)
    )
    return Case(facts=facts_of(worlds[0]), runs=runs, optimum=shown_optimum(worlds[0]))


def _line(group: Group) -> ComparisonRow:
    return ComparisonRow(
        policy=group.policy,
        scenario=group.scenario,
        regime=group.regime,
        windows=group.windows,
        cost_usd_per_1k_samples=_spread(group.cost_usd_per_1k_samples),
        bound_usd_per_1k_samples=group.bound_usd_per_1k_samples,
        ratio=_spread(group.ratio),
        trainer_wait_ratio=_spread(group.trainer_wait_ratio),
        bound_wait_ratio=group.bound_wait_ratio,
        gap_share=None if group.gap_share is None else _spread(group.gap_share),
    )


def _spread(estimate: Estimate) -> Spread:
    if estimate.interval is None:
        return Spread(value=estimate.value)
    return Spread(value=estimate.value, low=estimate.interval.low, high=estimate.interval.high)
