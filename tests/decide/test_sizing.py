"""From a wished size to commands: guard rails, holds, refills, memory."""

from dataclasses import replace
from typing import Any

import pytest

from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import DrainReplica, LaunchReplica, Memory, ReasonCode
from scaler.model.reading import MISSING, Reading
from tests.builders.snapshots import (
    LONG_AGO_S,
    NOW_S,
    a_fleet_spec,
    a_notice,
    a_pool_spec,
    a_pool_view,
    a_replica,
    a_snapshot,
    a_stage,
    a_stage_spec,
    a_victim,
    a_world_of,
    an_offering,
    banded,
    briefly,
    clamped,
    fresh,
    planned,
    rate_matched,
    remembering,
    some_replicas,
    some_signals,
    static_of,
)

REQUESTED, LAUNCHING, LOADING = ReplicaPhase.REQUESTED, ReplicaPhase.LAUNCHING, ReplicaPhase.LOADING


@pytest.mark.parametrize(
    ("there", "wanted", "rails", "remembered", "size", "clamps"),
    [
        pytest.param(2, 5, {}, {}, 5, [], id="raised as wished"),
        pytest.param(5, 2, {}, {}, 2, [], id="lowered as wished"),
        pytest.param(3, 3, {}, {}, 3, [], id="steady"),
        pytest.param(2, 0, {"min_replicas": 1}, {}, 1, ["floor 0 -> 1"], id="floor"),
        pytest.param(2, 9, {"max_replicas": 4}, {}, 4, ["ceiling 9 -> 4"], id="ceiling"),
        pytest.param(
            2,
            3,
            {"min_replicas": 6, "max_replicas": 4},
            {},
            4,
            ["floor 3 -> 6", "ceiling 6 -> 4"],
            id="ceiling over floor",
        ),
        pytest.param(2, 9, {"max_step_up": 3}, {}, 5, ["step_up 9 -> 5"], id="step up"),
        pytest.param(9, 2, {"max_step_down": 3}, {}, 6, ["step_down 2 -> 6"], id="step down"),
        pytest.param(
            2,
            5,
            {"cooldown_up_s": 60},
            {"last_down_at_s": NOW_S - 59},
            2,
            ["cooldown_up 5 -> 2"],
            id="too soon to raise",
        ),
        pytest.param(2, 5, {"cooldown_up_s": 60}, {"last_up_at_s": NOW_S - 60}, 5, [], id="late enough to raise"),
        pytest.param(
            2,
            2,
            {"cooldown_up_s": 60},
            {"desired": 1, "last_down_at_s": NOW_S - 3},
            2,
            [],
            id="too soon to raise, and a lowering that was not carried out and is not wanted any more is none",
        ),
        pytest.param(
            3,
            9,
            {"max_step_up": 1},
            {"desired": 1},
            3,
            ["step_up 9 -> 3"],
            id="what is there and wanted again stays, whatever the step",
        ),
        pytest.param(
            5,
            2,
            {"cooldown_down_s": 60},
            {"last_up_at_s": NOW_S - 59},
            5,
            ["cooldown_down 2 -> 5"],
            id="too soon to lower",
        ),
        pytest.param(
            5,
            2,
            {"lower_after_fresh_s": 60},
            {"fresh_since_s": NOW_S - 59},
            5,
            ["not_fresh_long_enough 2 -> 5"],
            id="signals not fresh for long",
        ),
        pytest.param(
            0,
            5,
            {"min_replicas": 3, "cooldown_up_s": 60, "max_step_up": 1},
            {"last_up_at_s": NOW_S},
            3,
            ["step_up 5 -> 3"],
            id="the floor waits for no step or cool-down",
        ),
        pytest.param(
            10,
            2,
            {"disruption_budget_ratio": 0.25},
            {},
            7,
            ["disruption_budget 2 -> 7"],
            id="disruption budget, rounded up",
        ),
        pytest.param(10, 2, {"disruption_budget_ratio": 0.0}, {}, 10, ["disruption_budget 2 -> 10"], id="no budget"),
        pytest.param(2, 9, {"max_spend_usd_per_h": 5.0}, {}, 5, ["spend 9 -> 5"], id="spend"),
        pytest.param(
            7, 7, {"max_spend_usd_per_h": 5.0}, {}, 5, ["spend 7 -> 5"], id="over the spend cap it is lowered"
        ),
        pytest.param(
            12,
            9,
            {"max_replicas": 4, "max_step_down": 2},
            {},
            10,
            ["ceiling 9 -> 4", "step_down 4 -> 10"],
            id="bug 85: a lowered ceiling is reached in steps",
        ),
        pytest.param(
            7,
            7,
            {"max_spend_usd_per_h": 2.0, "max_step_down": 2},
            {},
            5,
            ["spend 7 -> 2", "step_down 2 -> 5"],
            id="bug 85: and so is a lowered spend cap",
        ),
    ],
)
def test_rails_have_the_last_word(
    there: int, wanted: int, rails: dict[str, Any], remembered: dict[str, Any], size: int, clamps: list[str]
) -> None:
    plan = planned(a_world_of(some_replicas(there)), a_fleet_spec(wanted, **rails), remembering(**remembered))

    assert (plan.stages[0].desired, plan.stages[0].requested) == (size, size)
    assert clamped(plan) == clamps


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        pytest.param(MISSING, ReasonCode.HOLD_SIGNAL_MISSING, id="bug 80: missing"),
        pytest.param(Reading(5, NOW_S - 31), ReasonCode.HOLD_SIGNAL_STALE, id="bug 81: stale"),
        pytest.param(fresh(float("nan")), ReasonCode.HOLD_SIGNAL_INVALID, id="bug 84: not a number"),
        pytest.param(fresh(float("inf")), ReasonCode.HOLD_SIGNAL_INVALID, id="bug 84: infinite"),
        pytest.param(fresh(-1), ReasonCode.HOLD_SIGNAL_INVALID, id="bug 84: negative"),
    ],
)
@pytest.mark.parametrize("sizing", [rate_matched(), banded()], ids=["rate_match", "buffer_band"])
def test_a_depth_that_is_no_depth_holds(reading: Reading, code: ReasonCode, sizing: Any) -> None:
    snapshot = a_world_of(some_replicas(5), signals=some_signals(buffered_samples=reading))

    plan = planned(snapshot, a_fleet_spec(sizing))

    assert (plan.commands, plan.stages[0].desired, plan.stages[0].reason.code) == ((), 5, code)
    assert dict(plan.memory.stages)["rollout"].fresh_since_s is None


