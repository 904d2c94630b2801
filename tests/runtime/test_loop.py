"""The loop in a small world: nothing is decided too early, launched twice, forgotten, or left to wait for something else."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scaler.act.base import LaunchOutcome, LaunchResult
from scaler.decide.endings import endings
from scaler.decide.timing import AFTER_REFUSAL_S
from scaler.decide.world import StageWorld
from scaler.ledger.contract import NOT_CONFIGURED, StaleEpoch
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.job import DrainMark
from scaler.model.plan import LaunchReplica, Memory, ReleaseReplicaWork, StageMemory, TerminateReplica, UndrainReplica
from scaler.model.reading import Freshness
from scaler.model.work import ReleaseReason
from scaler.runtime.journal import Journal, Turn
from tests.builders.controller import World, a_controller
from tests.builders.fleet import WHY, a_drain, a_launch, a_notice, a_spec, a_worker, an_end, an_instance


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def no_token_launches_twice(world: World) -> Iterator[None]:
    """The invariant behind every launch."""
    yield
    assert len(world.pool.tokens) == len(set(world.pool.tokens.values()))


async def test_nothing_is_synced_before_ledger_and_pools_have_answered_once(world: World) -> None:
    world.ledger.away = world.pool.away = True
    async with a_controller(world) as running:
        await running.turn()
        world.pool.away = False
        await running.turn()
        world.ledger.away = False
        await running.turn()
        world.ledger.away = world.pool.away = True
        await running.turn()
    assert [snapshot.synced for snapshot in world.script.seen] == [False, False, True, True], (
        "once rebuilt, a store that goes away makes signals old and no more"
    )


async def test_bug_082_readings_of_a_ledger_that_went_away_grow_old_and_keep_their_values(world: World) -> None:
    async with a_controller(world) as running:
        await running.turn()
        before = running.snapshot.stages[0].signals.buffered_samples
        world.ledger.away = True
        for _ in range(4):
            await running.turn()
        after = running.snapshot.stages[0].signals.buffered_samples
    assert after == before
    assert after.freshness(running.snapshot.now_s, 30.0) is Freshness.STALE


async def test_a_ledger_that_was_away_for_long_tells_of_workers_anew_from_its_return_on(world: World) -> None:
    async with a_controller(world) as running:
        await running.turn()
        began_s = running.snapshot.stages[0].workers_since_s
        world.ledger.away = True
        for _ in range(3):
            await running.turn()
            assert running.snapshot.stages[0].workers_since_s == began_s, "a moment's absence is no gap"
        await running.turn()
        assert running.snapshot.stages[0].workers_since_s == running.snapshot.now_s
        world.ledger.away = False
        await running.turn()
        back_s = running.snapshot.now_s
        await running.turn()
    assert running.snapshot.stages[0].workers_since_s == back_s > (began_s or 0.0)


async def test_a_pool_that_went_away_keeps_its_replicas_and_the_time_of_its_list(world: World) -> None:
    world.pool.put(an_instance("i"))
    async with a_controller(world) as running:
        await running.turn()
        listed_at_s = running.snapshot.stages[0].pools[0].listed_at_s
        world.pool.away = True
        await running.turn()
        assert running.snapshot.stages[0].pools[0].listed_at_s == listed_at_s
        assert running.phases == {"r-i": ReplicaPhase.LAUNCHING}


async def test_a_launch_counts_from_its_decision_until_an_instance_answers_it(world: World) -> None:
    world.script.plans = [(a_launch("t1"),)]
    world.pool.away = False
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        assert running.phases == {"r-i-1": ReplicaPhase.LAUNCHING}
        assert running.replicas["r-i-1"].launch_token == "t1"
        await running.turn()
        assert running.journal.intents() == ()
    assert world.pool.launches == ["t1"]


async def test_a_launch_whose_answer_was_lost_is_repeated_with_its_token_and_launches_once(world: World) -> None:
    world.script.plans = [(a_launch("t1"),)]
    world.pool.lose_answers = True
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        assert list(running.phases) == ["r-i-1"], "one replica, not a request beside its instance"
    assert len(world.pool.instances) == 1


async def test_an_intent_is_durable_before_its_launch_and_replayed_before_the_first_decision(world: World) -> None:
    world.script.plans = [(a_launch("t1"),)]
    world.pool.lose_answers = True
    async with a_controller(world) as first:
        await first.turn()
        assert [intent.token for intent in first.journal.intents()] == ["t1"]
    world.pool.lose_answers = False
    decided_before = len(world.script.seen)
    async with a_controller(world) as second:
        assert world.pool.launches == ["t1", "t1"]
        assert len(world.script.seen) == decided_before
        await second.turn()
        assert list(second.phases) == ["r-i-1"]


async def test_a_launch_that_never_left_is_carried_out_by_the_next_controller(world: World) -> None:
    world.script.plans = [(a_launch("t1"),)]
    async with a_controller(world) as first:
        await first.turn()
        world.pool.away = True
    world.pool = type(world.pool)(world.clock)
    async with a_controller(world) as second:
        await second.turn()
        assert set(second.phases) == {"r-i-1"}


async def test_a_launch_of_long_ago_that_the_next_controller_carries_out_is_not_given_up_before_lists_show_it(
    world: World,
) -> None:
    """It would be replaced, and come all the same: one too many."""
    world.script.plans = [(a_launch("t1"),)]
    async with a_controller(world) as first:
        await first.turn()
        world.pool.away = True
    world.clock.pass_time(world.spec.stages[0].pools[0].launch_timeout_s)
    world.pool = type(world.pool)(world.clock, lags=True)
    async with a_controller(world) as second:
        await second.turn()
        assert second.phases == {"t1": ReplicaPhase.REQUESTED}
        stage, now_s = second.snapshot.stages[0], second.snapshot.now_s
        assert endings(StageWorld(spec=world.spec.stages[0], view=stage, now_s=now_s, paused=False)) == ()
    assert world.pool.launches == ["t1"]


async def test_a_restart_counts_launch_tokens_on_and_raises_the_epoch(world: World) -> None:
    world.script.plans = [(a_launch("t1"), a_launch("t2"))]
    async with a_controller(world) as first:
        await first.turn()
        epoch = first.snapshot.leader_epoch
        began_at = world.script.memories[0].next_intent
    async with a_controller(world) as second:
        await second.turn()
        assert second.snapshot.leader_epoch > epoch
    assert world.script.memories[-1].next_intent == began_at + 2


async def test_a_new_controller_does_not_take_the_freshness_of_signals_from_the_one_before_it(world: World) -> None:
    changed_at_s = world.clock.now_s() - 100
    before = StageMemory(last_down_at_s=changed_at_s, fresh_since_s=changed_at_s, desired=3)
    journal = Journal(world.folder / "journal.sqlite")
    journal.write(Turn(at_s=changed_at_s, memory=Memory(stages=(("rollout", before),), next_intent=7)))
    journal.close()
    async with a_controller(world) as running:
        await running.turn()
    after = Memory(stages=(("rollout", replace(before, fresh_since_s=None)),), next_intent=7)
    assert world.script.memories == [after], "it has not looked at them yet; all else it remembers"


async def test_a_lost_journal_neither_repeats_tokens_nor_lowers_the_epoch(world: World) -> None:
    world.script.plans = [(a_launch("t1"),)]
    async with a_controller(world) as first:
        await first.turn()
        epoch, next_intent = first.snapshot.leader_epoch, world.script.memories[-1].next_intent + 1
    for file in world.folder.glob("journal*"):
        file.unlink()
    async with a_controller(world) as second:
        await second.turn()
        assert second.snapshot.leader_epoch > epoch
        assert world.script.memories[-1].next_intent >= next_intent


async def test_a_refused_launch_is_over_and_remembered_until_one_succeeds(world: World) -> None:
    world.script.plans = [(a_launch("t1"),), (a_launch("t2"),), (a_launch("t3"),)]
    world.pool.refuse = LaunchResult.INSUFFICIENT_CAPACITY
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        assert running.phases == {}
        await running.turn()
        offering = running.snapshot.stages[0].pools[0].offerings[0]
        assert offering.refusals == 2
        assert offering.refused_at_s is not None
        assert running.count("headrace_launch_refusals_total", pool="pool", result="insufficient_capacity") == 3
        world.pool.refuse = None
        world.script.plans = [(a_launch("t4"),)]
        await running.turn()
        await running.turn()
        assert running.snapshot.stages[0].pools[0].offerings[0].refusals == 0
        assert running.journal.intents() == ()


async def test_replicas_that_go_before_they_are_ready_are_counted_once_whether_a_list_showed_them_or_not(
    world: World,
) -> None:
    world.script.plans = [(a_launch("t1"),), (a_launch("t2"),), (), (a_launch("t3"),), (), (a_launch("t4"),)]
    async with a_controller(world) as running:
        await running.turn()
        world.pool.instances.clear()
        await running.turn()
        assert running.phases == {}, "t1 was never seen"
        await running.turn()
        assert running.phases == {"r-i-2": ReplicaPhase.LAUNCHING}
        world.pool.instances.clear()
        await running.turn()
        offering = running.snapshot.stages[0].pools[0].offerings[0]
        assert offering.refusals == 0, "two are ordinary interruptions"
        world.pool.instances.clear()
        await running.turn()
        offering = running.snapshot.stages[0].pools[0].offerings[0]
        assert offering.refused_because == "3 replicas in a row went before they were ready"
        await running.turn()
        world.pool.instances.clear()
        await running.turn()
        offering = running.snapshot.stages[0].pools[0].offerings[0]
        assert (offering.refusals, offering.refused_because[0]) == (2, "4"), "the row goes on, and so does the back-off"
        await running.turn()
        lost = [
            each["subject"]
            for turn in running.journal.decisions(9)
            for each in turn["outcomes"]
            if each["outcome"] == "lost"
        ]
        assert sorted(lost) == ["t1", "t3", "t4"], "explain says so"


async def test_a_launch_whose_pool_was_away_meanwhile_is_held_against_no_offering(world: World) -> None:
    world.script.plans = [(a_launch("t1"), a_launch("t2"), a_launch("t3"))]
    async with a_controller(world) as running:
        await running.turn()
        world.pool.away = True
        await running.turn()
        world.pool.away = False
        world.pool.instances.clear()
        await running.turn()
        assert running.phases == {}
        assert running.snapshot.stages[0].pools[0].offerings[0].refusals == 0


async def test_a_drain_is_told_to_the_ledger_on_the_ledgers_clock(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=2))
    world.ledger.ahead_s = 1000.0
    deadline_s = world.clock.now_s() + 60
    world.script.plans = [(a_drain("i", deadline_s),)]
    async with a_controller(world) as running:
        await running.turn()
        assert world.ledger.calls == [("drain", "w-i", deadline_s + 1000.0, "size_down")]
        await running.turn()
        view = running.replicas["r-i"]
        assert (view.phase, view.drain_deadline_s) == (ReplicaPhase.DRAINING, deadline_s)
        assert len(world.ledger.calls) == 1
        assert running.journal.orders() == ()


async def test_a_drain_waits_for_its_worker_to_register_also_over_a_restart(world: World) -> None:
    world.pool.put(an_instance("i"))
    notice = a_notice("i", world.clock.now_s())
    world.script.plans = [(a_drain("i", world.clock.now_s() + 120, notice=notice),)]
    async with a_controller(world) as first:
        await first.turn()
        await first.turn()
        assert first.phases == {"r-i": ReplicaPhase.DRAINED}, "no worker, so nothing to hand over"
        assert world.ledger.calls == []
    world.ledger.put(a_worker("i", leases=1))
    async with a_controller(world) as second:
        await second.turn()
        assert [call[:2] for call in world.ledger.calls] == [("drain", "w-i")]
        await second.turn()
        assert second.phases == {"r-i": ReplicaPhase.DRAINING}


async def test_a_drain_outlives_a_ledger_that_is_away(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    world.script.plans = [(), (a_drain("i", world.clock.now_s() + 120),)]
    async with a_controller(world) as running:
        await running.turn()
        world.ledger.away = True
        await running.turn()
        await running.turn()
        assert running.phases == {"r-i": ReplicaPhase.DRAINING}, "ordered, whatever the ledger knows"
        world.ledger.away = False
        await running.turn()
    assert [call[:2] for call in world.ledger.calls] == [("drain", "w-i")]


async def test_a_notice_after_a_drain_of_our_own_brings_the_deadline_forward(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    now_s = world.clock.now_s()
    world.script.plans = [(a_drain("i", now_s + 600),), (a_drain("i", now_s + 120, notice=a_notice("i", now_s)),)]
    async with a_controller(world) as running:
        for _ in range(3):
            await running.turn()
        assert running.replicas["r-i"].drain_deadline_s == now_s + 120


async def test_a_replica_hands_over_and_is_ended_once_it_holds_no_lease(world: World) -> None:
    world.pool.put(an_instance("i"))
    mark = DrainMark(deadline_s=world.clock.now_s() + 60, reason="size_down", epoch=1)
    world.ledger.put(a_worker("i", leases=1, drain=mark))
    world.script.plans = [(an_end("i"),), (), (an_end("i"),)]
    async with a_controller(world) as running:
        await running.turn()
        assert world.pool.ended == [], "it still held a lease"
        world.ledger.put(a_worker("i", leases=0, drain=mark))
        await running.turn()
        assert running.phases == {"r-i": ReplicaPhase.DRAINED}
        await running.turn()
        await running.turn()
        assert running.count("headrace_command_outcomes_total", kind="terminate", outcome="precondition") == 1
        assert running.count("headrace_command_outcomes_total", kind="terminate", outcome="done") == 1
    assert world.pool.ended == ["i"]
    assert running.phases == {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("away", id="the ledger is away, so nobody knows whether it holds leases"),
        pytest.param("other", id="the instance belongs to another replica now"),
        pytest.param("gone", id="the instance is gone already"),
        pytest.param("joined", id="its worker has registered meanwhile, and may lease at any moment"),
    ],
)
async def test_nothing_is_ended_unless_the_precondition_holds_now(world: World, change: str) -> None:
    world.pool.put(an_instance("i"))
    async with a_controller(world) as running:
        await running.turn()
        world.script.plans = [(an_end("i"),)]
        world.ledger.away = change == "away"
        if change == "other":
            world.pool.put(replace(an_instance("i"), replica_id="somebody else"))
        if change == "joined":
            world.ledger.put(a_worker("i"))
        if change == "gone":
            world.pool.instances.clear()
        await running.turn()
    assert world.pool.ended == []


async def test_a_request_without_an_instance_is_forgotten_by_its_token(world: World) -> None:
    world.pool.away = True
    forget = TerminateReplica(stage="rollout", pool="pool", replica_id="t1", instance_ids=(), reason=WHY)
    async with a_controller(world) as running:
        world.pool.away = False
        await running.turn()
        world.pool.away = True
        world.script.plans = [(a_launch("t1"),), (forget,)]
        await running.turn()
        await running.turn()
        assert running.phases == {"t1": ReplicaPhase.REQUESTED}
        await running.turn()
        assert running.phases == {}
        assert running.journal.intents() == ()


async def test_taking_a_drain_back_and_releasing_work_go_to_the_ledger(world: World) -> None:
    world.pool.put(an_instance("i"), an_instance("j"))
    world.ledger.put(a_worker("i", leases=1), a_worker("j", leases=2))
    undrain = UndrainReplica(stage="rollout", pool="pool", replica_id="r-i", worker="w-i", reason=WHY)
    release = ReleaseReplicaWork(stage="rollout", pool="pool", replica_id="r-j", worker="w-j", reason=WHY)
    world.script.plans = [(a_drain("i", world.clock.now_s() + 60),), (undrain, release)]
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        await running.turn()
        assert running.phases == {"r-i": ReplicaPhase.READY, "r-j": ReplicaPhase.DRAINED}
    assert world.ledger.calls[1:] == [("undrain", "w-i"), ("release", "w-j", ReleaseReason.WORKER_LOST)]


async def test_what_an_earlier_controller_still_sends_is_refused_from_the_first_command_on(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        ours = running.controller.readout.leader_epoch
    assert world.ledger.epoch == ours, "although nothing was to be done in the ledger"
    assert world.ledger.calls == []


async def test_a_newer_controller_in_the_ledger_ends_this_one(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    world.script.plans = [(a_drain("i", world.clock.now_s() + 60),)]
    world.ledger.epoch = 2**40
    with pytest.raises(BaseExceptionGroup) as caught:
        async with a_controller(world) as running:
            await running.turn()
    assert caught.value.subgroup(StaleEpoch) is not None


async def test_one_failing_command_stops_none_of_the_others(world: World) -> None:
    world.pool.put(an_instance("i"), an_instance("j"))
    mark = DrainMark(deadline_s=world.clock.now_s() + 60, reason="size_down", epoch=1)
    world.ledger.put(a_worker("i", drain=mark), a_worker("j", leases=1))
    world.script.plans = [(a_launch("t1"), a_drain("j", world.clock.now_s() + 60), an_end("i"))]

    async def launch(command: LaunchReplica) -> LaunchOutcome:
        raise ZeroDivisionError

    world.pool.launch = launch  # type: ignore[method-assign]
    async with a_controller(world) as running:
        await running.turn()
        assert running.count("headrace_command_outcomes_total", kind="launch", outcome="broken") == 1
        assert running.count("headrace_command_outcomes_total", kind="drain", outcome="done") == 1
    assert world.pool.ended == ["i"]


async def test_a_launch_that_takes_long_holds_up_no_drain(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    release = asyncio.Event()
    launch = world.pool.launch

    async def slow(command: LaunchReplica) -> LaunchOutcome:
        await release.wait()
        return await launch(command)

    world.pool.launch = slow  # type: ignore[method-assign]
    world.script.plans = [(a_launch("t1"),), (a_drain("i", world.clock.now_s() + 60),)]
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        assert [call[:2] for call in world.ledger.calls] == [("drain", "w-i")]
        assert running.phases["t1"] is ReplicaPhase.REQUESTED
        release.set()
        await running.turn()
        await running.turn()
        assert "r-i-1" in running.phases
    assert world.pool.launches == ["t1"]


async def test_a_dry_run_carries_nothing_out_and_leaves_nothing_behind(world: World) -> None:
    world.spec = a_spec(dry_run=True)
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i"))
    world.script.plans = [(a_launch("t1"), a_drain("i", world.clock.now_s() + 60), an_end("i"))]
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        assert running.phases == {"r-i": ReplicaPhase.READY}
        assert running.journal.intents() == ()
    assert (world.pool.launches, world.ledger.calls, world.pool.ended) == ([], [], [])


async def test_a_new_configuration_applies_at_the_next_turn(world: World) -> None:
    async with a_controller(world) as running:
        await running.turn()
        world.spec, world.digest = a_spec(interval_s=3.0), "other"
        assert (await running.turn()).look_again_in_s == 3.0
        assert running.journal.decisions(1)[0]["config"] == "other"


async def test_bug_014_an_instance_lost_without_a_word_marks_its_offering_and_leaves_its_work_to_be_released(
    world: World,
) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=3))
    async with a_controller(world) as running:
        await running.turn()
        world.pool.instances.clear()
        lost_at_s = world.clock.now_s()
        await running.turn()
        view = running.replicas["r-i"]
        assert (view.phase, view.instance_ids, view.running_units) == (ReplicaPhase.TERMINATING, (), 3)
        assert running.snapshot.stages[0].pools[0].offerings[0].reclaiming_at_s == lost_at_s
        world.ledger.put(a_worker("i", leases=0))
        await running.turn()
        assert running.phases == {}


async def test_a_replica_that_lost_one_of_its_nodes_is_one_replica(world: World) -> None:
    world.pool.put(an_instance("i"), replace(an_instance("j"), replica_id="r-i"))
    world.ledger.put(a_worker("i", leases=3))
    async with a_controller(world) as running:
        await running.turn()
        del world.pool.instances["i"]
        await running.turn()
        assert [view.instance_ids for view in running.snapshot.stages[0].replicas] == [("j",)]


async def test_an_instance_that_we_ended_marks_nothing(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.script.plans = [(), (an_end("i"),)]
    async with a_controller(world) as running:
        for _ in range(3):
            await running.turn()
        assert running.phases == {}
        assert running.snapshot.stages[0].pools[0].offerings[0].reclaiming_at_s is None


async def test_a_notice_is_on_its_replica_and_its_offering_and_a_hint_marks_no_offering(world: World) -> None:
    world.pool.put(an_instance("i"), an_instance("j"))
    hint = a_notice("j", world.clock.now_s(), kind=NoticeKind.REBALANCE_RECOMMENDATION)
    world.notices.notices = (hint,)
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        assert running.snapshot.stages[0].pools[0].offerings[0].reclaiming_at_s is None
        notice = a_notice("i", world.clock.now_s())
        world.notices.notices = (notice, notice, hint)
        await running.turn()
        assert (running.replicas["r-i"].notice, running.replicas["r-j"].notice) == (notice, hint)
        await running.turn()
        assert running.snapshot.stages[0].pools[0].offerings[0].reclaiming_at_s == notice.noticed_at_s


async def test_a_notice_of_one_that_is_gone_is_acknowledged_after_a_while(world: World) -> None:
    """A group's hook tells of an end that we called for, and the instance may be gone before anybody has looked."""
    world.pool.put(an_instance("i"))
    async with a_controller(world) as running:
        await running.turn()
        world.pool.instances.clear()
        world.notices.notices = (a_notice("i", world.clock.now_s(), kind=NoticeKind.LIFECYCLE_HOOK),)
        await running.turn()
        assert "i" not in world.notices.let_go, "a list may leave one out for a moment"
        await running.turn()
        assert "i" in world.notices.let_go


