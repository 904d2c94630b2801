"""In the smallest worlds every schedule is tried: none is below the bound, and the best is near it.

What keeps them apart is that the bound's replicas need not be whole: in worlds of at most three replicas and seven steps
that is much for a few, and nearly nothing for most. The declared slack is over the worlds of a fixed list.
"""

from statistics import quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.simulate.optimum import solve
from tests.builders.tiny_worlds import TinyOffering, TinyWorld, a_tiny_world, as_scenario, least_cost_per_sample

LISTED = range(100)
MEDIAN_SLACK, MOST_SLACK = 0.006, 0.06
"""Relative: of half of the worlds, and of nine in ten."""


def distance(tiny: TinyWorld) -> float:
    """How much the best schedule is above the bound, relative; 0 where neither credits anything."""
    bound = solve(as_scenario(tiny)).cost_usd_per_1k_samples / 1000
    best = least_cost_per_sample(tiny)
    return best / bound - 1 if best != bound else 0.0


def test_no_schedule_is_below_the_bound_and_the_best_is_near_it() -> None:
    found = [distance(a_tiny_world(seed)) for seed in LISTED]
    assert min(found) >= 0
    tenths = quantiles((d for d in found if d < float("inf")), n=10)
    assert tenths[4] <= MEDIAN_SLACK
    assert tenths[8] <= MOST_SLACK


@settings(max_examples=40)
@given(st.integers(min_value=1000, max_value=10**9))
def test_no_schedule_of_any_world_is_below_the_bound(seed: int) -> None:
    assert distance(a_tiny_world(seed)) >= 0


def world(*offerings: TinyOffering, **facts: float) -> TinyWorld:
    usual = {
        "launch_steps": 1,
        "lead_steps": 0,
        "made_a_step": 100.0,
        "taken_a_step": 200.0,
        "trainer_usd_a_step": 10.0,
        "stock": 1.0,
        "stock_most": 1000.0,
    }
    return TinyWorld(offerings=offerings, **(usual | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tiny",
    [
        pytest.param(world(TinyOffering((2,) * 6, 2.0)), id="launch-at-once-and-keep"),
        pytest.param(world(TinyOffering((2, 2, 0, 2, 2, 2), 2.0)), id="an-outage-costs-a-launch"),
        pytest.param(world(TinyOffering((2, 2, 2, 0, 0, 2, 2), 2.0, refund_steps=3)), id="what-a-fall-takes-is-free"),
        pytest.param(world(TinyOffering((2, 2, 2, 1, 1, 1, 1), 2.0, refund_steps=3)), id="a-fall-takes-one-of-two"),
        pytest.param(world(TinyOffering((2,) * 6, 2.0), warm=2), id="warm-from-the-start"),
        pytest.param(world(TinyOffering((2,) * 6, 2.0), launch_steps=2), id="a-launch-of-two-steps"),
        pytest.param(world(TinyOffering((2,) * 6, 1.0, minimum_steps=4), launch_steps=2), id="a-long-billing-minimum"),
        pytest.param(
            world(TinyOffering((1,) * 6, 2.0), TinyOffering((1,) * 6, 4.0, spot=False)), id="on-demand-beside-spot"
        ),
        pytest.param(
            world(TinyOffering((2, 2, 2, 0, 0, 0), 1.0), warm=2, taken_a_step=100.0),
            id="a-stock-lasts-through-an-outage",
        ),
        pytest.param(
            world(TinyOffering((2, 2, 2, 0, 0, 0), 1.0), warm=2, taken_a_step=100.0, stock_most=100.0),
            id="a-stock-that-is-bounded",
        ),
        pytest.param(world(TinyOffering((2, 2, 0, 0, 2, 2), 2.0), warm=2, lead_steps=1), id="a-notice-of-a-step"),
    ],
)
def test_the_best_schedule_meets_the_bound_where_whole_replicas_are_best(tiny: TinyWorld) -> None:
    assert 0 <= distance(tiny) < 0.015