@pytest.mark.parametrize(
    ("reading", "fresh_since_s"),
    [
        pytest.param(fresh(5), NOW_S - 40, id="fresh ones stay fresh"),
        pytest.param(Reading(5, NOW_S - 31), None, id="stale ones begin anew"),
    ],
)
def test_freshness_is_judged_also_while_a_pool_cannot_be_listed(reading: Reading, fresh_since_s: float | None) -> None:
    stage = a_stage(
        some_replicas(5),
        signals=some_signals(buffered_samples=reading),
        pools=[a_pool_view(listed_at_s=NOW_S - 100)],
    )
    before = remembering(fresh_since_s=NOW_S - 40, desired=5)

    plan = planned(a_snapshot(stage), a_fleet_spec(rate_matched()), before)

    assert plan.stages[0].reason.code is ReasonCode.HOLD_PARTIAL_LIST
    after = dict(plan.memory.stages)["rollout"]
    assert after == replace(dict(before.stages)["rollout"], fresh_since_s=fresh_since_s)


def test_zero_is_a_depth_like_any_other() -> None:
    snapshot = a_world_of(some_replicas(5), signals=some_signals(buffered_samples=fresh(0)))

    assert planned(snapshot, a_fleet_spec(banded())).stages[0].desired == 6


def test_the_floor_is_kept_while_signals_are_missing() -> None:
    snapshot = a_world_of(some_replicas(1), signals=some_signals(buffered_samples=MISSING))

    plan = planned(snapshot, a_fleet_spec(rate_matched(), min_replicas=3))

    assert (plan.stages[0].requested, plan.stages[0].reason.code) == (3, ReasonCode.HOLD_SIGNAL_MISSING)
    assert clamped(plan) == ["floor 1 -> 3"]


def test_holding_keeps_a_fleet_above_its_new_ceiling_and_refills_none_of_it() -> None:
    snapshot = a_world_of(some_replicas(7), signals=some_signals(buffered_samples=MISSING))

    plan = planned(snapshot, a_fleet_spec(rate_matched(), max_replicas=4), remembering(desired=9))

    assert (plan.commands, plan.stages[0].requested) == ((), 7)


