"""What must follow from notices, deadlines, finished drains and failed launches."""

import pytest

from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import DrainReplica, TerminateReplica
from scaler.model.snapshot import ReplicaView, Snapshot
from tests.builders.snapshots import (
    NOW_S,
    a_fleet_spec,
    a_hint,
    a_notice,
    a_pool_view,
    a_replica,
    a_snapshot,
    a_stage,
    a_victim,
    a_world_of,
    briefly,
    planned,
    remembering,
    some_signals,
)

PAST_S = NOW_S - 1
LONG_PAST_S = NOW_S - 301
DRAINING, DRAINED, TERMINATING = ReplicaPhase.DRAINING, ReplicaPhase.DRAINED, ReplicaPhase.TERMINATING


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param(a_replica(), [], id="a ready replica is left alone"),
        pytest.param(a_replica(notice=a_notice()), ["drain r0 (notice)"], id="a notice drains"),
        pytest.param(
            a_replica(phase=ReplicaPhase.LAUNCHING, notice=a_notice()),
            ["drain r0 (notice)"],
            id="a notice drains what has not joined yet",
        ),
        pytest.param(a_replica(notice=a_hint()), [], id="a rebalance recommendation is only a hint"),
        pytest.param(
            a_replica(phase=DRAINING, notice=a_notice(), drain_deadline_s=NOW_S + 120.4, drain_reason="notice"),
            [],
            id="a drain that shows by its deadline is not ordered again",
        ),
        pytest.param(
            a_replica(phase=DRAINING, notice=a_notice(), drain_deadline_s=NOW_S + 300, drain_reason="size_down"),
            ["drain r0 (notice)"],
            id="a drain of ours with a later deadline is brought forward",
        ),
        pytest.param(
            a_replica(phase=DRAINING, notice=a_notice(), drain_deadline_s=NOW_S + 30, drain_reason="size_down"),
            [],
            id="an earlier deadline stands",
        ),
        pytest.param(
            a_replica(phase=DRAINING, notice=a_notice(deadline_s=PAST_S), running_units=3),
            ["release r0 (deadline_passed)"],
            id="past its deadline its work is released",
        ),
        pytest.param(
            a_replica(notice=a_notice(deadline_s=PAST_S)),
            ["release r0 (deadline_passed)"],
            id="a notice that comes too late releases at once",
        ),
        pytest.param(
            a_replica(phase=ReplicaPhase.LAUNCHING, notice=a_notice(deadline_s=PAST_S)),
            [],
            id="without a worker there is nothing to release",
        ),
        pytest.param(
            a_replica(phase=DRAINED, notice=a_notice(deadline_s=PAST_S)), [], id="a noticed one is left for the cloud"
        ),
        pytest.param(
            a_replica(phase=DRAINED, notice=a_notice(deadline_s=LONG_PAST_S)),
            ["terminate r0 (reap)"],
            id="one that outlives its deadline by far is reaped",
        ),
        pytest.param(
            a_replica(notice=a_notice(deadline_s=LONG_PAST_S), running_units=2),
            ["release r0 (deadline_passed)"],
            id="one that nobody told to drain has its work released before it is reaped",
        ),
        pytest.param(
            a_replica(phase=ReplicaPhase.LAUNCHING, notice=a_notice(deadline_s=LONG_PAST_S)),
            ["terminate r0 (reap)"],
            id="one whose worker never came is reaped too",
        ),
        pytest.param(
            a_replica(phase=TERMINATING, notice=a_notice(deadline_s=PAST_S), running_units=1),
            ["release r0 (deadline_passed)"],
            id="work on one that is being taken is released",
        ),
        pytest.param(
            a_replica(phase=TERMINATING, notice=a_notice(), running_units=1),
            ["drain r0 (notice)"],
            id="one that others evict at once is told to hand over all the same",
        ),
        pytest.param(
            a_replica(
                phase=TERMINATING,
                notice=a_notice(),
                running_units=1,
                drain_deadline_s=NOW_S + 120,
                drain_reason="notice",
            ),
            [],
            id="and is told once",
        ),
        pytest.param(
            a_replica(phase=TERMINATING, notice=a_notice()),
            [],
            id="one that is evicted and holds nothing needs nothing",
        ),
        pytest.param(
            a_replica(phase=TERMINATING, notice=a_notice(), running_units=1, instance_ids=()),
            [],
            id="one that is gone cannot be told",
        ),
        pytest.param(a_replica(phase=TERMINATING), [], id="one that ends is left alone"),
        pytest.param(
            a_replica(phase=TERMINATING, instance_ids=(), running_units=3),
            ["release r0 (instance_lost)"],
            id="work on one that went without notice is released at once",
        ),
        pytest.param(
            a_replica(phase=TERMINATING, instance_ids=(), running_units=0),
            [],
            id="one that went without notice and held nothing needs nothing",
        ),
        pytest.param(
            a_replica(phase=DRAINED, drain_reason="notice", drain_deadline_s=NOW_S + 30),
            [],
            id="the mark of a notice outlives the notice",
        ),
        pytest.param(a_victim(phase=DRAINED), ["terminate r0 (drained)"], id="our own drain is ended once drained"),
        pytest.param(a_victim(), [], id="our own drain has its time"),
        pytest.param(
            a_victim(drain_deadline_s=PAST_S, running_units=1),
            ["release r0 (deadline_passed)"],
            id="our own drain past its deadline loses its work first",
        ),
        pytest.param(
            a_victim(drain_deadline_s=PAST_S), ["terminate r0 (deadline_passed)"], id="and is ended when it has none"
        ),
        pytest.param(
            a_victim(drain_deadline_s=LONG_PAST_S, running_units=1),
            ["terminate r0 (deadline_passed)"],
            id="work that never lets go does not keep it for ever",
        ),
        pytest.param(
            a_replica(phase=DRAINING, drain_deadline_s=None), [], id="a worker that drains by itself is waited for"
        ),
        pytest.param(
            a_replica(phase=ReplicaPhase.LAUNCHING, launched_at_s=NOW_S - 901),
            ["terminate r0 (replace_failed_launch)"],
            id="a launch that takes too long is ended",
        ),
        pytest.param(
            a_replica(phase=ReplicaPhase.LOADING, launched_at_s=NOW_S - 901),
            ["drain r0 (replace_failed_launch)"],
            id="a worker that never gets ready is drained",
        ),
        pytest.param(
            a_replica(phase=ReplicaPhase.REQUESTED, launched_at_s=NOW_S - 901),
            ["terminate r0 (replace_failed_launch)"],
            id="a request that nothing answers is forgotten",
        ),
        pytest.param(
            a_replica(phase=ReplicaPhase.LOADING, launched_at_s=NOW_S - 899), [], id="a slow launch has its time"
        ),
    ],
)
def test_a_replica_ends_as_it_must(replica: ReplicaView, expected: list[str]) -> None:
    plan = planned(a_world_of([replica]), a_fleet_spec(0, min_replicas=0, lower_after_fresh_s=1e9))

    assert [text for text in briefly(plan.commands) if "r0" in text] == expected