async def test_a_notice_source_that_breaks_keeps_its_notices_and_stops_nothing(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.notices.notices = (a_notice("i", world.clock.now_s()),)
    async with a_controller(world) as running:
        await running.turn()
        world.notices.broken = True
        await running.turn()
        assert running.replicas["r-i"].notice is not None


async def test_the_time_from_notice_to_drain_mark_is_measured_once(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    notice = a_notice("i", world.clock.now_s() - 1.5)
    world.script.plans = [(a_drain("i", world.clock.now_s() + 100, notice=notice),)]
    async with a_controller(world) as running:
        for _ in range(3):
            await running.turn()
        assert running.count("headrace_notice_drain_mark_seconds_count") == 1
        assert running.count("headrace_notice_drain_mark_seconds_sum") == pytest.approx(1.5)


async def test_the_loop_waits_its_interval_and_wakes_early_once_for_a_burst(world: World) -> None:
    async with asyncio.TaskGroup() as group, a_controller(world, start=False) as running:
        task = group.create_task(running.controller.run(running.group))
        await world.clock.settle()
        turns = len(world.script.seen)
        await world.clock.advance(9.0)
        assert len(world.script.seen) == turns
        for _ in range(5):
            running.controller.wake.set()
        await world.clock.settle()
        assert len(world.script.seen) == turns + 1
        await world.clock.advance(10.0)
        assert len(world.script.seen) == turns + 2
        task.cancel()


async def test_refusals_bring_one_turn_soon_that_asks_elsewhere(world: World) -> None:
    world.spec = a_spec(interval_s=60.0)
    world.script.plans = [(a_launch("t1"), a_launch("t2"))]
    world.pool.refuse = LaunchResult.INSUFFICIENT_CAPACITY
    async with asyncio.TaskGroup() as group, a_controller(world, start=False) as running:
        task = group.create_task(running.controller.run(running.group))
        await world.clock.advance(AFTER_REFUSAL_S - 0.1)
        assert len(world.script.seen) == 1
        await world.clock.advance(0.2)
        assert len(world.script.seen) == 2
        assert running.snapshot.stages[0].pools[0].offerings[0].refusals == 1
        await world.clock.advance(9.0)
        assert len(world.script.seen) == 2
        task.cancel()


async def test_a_store_that_is_away_at_the_start_is_waited_for_with_back_off(world: World) -> None:
    world.ledger.away = True
    async with asyncio.TaskGroup() as group, a_controller(world, start=False) as running:
        task = group.create_task(running.controller.run(running.group))
        await world.clock.advance(60.0)
        tries = len(world.script.seen)
        assert 5 <= tries <= 12
        world.ledger.away = False
        await world.clock.advance(15.0)
        assert running.snapshot.synced
        task.cancel()


async def test_a_job_that_nobody_configured_is_said_once_with_who_can_and_seen_once_somebody_has(world: World) -> None:
    """A dry run sets no rules, and may wait for the trainer for days."""
    world.ledger.refuses = NOT_CONFIGURED
    async with asyncio.TaskGroup() as group, a_controller(world, start=False) as running:
        with capture_logs() as logs:
            task = group.create_task(running.controller.run(running.group))
            await world.clock.advance(300.0)
        told = [(entry["event"], entry.get("error", entry.get("ledger"))) for entry in logs]
        assert [event for event, why in told if NOT_CONFIGURED in str(why)] == [
            "ledger_refuses",
            "waiting_for_first_answers",
        ]
        world.ledger.refuses = None
        await world.clock.advance(15.0)
        assert running.snapshot.synced
        task.cancel()


async def test_a_ledger_that_refuses_is_told_from_one_that_is_away_and_each_is_said_once(world: World) -> None:
    def none() -> None:
        world.ledger.away, world.ledger.refuses = False, None

    def away() -> None:
        world.ledger.away = True

    def denies() -> None:
        world.ledger.away, world.ledger.refuses = False, "the store denies access: NOPERM"

    async with a_controller(world) as running:
        with capture_logs() as logs:
            for turn in (none, away, none, denies, none, away, denies, away):
                turn()
                await running.turn()
                await running.turn()
            assert not running.controller.readout.ledger_refuses
            denies()
            await running.turn()
        readout = running.controller.readout
    assert [entry["event"] for entry in logs if entry["event"].startswith("ledger_")] == [
        "ledger_away", "ledger_back", "ledger_refuses", "ledger_back", "ledger_away", "ledger_refuses", "ledger_away",
        "ledger_refuses",
    ]  # fmt: skip
    assert (readout.ledger_ok, readout.ledger_refuses) == (False, True)
    assert readout.ledger_error == "LedgerRefused: the store denies access: NOPERM"


async def test_what_became_of_commands_is_kept_with_their_decision(world: World) -> None:
    world.script.plans = [(a_launch("t1"),)]
    async with a_controller(world) as running:
        await running.turn()
        await running.turn()
        await running.turn()
        quiet, launched = running.journal.decisions(10)
    assert launched["outcomes"][0] | {"at_s": 0} == {
        "kind": "launch", "subject": "t1", "outcome": "done", "message": "i-1", "at_s": 0,
    }  # fmt: skip
    assert quiet["ticks"] == 2, "turns that only repeat are one entry"
