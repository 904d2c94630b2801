"""No policy is below the bound, in random small worlds: honest ones, and ones that know when capacity falls.

`HEADRACE_WORLDS=4000` tries so many instead of the few of a usual run, `HEADRACE_FIRST_WORLD` starts at another number.
"""

import os

import pytest

from scaler.simulate.optimum import Bound, problem_of, solve
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.waiting import least_wait_ratio
from scaler.simulate.result import Summary
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import simulate
from tests.builders.optimum import a_random_world, whimsical

FIRST = int(os.environ.get("HEADRACE_FIRST_WORLD", "0"))
WORLDS = int(os.environ.get("HEADRACE_WORLDS", "30"))
A_BATCH = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + WORLDS, A_BATCH))
def test_no_run_costs_less_than_the_bound(first: int) -> None:
    beaten = [seed for seed in range(first, min(first + A_BATCH, FIRST + WORLDS)) if _beats(seed)]
    assert not beaten, "worlds whose run beats the bound"


def _beats(seed: int) -> bool:
    scenario = a_random_world(seed)
    with whimsical():
        summary = simulate(scenario, seed).summary
    bound = solve(scenario)
    return (
        summary.cost_usd_per_1k_samples < bound.cost_usd_per_1k_samples
        or _before_refunds(summary) < bound.before_refunds_usd_per_1k_samples
        or bound.gap_ratio > 1e-5
        or summary.trainer_wait_ratio < _least_wait(scenario, bound, summary)
    )


def _least_wait(scenario: Scenario, bound: Bound, summary: Summary) -> float:
    """Of all runs that cost at most as much as this one."""
    within = summary.cost_usd_per_1k_samples / bound.cost_usd_per_1k_samples
    if not 1 <= within < float("inf"):
        return 0.0
    problem = problem_of(scenario)
    program, layout = build(problem)
    rate = bound.cost_usd_per_1k_samples / 1000 * layout.unit_samples
    return least_wait_ratio(problem, program, layout, rate, within * (1 + 1e-9))


def _before_refunds(summary: Summary) -> float:
    if summary.samples_credited <= 0:
        return float("inf")
    return (summary.cost_usd + summary.refunds_usd) / summary.samples_credited * 1000