STALE = some_signals(buffered_samples=some_signals().queue_age_s)
NOTICED = a_replica(notice=a_notice())


@pytest.mark.parametrize(
    ("snapshot", "facts"),
    [
        pytest.param(a_world_of([NOTICED]), {"paused": True}, id="paused"),
        pytest.param(a_world_of([NOTICED], signals=STALE), {}, id="signals missing"),
        pytest.param(a_world_of([NOTICED], pools=[a_pool_view(refused="another owner")]), {}, id="pool refused"),
        pytest.param(a_world_of([NOTICED], pools=[a_pool_view(listed_at_s=NOW_S - 999)]), {}, id="list is old"),
    ],
)
def test_notices_are_served_whatever_else_holds(snapshot: Snapshot, facts: dict[str, bool]) -> None:
    plan = planned(snapshot, a_fleet_spec(1, **facts))

    assert "drain r0 (notice)" in briefly(plan.commands)


@pytest.mark.parametrize(
    ("snapshot", "facts"),
    [
        pytest.param(a_snapshot(a_stage([NOTICED]), synced=False), {}, id="state not rebuilt"),
        pytest.param(a_world_of([NOTICED], pools=[a_pool_view(listed_at_s=None)]), {}, id="pool never listed"),
        pytest.param(a_world_of([NOTICED], pools=[]), {}, id="pool not in sight"),
        pytest.param(a_world_of([NOTICED]), {"dry_run": True}, id="dry run"),
    ],
)
def test_nothing_is_done_on_what_is_not_known(snapshot: Snapshot, facts: dict[str, bool]) -> None:
    assert planned(snapshot, a_fleet_spec(1, **facts)).commands == ()


