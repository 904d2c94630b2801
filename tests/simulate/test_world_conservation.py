"""After every event of any world: no group created, lost or doubled, and the production engine's plans keep their promises."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import buffer_band, rate_match
from scaler.decide.invariants import check_plan
from scaler.model.job import JobSettings
from scaler.model.plan import Plan
from scaler.model.spec import PolicySpec
from scaler.simulate.delays import Delay
from scaler.simulate.ledger import SimulatedLedger
from scaler.simulate.scenario import NoticeModel, Scenario, ServiceStage
from scaler.simulate.world import World, simulate
from tests.builders.scenarios import a_capacity, a_scenario, a_stage_of, static_fleet, with_lengths

SIZINGS = st.one_of(
    st.integers(0, 8).map(static_fleet),
    st.floats(0, 1).map(lambda h: PolicySpec(name="rate_match", params=rate_match.Params(headroom_ratio=h))),
    st.just(PolicySpec(name="buffer_band", params=buffer_band.Params())),
)


@st.composite
def worlds(draw: st.DrawFn) -> Scenario:
    """Small worlds in which much happens in an hour."""
    changes = st.lists(st.tuples(st.floats(0.05, 1), st.integers(0, 6)), max_size=6, unique_by=lambda c: c[0])

    def capacity(zone: str) -> list[tuple[float, int]]:
        return [(0.0, draw(st.integers(0, 6))), *sorted(draw(changes))]

    scenario = a_scenario(
        a_capacity("a", *capacity("a"), refund_s=3600),
        a_capacity("b", *capacity("b"), price=draw(st.floats(1, 30))),
        sizing=draw(SIZINGS),
        hours=1,
        warm_replicas=draw(st.integers(0, 6)),
        warm_depth_samples=draw(st.integers(0, 128)),
        acceptance_ratio=draw(st.floats(0.2, 1)),
        hard_failures_per_h=draw(st.floats(0, 1)),
        notices=NoticeModel(late_ratio=draw(st.floats(0, 0.5)), none_ratio=draw(st.floats(0, 0.5))),
        job=JobSettings(
            group_size=4,
            batch_groups=draw(st.integers(1, 8)),
            batches_per_version=draw(st.integers(1, 3)),
            max_staleness=draw(st.integers(0, 8)),
            max_concurrent=draw(st.sampled_from([32, 64, 4096])),
        ),
    )
    scenario = with_lengths(scenario, 2000, draw(st.floats(0, 1.2)))
    return replace(
        scenario,
        launch=replace(scenario.launch, failure_ratio=draw(st.floats(0, 0.3))),
        generation=replace(scenario.generation, swap_s=draw(st.floats(0, 3)), progress_s=draw(st.floats(0, 60))),
    )


def run_checked(scenario: Scenario, seed: int) -> World:
    """Run, and check the world after every event and every plan as it is made."""
    world = World(scenario, seed)
    seen: list[Plan | None] = [None]

    def look(after: World) -> None:
        assert after.check() == []
        if after.control.last is not None and after.control.last[1] is not seen[0]:
            snapshot, plan = after.control.last
            seen[0] = plan
            assert check_plan(snapshot, scenario.fleet, plan) == []

    world.run(look)
    return world


@settings(max_examples=25)
@given(worlds(), st.integers(0, 3))
def test_whatever_happens_nothing_is_created_lost_or_doubled(scenario: Scenario, seed: int) -> None:
    world = run_checked(scenario, seed)
    summary = world.result().summary
    assert summary.tokens_generated >= summary.tokens_wasted >= 0
    assert summary.tokens_salvaged >= 0
    assert 0 <= summary.trainer_wait_ratio <= 1


@settings(max_examples=25)
@given(worlds(), st.integers(0, 3))
def test_no_world_makes_more_than_its_ready_replicas_can(scenario: Scenario, seed: int) -> None:
    world = World(scenario, seed)
    world.run()
    summary = world.result().summary
    most = scenario.goodput_per_replica_per_s * summary.replicas_mean * scenario.end_s + scenario.draw_slack_samples
    assert summary.samples_credited <= most + 1e-6
    made = summary.samples_trained + summary.end_stock_samples - summary.start_stock_samples
    assert made <= most + 1e-6


@settings(max_examples=10)
@given(worlds(), st.integers(0, 3))
def test_a_run_is_the_same_where_it_tells_how_far_it_is_and_where_it_is_watched(scenario: Scenario, seed: int) -> None:
    told_s: list[float] = []
    alone, telling = (simulate(scenario, seed), simulate(scenario, seed, passed=told_s.append))
    watched = simulate(scenario, seed, watch=lambda _: None)
    assert replace(telling.summary, wall_s=0.0) == replace(alone.summary, wall_s=0.0)
    assert replace(watched.summary, wall_s=0.0) == replace(alone.summary, wall_s=0.0)
    assert telling.timeline == watched.timeline == alone.timeline
    assert len(told_s) > 100
    assert told_s == sorted(told_s)
    assert 0 < told_s[0] < told_s[-1] <= scenario.end_s


def test_every_stage_passes_on_what_it_was_given() -> None:
    rollout, reward = a_capacity("a", (0, 8), (2, 2), (3, 8)), replace(a_capacity("b", (0, 4), (4, 1)), pool="reward")
    scenario = a_scenario(
        rollout, services=(ServiceStage(name="reward", concurrent_samples=8, service=Delay(least_s=12)),)
    )
    stages = (
        a_stage_of([rollout], static_fleet(4)),
        a_stage_of([reward], static_fleet(2), name="reward"),
    )
    scenario = replace(scenario, offerings=(rollout, reward), fleet=replace(scenario.fleet, stages=stages))
    world = run_checked(scenario, 1)
    assert world.result().summary.samples_trained > 30_000
    assert world.services["reward"].completed * 4 >= world.result().summary.samples_trained - 64


def test_a_reward_stage_that_is_too_small_is_the_bottleneck() -> None:
    rollout, reward = a_capacity("a"), replace(a_capacity("b", (0, 1)), pool="reward")
    service = ServiceStage(name="reward", concurrent_samples=4, service=Delay(least_s=8))
    stages = (a_stage_of([rollout], static_fleet(4)), a_stage_of([reward], static_fleet(1), name="reward"))
    scenario = a_scenario(rollout, services=(service,))
    scenario = replace(scenario, offerings=(rollout, reward), fleet=replace(scenario.fleet, stages=stages))
    run = World(scenario, 1)
    run.run()
    assert run.result().summary.samples_trained == pytest.approx(12 * 3600 / 8 * 4, rel=0.03)


def test_what_a_lost_replica_leaves_of_the_concurrency_serves_the_others_at_once() -> None:
    """Four groups at once for twelve lanes, and replicas that fail without notice: each failure leaves lanes and work."""
    scenario = a_scenario(
        a_capacity("a", (0, 6)),
        sizing=3,
        hours=2,
        hard_failures_per_h=4.0,
        job=JobSettings(group_size=4, batch_groups=2, max_staleness=8, max_concurrent=16),
    )

    world = run_checked(with_lengths(scenario, 2000, 1.0), 0)

    assert world.result().summary.kills_at_work > 5


def test_a_group_that_grows_too_stale_while_it_is_served_counts_as_nothing_more() -> None:
    rollout, reward = a_capacity("a"), replace(a_capacity("b", (0, 2)), pool="reward")
    service = ServiceStage(name="reward", concurrent_samples=4, service=Delay(least_s=30))
    stages = (a_stage_of([rollout], static_fleet(4)), a_stage_of([reward], static_fleet(2), name="reward"))
    job = JobSettings(group_size=4, batch_groups=4, batches_per_version=4, max_staleness=0)
    scenario = a_scenario(rollout, services=(service,), hours=2, job=job, acceptance_ratio=0.5)
    scenario = replace(scenario, offerings=(rollout, reward), fleet=replace(scenario.fleet, stages=stages))

    world = run_checked(scenario, 0)

    assert world.result().summary.samples_dropped > 100


def test_a_group_trained_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a ledger that forgets to clear its batch is caught at once."""

    def forgetful(self: SimulatedLedger) -> None:
        self.trained += len(self.training)
        self.released()

    monkeypatch.setattr(SimulatedLedger, "acknowledge", forgetful)
    with pytest.raises(AssertionError):
        run_checked(a_scenario(hours=1), 0)