@pytest.mark.parametrize("signals", [some_signals(), some_signals(buffered_samples=MISSING)], ids=["fresh", "missing"])
def test_a_loss_without_notice_is_refilled_at_once(signals: Any) -> None:
    snapshot = a_world_of(some_replicas(3), signals=signals)
    spec = a_fleet_spec(banded(), cooldown_up_s=1e6, max_step_up=1)

    plan = planned(snapshot, spec, remembering(desired=5, observed=5, last_up_at_s=NOW_S))

    assert briefly(plan.commands) == ["launch g/a/spot (replace_interrupted)"] * 2
    assert dict(plan.memory.stages)["rollout"].last_up_at_s == NOW_S


def test_a_noticed_replica_is_replaced_at_once_and_elsewhere() -> None:
    cheap, dear = an_offering("a", price=1.0), an_offering("b", price=2.0)
    replicas = (a_replica("r0", notice=a_notice()), a_replica("r1"))
    snapshot = a_world_of(replicas, pools=[a_pool_view("pool", cheap, dear)])
    spec = a_fleet_spec(2, pools=[a_pool_spec("pool", cheap, dear)], cooldown_up_s=1e6)

    plan = planned(snapshot, spec, remembering(desired=2, observed=2, last_up_at_s=NOW_S))

    assert briefly(plan.commands) == ["drain r0 (notice)", "launch g/b/spot (replace_interrupted)"]


def test_two_hundred_notices_end_at_the_target_not_above_it() -> None:
    replicas = [a_replica(f"r{n:03}", notice=a_notice() if n < 200 else None) for n in range(300)]
    memory = remembering(desired=300, observed=300)
    plan = planned(a_world_of(replicas), a_fleet_spec(300, max_replicas=300), memory)

    assert sum(isinstance(command, LaunchReplica) for command in plan.commands) == 200
    assert sum(isinstance(command, DrainReplica) for command in plan.commands) == 200


def test_a_failed_launch_is_replaced() -> None:
    replicas = (a_replica("r0", LAUNCHING, launched_at_s=NOW_S - 901), a_replica("r1"))

    plan = planned(a_world_of(replicas), a_fleet_spec(2), remembering(desired=2, observed=2))

    assert briefly(plan.commands) == [
        "terminate r0 (replace_failed_launch)",
        "launch g/a/spot (replace_failed_launch)",
    ]
    assert plan.stages[0].reason.code is ReasonCode.REPLACE_FAILED_LAUNCH


@pytest.mark.parametrize(
    ("phase", "workers_since_s", "failed"),
    [
        pytest.param(LAUNCHING, NOW_S - 901, True, id="the ledger was there all the time"),
        pytest.param(LAUNCHING, NOW_S, False, id="nobody can see its worker now"),
        pytest.param(LAUNCHING, NOW_S - 899, False, id="nor could its worker register until lately"),
        pytest.param(LOADING, NOW_S, False, id="nor can be seen that it became ready"),
        pytest.param(REQUESTED, NOW_S, True, id="a request has no worker: its pool's list is enough"),
    ],
)
def test_a_launch_is_not_given_up_for_time_in_which_the_ledger_was_away(
    phase: ReplicaPhase, workers_since_s: float, failed: bool
) -> None:
    stage = replace(a_stage([a_replica("r0", phase, launched_at_s=NOW_S - 901)]), workers_since_s=workers_since_s)

    plan = planned(a_snapshot(stage), a_fleet_spec(1), remembering(desired=1, observed=1))

    assert bool(plan.commands) == failed
    assert plan.stages[0].requested == 1


@pytest.mark.parametrize("phase", [REQUESTED, LAUNCHING, LOADING])
def test_what_is_on_its_way_counts(phase: ReplicaPhase) -> None:
    assert planned(a_world_of(some_replicas(3, phase)), a_fleet_spec(3)).commands == ()


@pytest.mark.parametrize("phase", [ReplicaPhase.DRAINING, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING])
def test_bug_056b_what_is_on_its_way_out_does_not_count(phase: ReplicaPhase) -> None:
    plan = planned(a_world_of(some_replicas(2, phase)), a_fleet_spec(2))

    assert sum(isinstance(command, LaunchReplica) for command in plan.commands) == 2


