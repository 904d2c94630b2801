"""What the bound says where the answer is known by arithmetic."""

import math
from dataclasses import replace

import pytest

from scaler.model.capacity import Billing, CapacityType
from scaler.simulate.optimum import Bound, Regime, problem_of, solve
from scaler.simulate.optimum.bound import bound_of
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.ratio import Answer
from scaler.simulate.result import Summary
from scaler.simulate.scenario import AgeHazard, OfferingModel, Scenario
from tests.builders.scenarios import a_capacity, a_scenario, steps

BALANCED = (100 + 4 * 10) / 3.6
"""USD per 1,000 samples of the default world: 4 replicas at 10 USD/h beside a trainer of 100 USD/h, 3,600 samples an hour."""


def on_demand(quota: int = 8, price: float = 30.0) -> OfferingModel:
    return a_capacity("a", (0, quota), price=price, capacity_type=CapacityType.ON_DEMAND)


def test_in_plenty_it_is_balance_at_the_cheapest_price() -> None:
    bound = solve(a_scenario(a_capacity("a"), a_capacity("b", price=12.0), on_demand()))
    # The warm buffer and half-done groups, and the group that acceptance rounds up, are all that balance can be spared.
    assert 0.99 * BALANCED < bound.cost_usd_per_1k_samples <= BALANCED
    assert bound.regime is Regime.PLENTY
    assert bound.status == "optimal"
    assert bound.replicas_mean == pytest.approx(4, rel=0.01)
    assert bound.cost_by_capacity_usd["on-demand"] == 0
    assert bound.trainer_wait_ratio < 0.01


def test_without_replicas_it_has_no_end() -> None:
    scenario = a_scenario(a_capacity("a", (0, 0)), job=replace(a_scenario().job, group_size=1), warm_replicas=0)
    bound = solve(replace(scenario, warm_depth_samples=0))
    # Only what a run may be lucky by is credited: one group.
    assert bound.cost_usd_per_1k_samples == pytest.approx(1200 * 1000, rel=1e-6)


def test_a_fleet_that_is_never_enough_makes_what_it_can() -> None:
    bound = solve(a_scenario(a_capacity("a", (0, 2)), warm_replicas=2))
    credited = 12 * 3600 * 0.5 + 4
    assert bound.cost_usd_per_1k_samples == pytest.approx(1000 * 12 * 120 / credited, rel=1e-6)
    assert bound.trainer_wait_ratio == pytest.approx(0.5, abs=0.01)
    assert bound.regime is Regime.MIXED


def test_it_waits_although_it_buys_on_demand_where_both_are_short() -> None:
    bound = solve(a_scenario(a_capacity("a", (0, 2)), on_demand(quota=1), warm_replicas=2))
    assert bound.regime is Regime.SCARCE
    assert bound.hours_by_capacity["on-demand"] == pytest.approx(12, rel=0.02)


def test_on_demand_is_not_bought_where_it_costs_more_than_it_brings() -> None:
    bound = solve(a_scenario(a_capacity("a", (0, 2)), on_demand(price=1000.0), warm_replicas=2))
    assert bound.cost_by_capacity_usd["on-demand"] == 0


def refunding(*changes: tuple[float, int], refund_s: float = 3600.0) -> Scenario:
    return a_scenario(a_capacity("a", *changes, refund_s=refund_s), a_capacity("b"), warm_replicas=0)


def test_where_nothing_falls_nothing_is_refunded() -> None:
    with_refunds, without = solve(refunding((0, 8))), solve(refunding((0, 8), refund_s=0.0))
    assert with_refunds.refunds_usd == 0
    assert with_refunds.cost_usd_per_1k_samples == pytest.approx(without.cost_usd_per_1k_samples, rel=1e-6)


def test_a_fall_refunds_an_hour_of_what_it_takes_at_the_most() -> None:
    with_refunds, without = solve(refunding((0, 8), (6, 7))), solve(refunding((0, 8), (6, 7), refund_s=0.0))
    saved = 12 * 3.6 * (without.cost_usd_per_1k_samples - with_refunds.cost_usd_per_1k_samples)
    # Less than an hour of one replica at 10 USD/h: its launch is paid for by nobody, but its work is lost meanwhile.
    assert 8 < saved < 10
    assert with_refunds.before_refunds_usd_per_1k_samples == pytest.approx(without.cost_usd_per_1k_samples, rel=1e-4)


def test_refunds_are_no_more_than_the_falls_allow() -> None:
    problem = problem_of(refunding((0, 8), (3, 4), (5, 8), (6, 7), (6.5, 0)))
    assert [fall.most_replicas for fall in problem.offerings[0].falls] == [4, 1, 7]
    bound = solve(refunding((0, 8), (3, 4), (5, 8), (6, 7), (6.5, 0)))
    assert bound.refunds_usd <= (4 + 1 + 7) * 10 + 1e-6


def test_a_fall_that_nobody_may_keep_under_the_ceiling_refunds_nothing() -> None:
    """To have one of eight taken, eight must be held: the ceiling of four and its allowances forbid it."""
    free = refunding((0, 8), (6, 7))
    tight = a_scenario(*free.offerings, warm_replicas=0, rails={"max_replicas": 4, "disruption_budget_ratio": 0.0})
    loose, bound = solve(free), solve(tight)
    assert bound.refunds_usd < loose.refunds_usd
    assert bound.cost_usd_per_1k_samples > loose.cost_usd_per_1k_samples