@pytest.mark.parametrize(
    "replica",
    [
        pytest.param(a_victim(phase=DRAINED), id="drained"),
        pytest.param(a_victim(drain_deadline_s=PAST_S), id="overdue"),
        pytest.param(a_replica(phase=DRAINED, notice=a_notice(deadline_s=LONG_PAST_S)), id="to be reaped"),
        pytest.param(a_replica(phase=ReplicaPhase.LAUNCHING, launched_at_s=NOW_S - 901), id="failed launch"),
    ],
)
@pytest.mark.parametrize(
    ("pool", "facts"),
    [
        pytest.param(a_pool_view(), {"paused": True}, id="paused"),
        pytest.param(a_pool_view(refused="another owner"), {}, id="pool refused"),
        pytest.param(a_pool_view(listed_at_s=NOW_S - 999), {}, id="list is old"),
    ],
)
def test_our_own_endings_wait(replica: ReplicaView, pool: object, facts: dict[str, bool]) -> None:
    assert planned(a_world_of([replica], pools=[pool]), a_fleet_spec(1, **facts)).commands == ()


def test_a_notice_carries_its_deadline_its_worker_and_itself() -> None:
    notice = a_notice(deadline_s=NOW_S + 47)

    (command,) = planned(a_world_of([a_replica(notice=notice)]), a_fleet_spec(0)).commands

    assert isinstance(command, DrainReplica)
    assert (command.deadline_s, command.worker, command.instance_ids) == (NOW_S + 47, "w-r0", ("i-r0",))
    assert command.notice == notice


def test_a_notice_without_a_deadline_gets_the_clouds_two_minutes() -> None:
    notice = a_notice(deadline_s=None, noticed_at_s=NOW_S - 20)

    (command,) = planned(a_world_of([a_replica(notice=notice)]), a_fleet_spec(0)).commands

    assert isinstance(command, DrainReplica)
    assert command.deadline_s == NOW_S + 100


def test_all_nodes_of_a_replica_end_together() -> None:
    replica = a_victim(phase=DRAINED, instance_ids=("i-1", "i-2"))

    (command,) = planned(a_world_of([replica]), a_fleet_spec(0)).commands

    assert isinstance(command, TerminateReplica)
    assert command.instance_ids == ("i-1", "i-2")


def test_bug_007_five_hundred_notices_at_once_keep_their_deadlines_apart() -> None:
    replicas = [a_replica(f"r{n:03}", notice=a_notice(deadline_s=NOW_S + 1 + n / 10)) for n in range(500)]

    plan = planned(a_world_of(replicas), a_fleet_spec(0), remembering(desired=0))

    deadlines = {
        command.replica_id: command.deadline_s for command in plan.commands if isinstance(command, DrainReplica)
    }
    assert deadlines == {f"r{n:03}": NOW_S + 1 + n / 10 for n in range(500)}
