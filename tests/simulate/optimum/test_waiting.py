"""The least waiting at hardly more than the least cost, where it is known by arithmetic."""

from dataclasses import replace

import pytest

from scaler.model.capacity import CapacityType
from scaler.simulate.optimum import problem_of, solve, waiting
from scaler.simulate.optimum.program import build
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import simulate
from tests.builders.scenarios import a_capacity, a_scenario


def half_a_fleet(on_demand_usd_per_h: float) -> Scenario:
    """Two of four on spot: a replica-hour costs (100 + 2 * 10) / 2 = 60 USD, the trainer's included."""
    more = a_capacity("a", (0, 8), price=on_demand_usd_per_h, capacity_type=CapacityType.ON_DEMAND)
    return a_scenario(a_capacity("a", (0, 2)), more, warm_replicas=2, sizing=2)


def test_a_fleet_that_is_never_enough_waits_for_the_rest() -> None:
    scenario = a_scenario(a_capacity("a", (0, 2)), warm_replicas=2, sizing=2)
    least = solve(scenario).least_trainer_wait_ratio
    assert least == pytest.approx(0.5, abs=0.01)
    assert least <= simulate(scenario).summary.trainer_wait_ratio


def test_in_plenty_nobody_has_to_wait() -> None:
    assert solve(a_scenario()).least_trainer_wait_ratio == pytest.approx(0, abs=1e-6)


def test_waiting_that_a_little_money_ends_does_not_count() -> None:
    # Two more at 60.1, and 5 minutes of launch, make it 60.3 USD a replica-hour: above the least cost, by less than 1 %.
    bound = solve(half_a_fleet(60.1))
    assert bound.trainer_wait_ratio == pytest.approx(0.5, abs=0.01)
    assert bound.least_trainer_wait_ratio == pytest.approx(0, abs=0.01)


def test_waiting_that_costs_much_to_end_counts() -> None:
    # k more at 70 make it 60 + 10 k / (2 + k): 1 % above 60 at k = 0.128.
    bound = solve(half_a_fleet(70.0))
    assert bound.least_trainer_wait_ratio == pytest.approx(1 - 2.128 / 4, abs=0.01)


def test_it_is_a_share_whatever_rounding_its_multipliers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(problem_of(a_scenario(hours=1)), credit_ahead_samples=0.0)
    for rounding in (3e-9, -1e9):
        monkeypatch.setattr(waiting, "proven_least", lambda *_, least=rounding: least)
        assert waiting.least_wait_ratio(problem, *build(problem), rate=1.0) == (1.0 if rounding > 0 else 0.0)