def test_a_spend_cap_binds() -> None:
    bound = solve(a_scenario(rails={"max_spend_usd_per_h": 20.0}, warm_replicas=0))
    assert bound.replicas_mean <= 2 + 1e-6


def test_an_outage_costs_its_length_and_a_launch() -> None:
    """Nothing is held from 5 minutes after the fall until the count is back; 290 s later the first are ready again."""
    whole = solve(a_scenario(a_capacity("a", (0, 4))))
    cut = solve(a_scenario(a_capacity("a", (0, 4), (6, 0), (7, 4))))
    lost_s = 3600 - 300 + 290
    stock = cut.start_stock_samples + cut.timeline.buffered_samples[71] - cut.timeline.buffered_samples[-1]
    lost = whole.samples_credited - cut.samples_credited
    assert lost_s - stock - 100 < lost <= lost_s


def test_a_billing_minimum_longer_than_a_launch_is_charged() -> None:
    def world(minimum_s: float) -> Scenario:
        model = a_capacity("a", (0, 0), (1, 4), (1.5, 0), (3, 4), (3.5, 0))
        billing = Billing(minimum_s=minimum_s)
        return a_scenario(replace(model, offering=replace(model.offering, billing=billing)), hours=4, warm_replicas=0)

    paid = [solve(world(minimum_s)).cost_usd_per_1k_samples for minimum_s in (60.0, 3600.0)]
    assert paid[1] > 1.02 * paid[0]


def test_instances_taken_at_times_of_their_own_are_said_to_loosen_it() -> None:
    hazard = AgeHazard(steps=((0.0, 0.5),))
    bound = solve(a_scenario(a_capacity("a", refund_s=3600.0, hazard=hazard)))
    assert bound.refunds_unlimited
    assert bound.cost_usd_per_1k_samples < BALANCED < bound.before_refunds_usd_per_1k_samples * 1.01
    assert not solve(a_scenario(a_capacity("a", hazard=hazard))).refunds_unlimited


def test_it_has_the_keys_of_a_summary() -> None:
    bound = solve(a_scenario(hours=1)).to_json()
    assert set(Summary.__dataclass_fields__) <= set(bound)
    assert bound["bound"] == "lower"
    assert bound["tokens_wasted"] is None
    assert not any(isinstance(value, float) and math.isnan(value) for value in bound.values())


def test_its_plan_is_a_timeline_within_capacity() -> None:
    scenario = a_scenario(a_capacity("a", (0, 8), (3, 2), (5, 6)), on_demand())
    bound = solve(scenario)
    lines = bound.timeline
    assert set(lines.held) == set(lines.capacity) == {"g/a/spot", "g/a/on-demand"}
    assert len(lines.ready) == len(lines.buffered_samples) == len(lines.waiting_ratio) == 144
    # Instances outlive a fall by five minutes, and the plan's own steps are not those of the timeline.
    outliving = [max(lines.capacity["g/a/spot"][max(0, i - 2) : i + 2]) for i in range(144)]
    assert all(held <= most + 1e-6 for held, most in zip(lines.held["g/a/spot"], outliving, strict=True))
    assert rent_of(bound) == pytest.approx(bound.cost_usd - bound.cost_trainer_usd, rel=1e-6)


@pytest.mark.parametrize(("worked", "waits"), [(-3e-9, 1.0), (1.0 + 3e-9, 0.0)])
def test_its_waiting_is_a_share_whatever_rounding_its_solver_leaves(worked: float, waits: float) -> None:
    """`worked`: in each step, of what the trainer takes in it."""
    scenario = a_scenario(hours=1)
    problem = problem_of(scenario)
    program, layout = build(problem)
    solution = program.lower.copy()
    solution[layout.worked] = worked * program.upper[layout.worked]
    answer = Answer(proven=1.0, reached=1.0, solution=solution, status="Optimal", turns=1, solver_s=0.0)
    bound = bound_of(scenario, problem, layout, answer, 1.0, 0.0, 0.0)

    assert bound.trainer_wait_ratio == waits
    assert set(bound.timeline.waiting_ratio) == {waits}


def rent_of(bound: Bound) -> float:
    return sum(bound.timeline.rent_usd_per_h) * bound.timeline.step_s / 3600


def test_more_capacity_never_costs_more() -> None:
    costs = [
        solve(a_scenario(replace(a_capacity("a"), capacity=steps((0, 4), (2, n), (4, 4))))).cost_usd_per_1k_samples
        for n in range(5)
    ]
    assert costs == sorted(costs, reverse=True)


def test_a_longer_launch_never_costs_less() -> None:
    def cost(launch_s: float) -> float:
        scenario = a_scenario(a_capacity("a", (0, 4), (2, 0), (2.5, 4), (4, 0), (4.2, 4)), on_demand(), hours=6)
        boot = replace(scenario.launch.boot, least_s=launch_s)
        return solve(replace(scenario, launch=replace(scenario.launch, boot=boot))).cost_usd_per_1k_samples

    costs = [cost(launch_s) for launch_s in (60.0, 190.0, 490.0, 1090.0)]
    assert costs == sorted(costs)
