"""What the simulated cloud gives and takes, and what that costs."""

from dataclasses import replace

import pytest

from scaler.decide.timing import AFTER_REFUSAL_S
from scaler.model.capacity import CapacityType
from scaler.simulate.cloud import age_at, exposure_at
from scaler.simulate.scenario import AgeHazard, NoticeModel, Scenario, warm_start
from scaler.simulate.world import World, simulate
from tests.builders.scenarios import HOUR_S, a_capacity, a_scenario


def asked_at_s(scenario: Scenario) -> dict[str, list[float]]:
    """By zone: when replicas were asked for there."""
    found: dict[str, dict[str, float]] = {}

    def look(world: World) -> None:
        for replica in world.cloud.replicas.values():
            if replica.requested_s >= 0:
                zone = replica.offering.model.offering.zone
                found.setdefault(zone, {})[replica.replica_id] = replica.requested_s

    simulate(scenario, watch=look)
    return {zone: sorted(asked.values()) for zone, asked in found.items()}


def test_what_is_held_above_a_fallen_count_is_taken_and_the_rest_stays() -> None:
    run = simulate(a_scenario(a_capacity("a", (0, 4), (6, 1))))
    assert run.summary.interruptions == 3
    held = run.timeline.held["g/a/spot"]
    assert held[0] == pytest.approx(4)
    assert held[-1] == pytest.approx(1)


def test_nothing_is_taken_where_less_is_held_than_is_left() -> None:
    assert simulate(a_scenario(a_capacity("a", (0, 8), (6, 4)))).summary.interruptions == 0


def test_held_capacity_never_exceeds_the_greatest_count_of_the_last_minutes() -> None:
    scenario = a_scenario(a_capacity("a", (0, 8), (1, 2), (1.02, 8), (3, 0), (3.02, 6)), sizing=8)
    outlive_s, series = scenario.notices.outlive_s, scenario.offerings[0].capacity

    def look(world: World) -> None:
        now_s = world.kernel.now_s
        recent = [count for at_s, count in series.changes() if now_s - outlive_s <= at_s <= now_s]
        most = max([series.at(now_s - outlive_s), series.at(now_s), *recent])
        (state,) = world.cloud.offerings.values()
        assert len(state.held) <= most

    simulate(scenario, watch=look)


def test_a_quota_refuses_and_never_takes() -> None:
    on_demand = a_capacity("a", (0, 4), (6, 1), capacity_type=CapacityType.ON_DEMAND)
    run = simulate(a_scenario(on_demand, sizing=6, warm_replicas=0)).summary
    assert run.interruptions == 0
    assert run.refusals > 0
    assert run.cost_by_capacity_usd["on-demand"] > 0


def test_who_is_refused_asks_elsewhere_within_seconds() -> None:
    """As the live loop does."""
    scenario = a_scenario(a_capacity("a", (0, 0)), a_capacity("b", price=20.0), sizing=1, warm_replicas=0)

    asked = asked_at_s(scenario)
    assert (asked["a"][0], asked["b"]) == (0.0, [scenario.launch.answer.least_s + AFTER_REFUSAL_S])


def test_what_goes_unnoticed_is_seen_at_the_next_turn() -> None:
    """As the live loop does: only what it is told of wakes it."""
    scenario = a_scenario(
        a_capacity("a", (0, 4), (2, 3)),
        a_capacity("b", price=20.0),
        notices=NoticeModel(none_ratio=1.0, late_ratio=0.0),
    )
    asked = asked_at_s(scenario)
    first_s = min(at_s for zone in asked.values() for at_s in zone)

    assert first_s > 2 * HOUR_S
    assert first_s % scenario.fleet.interval_s == 0


def test_an_instance_taken_within_its_first_hour_costs_nothing() -> None:
    capacity = ((0.0, 0), (2.0, 1), (2.8, 0))
    charged = simulate(a_scenario(a_capacity("a", *capacity), sizing=1, warm_replicas=0)).summary
    refunded = simulate(a_scenario(a_capacity("a", *capacity, refund_s=HOUR_S), sizing=1, warm_replicas=0)).summary
    assert charged.cost_by_capacity_usd["spot"] > 0
    assert refunded.cost_by_capacity_usd["spot"] == 0
    assert refunded.refunds_usd == pytest.approx(charged.cost_by_capacity_usd["spot"])


def test_an_instance_taken_after_its_first_hour_is_paid_in_full() -> None:
    capacity = a_capacity("a", (0, 0), (2, 1), (3.5, 0), refund_s=HOUR_S)
    run = simulate(a_scenario(capacity, sizing=1, warm_replicas=0)).summary
    assert run.refunds_usd == 0
    assert run.cost_by_capacity_usd["spot"] > 10


