"""What a planner makes of foresight, in worlds where it is plain what foresight is good for."""

import math
from collections.abc import Callable, Sequence

import pytest

from scaler.simulate.optimum import solve
from scaler.simulate.optimum.foresight import achieved
from scaler.simulate.result import Summary
from scaler.simulate.scenario import Scenario
from tests.builders.scenarios import a_capacity, a_scenario

HALF_AN_HOUR_S = 1800.0
LAMBDA = 140 / 3600
"""USD a sample in balance: 4 replicas at 10 USD/h beside a trainer of 100."""


def ladder(scenario: Scenario, *foresights_s: float) -> Sequence[Summary]:
    return [achieved(scenario, foresight_s, LAMBDA) for foresight_s in foresights_s]


def moving() -> Scenario:
    """All that is warm is taken after an hour; there is as much elsewhere, a little dearer."""
    return a_scenario(
        a_capacity("a", (0, 4), (1, 0)), a_capacity("b", (0, 4), price=12.0), hours=2.0, warm_depth_samples=0
    )


def refunding() -> Scenario:
    """What is dearer is taken after 45 minutes, and refunded."""
    soon = a_capacity("a", (0, 8), (0.75, 0), price=11.0, refund_s=3600.0)
    return a_scenario(soon, a_capacity("b", (0, 8), refund_s=3600.0), hours=2.0, warm_replicas=0)


def test_who_foresees_a_fall_has_launched_elsewhere_before_it() -> None:
    blind, foreseeing = ladder(moving(), 0.0, HALF_AN_HOUR_S)
    # Blind, it launches at the fall: 5 minutes of launch and the answer are not covered by 2 to 5 minutes until all are gone.
    assert foreseeing.trainer_wait_ratio < blind.trainer_wait_ratio - 0.005
    assert foreseeing.cost_usd_per_1k_samples < blind.cost_usd_per_1k_samples


def test_who_foresees_no_fall_goes_where_it_is_cheapest() -> None:
    (blind,) = ladder(refunding(), 0.0)
    assert blind.refunds_usd == 0


def test_who_foresees_a_refund_takes_what_is_dearer() -> None:
    blind, foreseeing = ladder(refunding(), 0.0, math.inf)
    assert foreseeing.refunds_usd > 0.7 * 4 * 11.0 * 0.75
    assert foreseeing.cost_usd_per_1k_samples < blind.cost_usd_per_1k_samples


def test_foresight_of_more_than_there_is_is_that_of_all() -> None:
    assert _figures(*ladder(moving(), 2 * 3600.0)) == _figures(*ladder(moving(), math.inf))


@pytest.mark.parametrize("make", [moving, refunding])
def test_nobody_is_below_the_bound(make: Callable[[], Scenario]) -> None:
    scenario = make()
    bound = solve(scenario).cost_usd_per_1k_samples
    assert all(run.cost_usd_per_1k_samples >= bound for run in ladder(scenario, 0.0, HALF_AN_HOUR_S, math.inf))


def test_where_nothing_can_be_had_it_trains_nothing() -> None:
    scenario = a_scenario(a_capacity("a", (0, 0)), hours=1.0, warm_replicas=0, warm_depth_samples=0)
    (run,) = ladder(scenario, 0.0)
    assert math.isinf(run.cost_usd_per_1k_samples)


def _figures(run: Summary) -> dict[str, object]:
    return {key: value for key, value in run.to_json().items() if key != "wall_s"}