def test_a_victim_that_is_needed_again_is_taken_back_before_anything_is_launched() -> None:
    replicas = (a_replica("r0"), a_victim("r1"), a_victim("r2", unpublished_tokens=9))

    assert briefly(planned(a_world_of(replicas), a_fleet_spec(2)).commands) == ["undrain r2 (size_up)"]
    assert briefly(planned(a_world_of(replicas), a_fleet_spec(4)).commands) == [
        "undrain r2 (size_up)",
        "undrain r1 (size_up)",
        "launch g/a/spot (size_up)",
    ]


@pytest.mark.parametrize(
    "replica",
    [
        pytest.param(a_victim(notice=a_notice()), id="noticed meanwhile"),
        pytest.param(a_victim(drain_deadline_s=NOW_S), id="at its deadline"),
        pytest.param(a_victim(phase=ReplicaPhase.DRAINED), id="drained"),
        pytest.param(a_victim(drain_reason="replace_failed_launch"), id="never got ready"),
        pytest.param(a_victim(drain_reason="sigterm"), id="drained by somebody else"),
    ],
)
def test_what_must_go_is_not_taken_back(replica: Any) -> None:
    assert "undrain r0 (size_up)" not in briefly(planned(a_world_of([replica]), a_fleet_spec(1)).commands)


def test_a_paused_fleet_scales_and_repairs_nothing_and_says_what_it_would_want() -> None:
    plan = planned(a_world_of(some_replicas(2)), a_fleet_spec(7, paused=True), remembering(desired=4))

    assert (plan.commands, clamped(plan)) == ((), ["hold 7 -> 2"])
    assert plan.stages[0].reason.code is ReasonCode.PAUSED
    assert dict(plan.memory.stages)["rollout"].desired is None


def test_a_dry_run_explains_and_does_nothing_and_starts_from_what_is_there_when_it_ends() -> None:
    snapshot = a_world_of(some_replicas(2))
    dry = planned(snapshot, a_fleet_spec(7, dry_run=True), remembering(last_up_at_s=LONG_AGO_S))
    real = planned(snapshot, a_fleet_spec(7, max_step_up=1), dry.memory)

    assert (dry.commands, dry.stages[0].desired) == ((), 7)
    assert dry.stages[0].reason.message.startswith("dry run, 5 commands withheld (size_up): ")
    assert [getattr(command, "token", "") for command in real.commands] == ["fleet.rollout.0"]


def test_a_stage_out_of_sight_holds_and_keeps_its_memory() -> None:
    plan = planned(a_snapshot(a_stage(name="other")), a_fleet_spec(3), remembering(desired=3))

    assert (plan.commands, plan.stages[0].reason.code) == ((), ReasonCode.HOLD_PARTIAL_LIST)
    assert dict(plan.memory.stages)["rollout"].desired == 3


@pytest.mark.parametrize(
    ("pools", "code"),
    [
        ([a_pool_view(listed_at_s=None)], ReasonCode.HOLD_PARTIAL_LIST),
        ([a_pool_view(listed_at_s=NOW_S - 31)], ReasonCode.HOLD_PARTIAL_LIST),
        ([a_pool_view(refused="scaling policies are set")], ReasonCode.HOLD_POOL_REFUSED),
    ],
    ids=["never listed", "list is old", "refused"],
)
def test_a_pool_that_cannot_be_trusted_holds(pools: Any, code: ReasonCode) -> None:
    plan = planned(a_world_of(some_replicas(2), pools=pools), a_fleet_spec(5))

    assert (plan.commands, plan.stages[0].reason.code) == ((), code)


def test_tokens_go_on_from_memory_and_past_every_token_in_sight() -> None:
    replicas = (a_replica("r0", launch_token="fleet.rollout.11"), a_replica("r1", launch_token="other.rollout.99"))

    plan = planned(a_world_of(replicas), a_fleet_spec(4), Memory(next_intent=5))

    tokens = [command.token for command in plan.commands if isinstance(command, LaunchReplica)]
    assert (tokens, plan.memory.next_intent) == (["fleet.rollout.12", "fleet.rollout.13"], 14)


def test_growth_is_stamped_and_starts_the_cool_down_of_lowering() -> None:
    spec = a_fleet_spec(5, cooldown_down_s=300.0)
    plan = planned(a_world_of(some_replicas(3)), spec, remembering(desired=3))
    later = planned(a_world_of(some_replicas(5)), a_fleet_spec(4, cooldown_down_s=300.0), plan.memory)

    assert dict(plan.memory.stages)["rollout"].last_up_at_s == NOW_S
    assert (later.commands, clamped(later)) == ((), ["cooldown_down 4 -> 5"])


