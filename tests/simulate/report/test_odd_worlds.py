"""Pages of odd worlds: outages for whole steps, nothing held, nothing trained, a solver's rounding, a single short step."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.commands.simulate_report import shown_optimum
from scaler.commands.worlds import WorldOptions, world_of
from scaler.simulate.report import Case, Optimum, PolicyRun, Report, facts_of, shown_run
from scaler.simulate.report.page import page
from scaler.simulate.result import Run, Timeline
from scaler.simulate.world import simulate
from scaler.traces.offering_events import dump
from tests.builders.report import some_case, some_facts, some_rows, some_run
from tests.builders.traces import a_trace

STEP_S = 60.0
SPOT, ON_DEMAND = (some_facts(1).offerings[i].offering_id for i in range(2))
ROUNDING = 3e-9
"""What a solver may leave on a share."""


def waits_out(waiting: tuple[float, ...]) -> Case:
    """A case whose optimum waits so, step by step."""
    case = some_case(1)
    plan = Optimum(figures={}, timeline=Timeline(step_s=STEP_S, waiting_ratio=waiting))
    return replace(case, facts=replace(case.facts, hours=len(waiting) * STEP_S / 3600), optimum=plan)


@pytest.mark.parametrize("share", [1.0, 1.0 - ROUNDING, ROUNDING])
def test_an_optimum_that_waits_for_whole_steps_is_drawn_with_the_rounding_of_its_solver(share: float) -> None:
    text = page(Report(title="outage", cases=(waits_out((0.0, *(share,) * 30, 0.0)),)))
    assert "Trainer waiting for a batch" in text[text.index("The optimum over time</h2>") :]
    if share > 0.5:
        assert ">100 %</text>" in text


def odd(least: float, most: float) -> st.SearchStrategy[float]:
    """Amounts, and those that a solver or a division leaves: next to nothing, and a little too much."""
    return st.sampled_from([0.0, least, most, 5e-324, ROUNDING, -ROUNDING, most * (1 + ROUNDING)]) | st.floats(
        least, most
    )


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Of any number of steps, each series there or not."""
    steps = draw(st.integers(1, 7))

    def series(least: float, most: float) -> tuple[float, ...]:
        values = st.lists(odd(least, most), min_size=steps, max_size=steps).map(tuple)
        return draw(st.just(()) | values)

    return Timeline(
        step_s=draw(st.sampled_from([1e-3, STEP_S, 86400.0])),
        held={SPOT: series(0.0, 9.0), ON_DEMAND: series(0.0, 1e6)},
        capacity={SPOT: series(0.0, 30.0)},
        ready=series(0.0, 20.0),
        buffered_samples=series(0.0, 1e9),
        waiting_ratio=tuple(min(1.0, max(0.0, share)) for share in series(0.0, 1.0)),
        wasted_tokens=series(0.0, 1e12),
        interruptions=tuple(draw(st.lists(st.integers(0, 3), min_size=steps, max_size=steps))),
        desired=series(0.0, 24.0),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A run and an optimum, of any timelines and of figures that may all be nothing."""
    timeline = draw(timelines())
    steps = len(timeline.interruptions)
    facts = replace(
        some_facts(1),
        hours=steps * timeline.step_s / 3600,
        balance_replicas=draw(st.sampled_from([0.0, 0.4, 14.3])),
        ceiling=draw(st.sampled_from([0, 1, 24])),
        batch_samples=draw(st.sampled_from([1, 512])),
        warm_replicas=draw(st.integers(0, 2)),
    )
    summary = some_run(some_facts(1), "odd").summary
    counts = (
        "samples_trained",
        "tokens_generated",
        "tokens_wasted",
        "tokens_stale",
        "tokens_salvaged",
        "samples_dropped",
    )
    amounts: dict[str, Any] = {name: draw(st.sampled_from([0, 1, 10**9])) for name in counts}
    summary = replace(summary, hours=facts.hours, **amounts)
    if summary.samples_trained == 0:
        summary = replace(summary, samples_credited=0.0, cost_usd_per_1k_samples=float("inf"))
    if draw(st.booleans()):
        summary = replace(summary, cost_usd=0.0, cost_trainer_usd=0.0, cost_by_capacity_usd={}, refunds_usd=0.0)
    figures = draw(st.sampled_from([{}, summary.to_json(), {"cost_usd_per_1k_samples": 0.0}]))
    optimum = Optimum(figures=figures, timeline=replace(timeline, interruptions=()))
    return Case(
        facts=facts,
        runs=(PolicyRun(run=Run(summary=summary, timeline=timeline)),) * draw(st.integers(1, 2)),
        optimum=optimum,
    )


@given(case=cases())
def test_any_world_has_a_page_without_a_number_that_is_none(case: Case) -> None:
    text = page(Report(title="odd", cases=(case,)))
    assert re.search(r"\bnan\b|\binf\b", text[text.index("<body>") :]) is None


def test_a_comparison_with_a_bound_of_nothing_has_a_page() -> None:
    row = replace(some_rows()[0], bound_usd_per_1k_samples=0.0, ratio=None)
    assert "<td>0</td><td></td>" in page(Report(title="free", comparison=(row,)))


OUTAGES = {
    "no capacity at all": {"a": {0.0: 0}, "b": {0.0: 0}},
    "none for an hour": {"a": {0.0: 8, 1800.0: 0, 5400.0: 8}, "b": {0.0: 0}},
    "one replica's": {"a": {0.0: 1}},
}


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("hours", [0.001, 2.0])
@pytest.mark.parametrize("scenario", ["small", "case-a", "aws-48-nodes"])
def test_a_world_of_an_outage_has_a_page(
    tmp_path_factory: pytest.TempPathFactory, scenario: str, hours: float, outage: str
) -> None:
    trace = tmp_path_factory.mktemp("outage") / "day.csv"
    trace.write_text(dump(a_trace(86400.0, 1.0, **OUTAGES[outage])))
    text = page_of(WorldOptions(scenario=scenario, policy="rate_match", trace=str(trace), hours=hours))
    assert "The optimum over time</h2>" in text


@pytest.mark.parametrize(("seed", "hours"), [(2, 12.0), (5, 48.0)])
def test_a_generated_world_in_which_the_optimum_waits_has_a_page(seed: int, hours: float) -> None:
    assert "The optimum over time</h2>" in page_of(
        WorldOptions(scenario="small", policy="rate_match", hours=hours, seed=seed)
    )


def page_of(options: WorldOptions) -> str:
    world = world_of(options)
    case = Case(
        facts=facts_of(world), runs=(shown_run(world, simulate(world, options.seed)),), optimum=shown_optimum(world)
    )
    return page(Report(title="an odd world", cases=(case,)))