def test_drained_in_time_nothing_is_wasted_and_killed_without_notice_little() -> None:
    """Units of 11 minutes, which no notice of two lets end."""
    taking = a_capacity("a", (0, 6), (2, 3), (4, 6), (6, 1), (8, 6), (10, 2))
    usual = a_scenario(taking, sizing=6, warm_replicas=6)
    long = replace(
        usual,
        generation=replace(usual.generation, tokens_per_s=5.0, concurrent_units=160),
        job=replace(usual.job, max_staleness=200),
    )
    noticed = simulate(long).summary
    killed = simulate(replace(long, notices=NoticeModel(none_ratio=1.0, late_ratio=0.0))).summary
    assert noticed.tokens_wasted == 0
    assert noticed.tokens_salvaged > 0
    assert killed.interruptions_unnoticed == killed.interruptions
    # At most the publication interval (10 s) of each unit (160 a replica, 5 tokens/s) is lost.
    assert 0 < killed.tokens_wasted <= killed.interruptions * 160 * 5 * 10


def test_policies_meet_the_same_luck() -> None:
    """A bigger fleet loses the same slots at the same moments, and more beside them."""

    def taken(replicas: int) -> set[tuple[float, int]]:
        found: set[tuple[float, int]] = set()
        scenario = a_scenario(a_capacity("a", (0, 8), (2, 0), (3, 8), (7, 0)), sizing=replicas, warm_replicas=replicas)

        def look(world: World) -> None:
            for replica in world.cloud.replicas.values():
                if replica.notice is not None:
                    found.add((round(replica.notice.noticed_at_s, 3), replica.slot))

        simulate(scenario, seed=5, watch=look)
        return found

    few, more = taken(2), taken(4)
    assert few
    assert few < more


def test_a_run_depends_on_its_seed_alone() -> None:
    scenario = a_scenario(a_capacity("a", (0, 8), (2, 1), (3, 8)), hard_failures_per_h=0.05)
    first, second, other = (simulate(scenario, seed=seed).summary for seed in (1, 1, 2))
    assert replace(first, wall_s=0) == replace(second, wall_s=0)
    assert replace(first, wall_s=0) != replace(other, wall_s=0)


def test_hard_failures_come_without_notice_and_without_refund() -> None:
    run = simulate(a_scenario(a_capacity("a", (0, 8), refund_s=HOUR_S), hard_failures_per_h=0.5)).summary
    assert run.interruptions == run.interruptions_unnoticed > 5
    assert run.refunds_usd == 0


def test_a_launch_that_fails_is_replaced_after_its_timeout() -> None:
    scenario = a_scenario(warm_replicas=0, sizing=2)
    failing = replace(scenario, launch=replace(scenario.launch, failure_ratio=0.5))
    run = simulate(failing).summary
    assert run.launches > 2
    assert run.replicas_mean > 1


def test_generated_lifetimes_follow_the_hazard_of_their_age() -> None:
    hazard = AgeHazard(steps=((0.0, 2.0), (HOUR_S, 0.1)))
    assert age_at(hazard, 1.0) == pytest.approx(HOUR_S / 2)
    assert age_at(hazard, 2.05) == pytest.approx(1.5 * HOUR_S)
    assert exposure_at(hazard, age_at(hazard, 3.0)) == pytest.approx(3.0)


def test_a_burst_takes_a_zone_at_once_and_spares_the_others() -> None:
    hazard = AgeHazard(steps=((0.0, 0.0),), bursts_per_h=0.2, burst_ratio=1.0)
    struck = replace(a_capacity("a"), hazard=hazard)
    scenario = a_scenario(struck, a_capacity("b", price=99.0), sizing=4)
    moments: dict[str, float] = {}

    def look(world: World) -> None:
        for replica in world.cloud.replicas.values():
            if replica.doomed:
                assert replica.offering.model.offering.zone == "a"
                moments.setdefault(replica.replica_id, world.kernel.now_s)

    simulate(scenario, seed=3, watch=look)
    assert len(moments) >= 4
    assert len(set(moments.values())) < len(moments)


def test_warm_replicas_start_where_it_is_cheapest_and_there_is_room() -> None:
    scenario = a_scenario(a_capacity("a", (0, 1), price=5), a_capacity("b", (0, 8), price=9), warm_replicas=4)
    assert warm_start(scenario) == {("spot", "g/a/spot"): 1, ("spot", "g/b/spot"): 3}
    assert simulate(scenario).timeline.held["g/b/spot"][0] == pytest.approx(3)


def test_a_replica_that_died_without_notice_finishes_nothing() -> None:
    """Not even in the moments before anybody knows: what it held goes on elsewhere."""
    taking = a_capacity("a", (0, 6), (2, 1), (4, 6), (6, 0))
    unnoticed = NoticeModel(none_ratio=1.0, late_ratio=0.0)
    scenario = a_scenario(taking, sizing=6, warm_replicas=6, notices=unnoticed, interval_s=2.0)
    # Units of 3 seconds, and a trainer that takes all there are: some would end in the two seconds before anybody knows.
    scenario = replace(
        scenario,
        generation=replace(scenario.generation, tokens_per_s=1000.0),
        trainer=replace(scenario.trainer, train_s=0.5, publish_s=0.5),
        end_s=7 * HOUR_S,
    )
    lost: dict[str, set[int]] = {}

    def look(world: World) -> None:
        for replica in world.cloud.replicas.values():
            if replica.gone:
                held = set(replica.leases)
                assert lost.setdefault(replica.replica_id, held) == held

    assert simulate(scenario, watch=look).summary.interruptions_unnoticed > 5
    assert any(lost.values())