def test_one_spend_cap_holds_over_all_stages() -> None:
    spec = a_fleet_spec(stages=(a_stage_spec(static_of(4)), a_stage_spec(static_of(4), name="reward")), fleet_spend=5.0)
    snapshot = a_snapshot(a_stage(), a_stage(name="reward"))

    plan = planned(snapshot, spec)

    assert [(stage.requested, stage.spend_usd_per_h) for stage in plan.stages] == [(4, 4.0), (1, 1.0)]
    assert [command.token for command in plan.commands if isinstance(command, LaunchReplica)][-1] == "fleet.reward.4"


def test_over_the_fleets_cap_the_last_stage_gives_way_first() -> None:
    spec = a_fleet_spec(stages=(a_stage_spec(static_of(4)), a_stage_spec(static_of(4), name="reward")), fleet_spend=5.0)
    snapshot = a_snapshot(a_stage(some_replicas(4)), a_stage(some_replicas(4), name="reward"))

    assert [stage.requested for stage in planned(snapshot, spec).stages] == [4, 1]


@pytest.mark.parametrize(
    ("facts", "wished", "memory", "expected_s"),
    [
        pytest.param({}, 1, {}, 10.0, id="the interval at the latest"),
        pytest.param({"notice": a_notice(deadline_s=NOW_S + 3)}, 1, {}, 3.0, id="a deadline"),
        pytest.param(
            {"notice": a_notice(deadline_s=NOW_S + 3), "phase": ReplicaPhase.DRAINED, "drain_deadline_s": NOW_S + 3},
            1,
            {},
            10.0,
            id="nothing follows the deadline of one that has handed over",
        ),
        pytest.param(
            {
                "notice": a_notice(deadline_s=NOW_S - 298),
                "phase": ReplicaPhase.DRAINED,
                "drain_deadline_s": NOW_S - 298,
            },
            1,
            {},
            2.0,
            id="but its reap does, where it is still there",
        ),
        pytest.param({"phase": LAUNCHING, "launched_at_s": NOW_S - 896}, 1, {}, 4.0, id="a launch time-out"),
        pytest.param({}, 0, {"last_up_at_s": NOW_S - 295.0}, 5.0, id="the end of a cool-down"),
        pytest.param({}, 1, {"last_up_at_s": NOW_S - 295.0}, 10.0, id="no end of a cool-down that held nothing back"),
        pytest.param({}, 2, {"last_up_at_s": NOW_S - 1.0}, 4.0, id="the end of the other cool-down"),
        pytest.param({}, 0, {"fresh_since_s": NOW_S - 1798.0}, 2.0, id="signals fresh for long enough"),
        pytest.param({}, 1, {"fresh_since_s": NOW_S - 1798.0}, 10.0, id="signals that held nothing back"),
        pytest.param({"notice": a_notice(deadline_s=NOW_S + 0.001)}, 1, {}, 0.1, id="never a busy loop"),
    ],
)
def test_it_looks_again_when_time_alone_changes_something(
    facts: dict[str, Any], wished: int, memory: dict[str, Any], expected_s: float
) -> None:
    spec = a_fleet_spec(wished, cooldown_up_s=5.0, cooldown_down_s=300.0, lower_after_fresh_s=1800.0)

    plan = planned(a_world_of([a_replica(**facts)]), spec, remembering(desired=1, **memory))

    assert plan.look_again_in_s == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("there", "wished", "rails", "expected_s"),
    [
        pytest.param(1, 9, {"max_step_up": 2}, 5.0, id="a step up"),
        pytest.param(9, 1, {"max_step_down": 2}, 7.0, id="a step down"),
        pytest.param(9, 1, {"disruption_budget_ratio": 0.2}, 7.0, id="the disruption budget"),
    ],
)
def test_what_is_left_of_the_way_is_gone_when_the_cool_down_of_this_decision_ends(
    there: int, wished: int, rails: dict[str, Any], expected_s: float
) -> None:
    spec = a_fleet_spec(wished, cooldown_up_s=5.0, cooldown_down_s=7.0, **rails)

    plan = planned(a_world_of(some_replicas(there)), spec, remembering(desired=there))

    assert plan.commands
    assert plan.look_again_in_s == pytest.approx(expected_s)
