"""What each kind of notice asks for, phase by phase, by who ends and replaces the instance: drained, detached, ended, reaped."""

from dataclasses import replace

import pytest

from scaler.decide.endings import DETACH_BEFORE_S
from scaler.decide.timing import HURRY_S
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import BINDING, NoticeKind
from scaler.model.plan import DetachReplica, DrainReplica, TerminateReplica
from scaler.model.snapshot import ReplicaView
from scaler.model.spec import Duties, FleetSpec
from tests.builders.snapshots import (
    NOW_S,
    a_fleet_spec,
    a_notice,
    a_pool_spec,
    a_pool_view,
    a_replica,
    a_world_of,
    briefly,
    planned,
)

GROUP = Duties(taints=True, evicts=True, replaces=True, detaches=True)
"""An Auto Scaling group."""
MANAGED = Duties(taints=True, evicts=True, replaces=False, detaches=False)
"""An EKS node group."""
KARPENTER = Duties(replaces=False)
LOCAL = Duties()
BY_ITSELF = sorted(BINDING - {NoticeKind.SCHEDULED_CHANGE, NoticeKind.NODE_DISRUPTED})
ANNOUNCED = [NoticeKind.SCHEDULED_CHANGE, NoticeKind.NODE_DISRUPTED]
READY, DRAINING, DRAINED, LAUNCHING, TERMINATING = (
    ReplicaPhase.READY,
    ReplicaPhase.DRAINING,
    ReplicaPhase.DRAINED,
    ReplicaPhase.LAUNCHING,
    ReplicaPhase.TERMINATING,
)
DAYS_S = 200_000.0


def a_fleet(duties: Duties, **facts: object) -> FleetSpec:
    quiet: dict[str, object] = {"min_replicas": 0, "lower_after_fresh_s": 1e9}
    return a_fleet_spec(0, pools=[a_pool_spec(duties=duties)], **(quiet | facts))


def noticed(kind: NoticeKind, phase: ReplicaPhase, *, in_s: float = 120.0, **facts: object) -> ReplicaView:
    """A replica with a notice; if it is on its way out, its drain shows as a notice's does."""
    going: dict[str, object] = {}
    if phase in (DRAINING, DRAINED):
        drain_s = in_s if kind in BY_ITSELF else min(in_s, 120.0)
        going = {"drain_deadline_s": NOW_S + drain_s, "drain_reason": "notice"}
    notice = a_notice(kind=kind, deadline_s=NOW_S + in_s, noticed_at_s=NOW_S + in_s - 120)
    return a_replica(phase=phase, notice=notice, **(going | facts))  # type: ignore[arg-type]


def told(replica: ReplicaView, fleet: FleetSpec, **world: object) -> list[str]:
    plan = planned(a_world_of([replica], **world), fleet)
    return [text for text in briefly(plan.commands) if "r0" in text]


@pytest.mark.parametrize("duties", [GROUP, MANAGED, KARPENTER, LOCAL], ids=["group", "managed", "karpenter", "local"])
@pytest.mark.parametrize("kind", sorted(BINDING))
@pytest.mark.parametrize("phase", [READY, LAUNCHING, ReplicaPhase.LOADING])
@pytest.mark.parametrize("facts", [{}, {"paused": True}], ids=["acting", "paused"])
def test_every_binding_notice_drains_whoever_replaces(
    duties: Duties, kind: NoticeKind, phase: ReplicaPhase, facts: dict[str, bool]
) -> None:
    assert told(noticed(kind, phase), a_fleet(duties, **facts)) == ["drain r0 (notice)"]


@pytest.mark.parametrize("duties", [GROUP, MANAGED, KARPENTER, LOCAL], ids=["group", "managed", "karpenter", "local"])
@pytest.mark.parametrize("kind", sorted(BINDING))
@pytest.mark.parametrize("phase", [READY, DRAINED, DRAINING])
def test_a_dry_run_does_nothing_about_any(duties: Duties, kind: NoticeKind, phase: ReplicaPhase) -> None:
    assert told(noticed(kind, phase), a_fleet(duties, dry_run=True)) == []


@pytest.mark.parametrize("phase", [READY, LAUNCHING])
def test_bug_016_bug_017_a_hint_neither_drains_nor_detaches_nor_ends(phase: ReplicaPhase) -> None:
    hint = a_notice(kind=NoticeKind.REBALANCE_RECOMMENDATION, deadline_s=None)
    for duties in (GROUP, MANAGED, KARPENTER, LOCAL):
        assert told(a_replica(phase=phase, notice=hint), a_fleet(duties)) == []


LEAVES = ["detach r0 (leaves_group)"]


@pytest.mark.parametrize("kind", BY_ITSELF)
@pytest.mark.parametrize("facts", [{}, {"paused": True}], ids=["acting", "paused"])
@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param({"phase": DRAINED}, LEAVES, id="drained: it leaves its group"),
        pytest.param({"phase": DRAINED, "worker": None}, LEAVES, id="no worker ever came: likewise"),
        pytest.param({"phase": DRAINED, "attached": False}, [], id="it has left: the cloud takes it"),
        pytest.param({"phase": DRAINING, "running_units": 3}, [], id="it still hands over"),
        pytest.param(
            {"phase": DRAINING, "running_units": 3, "in_s": DETACH_BEFORE_S + 0.5}, [], id="up to ten seconds before"
        ),
        pytest.param(
            {"phase": DRAINING, "running_units": 3, "in_s": DETACH_BEFORE_S}, LEAVES, id="ten seconds before it leaves"
        ),
        pytest.param({"phase": DRAINING, "running_units": 3, "in_s": 0.5}, LEAVES, id="and a moment before"),
        pytest.param(
            {"phase": DRAINING, "running_units": 3, "in_s": 5.0, "attached": False}, [], id="it has left with work left"
        ),
        pytest.param(
            {"phase": DRAINING, "running_units": 3, "in_s": -1.0},
            ["release r0 (deadline_passed)"],
            id="past its deadline its work goes first",
        ),
        pytest.param({"phase": DRAINED, "in_s": -1.0}, LEAVES, id="late is better than replaced"),
        pytest.param({"phase": DRAINED, "in_s": -1.0, "attached": False}, [], id="left, and not gone yet"),
        pytest.param({"phase": READY, "in_s": 5.0}, ["drain r0 (notice)"], id="told first, however late"),
        pytest.param({"phase": TERMINATING}, [], id="it goes already"),
    ],
)
def test_in_a_group_that_would_replace_it_a_taken_replica_leaves_in_time(
    kind: NoticeKind, replica: dict[str, object], expected: list[str], facts: dict[str, bool]
) -> None:
    assert told(noticed(kind, **replica), a_fleet(GROUP, **facts)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", BY_ITSELF)
@pytest.mark.parametrize("duties", [MANAGED, KARPENTER, LOCAL], ids=["managed", "karpenter", "local"])
@pytest.mark.parametrize("in_s", [120.0, 5.0, -1.0])
def test_where_groups_are_not_ours_to_leave_nothing_is_detached(kind: NoticeKind, duties: Duties, in_s: float) -> None:
    assert told(noticed(kind, DRAINED, in_s=in_s), a_fleet(duties)) == []


def test_a_notice_that_only_its_mark_tells_of_lets_it_leave_too() -> None:
    marked = a_replica(phase=DRAINED, drain_reason="notice", drain_deadline_s=NOW_S + 60)
    assert told(marked, a_fleet(GROUP)) == LEAVES
    hinted = replace(marked, notice=a_notice(kind=NoticeKind.REBALANCE_RECOMMENDATION, deadline_s=None))
    assert told(hinted, a_fleet(GROUP)) == LEAVES


def test_our_own_victim_never_leaves_its_group_by_detaching() -> None:
    victim = a_replica(phase=DRAINED, drain_reason="size_down", drain_deadline_s=NOW_S + 60)
    assert told(victim, a_fleet(GROUP)) == ["terminate r0 (drained)"]


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        pytest.param(a_pool_view(refused="another owner"), LEAVES, id="refused: a notice is served"),
        pytest.param(a_pool_view(listed_at_s=NOW_S - 999), LEAVES, id="list is old: likewise"),
        pytest.param(a_pool_view(listed_at_s=None), [], id="never listed: nothing is known"),
    ],
)
def test_leaving_needs_a_list_and_nothing_else(pool: object, expected: list[str]) -> None:
    replica = noticed(NoticeKind.SPOT_INTERRUPTION, DRAINED)
    assert told(replica, a_fleet(GROUP), pools=[pool]) == expected


def test_one_whose_worker_has_said_goodbye_is_not_told_to_drain_again_and_leaves() -> None:
    """As a new leader finds it, or a notice that is told once more: the ledger has no mark of who is gone."""
    replica = noticed(NoticeKind.SPOT_INTERRUPTION, DRAINED, drain_deadline_s=None, drain_reason=None)
    assert told(replica, a_fleet(GROUP)) == LEAVES
    assert told(replica, a_fleet(MANAGED)) == []


def test_all_instances_of_a_replica_leave_together() -> None:
    replica = noticed(NoticeKind.SPOT_INTERRUPTION, DRAINED, instance_ids=("i-1", "i-2"))
    (command,) = planned(a_world_of([replica]), a_fleet(GROUP)).commands
    assert isinstance(command, DetachReplica)
    assert command.instance_ids == ("i-1", "i-2")


@pytest.mark.parametrize(
    ("in_s", "phase", "looks_in_s"),
    [
        pytest.param(14.0, DRAINING, 4.0, id="the moment to leave"),
        pytest.param(8.0, READY, HURRY_S, id="told so late that it must leave at once"),
        pytest.param(8.0, DRAINING, HURRY_S, id="leaving, until it shows"),
        pytest.param(300.0, DRAINING, 10.0, id="no hurry"),
    ],
)
def test_it_looks_again_in_time_to_leave(in_s: float, phase: ReplicaPhase, looks_in_s: float) -> None:
    replica = noticed(NoticeKind.SPOT_INTERRUPTION, phase, in_s=in_s, running_units=2)
    assert planned(a_world_of([replica]), a_fleet(GROUP)).look_again_in_s == pytest.approx(looks_in_s)


@pytest.mark.parametrize("kind", ANNOUNCED)
@pytest.mark.parametrize("duties", [GROUP, LOCAL], ids=["group", "local"])
@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param({"phase": READY}, ["drain r0 (notice)"], id="drained days ahead"),
        pytest.param({"phase": DRAINING, "running_units": 2}, [], id="it has a victim's time"),
        pytest.param({"phase": DRAINED}, ["terminate r0 (drained)"], id="handed over: ended, not detached"),
        pytest.param(
            {"phase": DRAINING, "running_units": 2, "drain_deadline_s": NOW_S - 1},
            ["release r0 (deadline_passed)"],
            id="its drain's deadline counts, not the announced end",
        ),
        pytest.param(
            {"phase": DRAINING, "running_units": 0, "drain_deadline_s": NOW_S - 1},
            ["terminate r0 (deadline_passed)"],
            id="and then it is ended",
        ),
        pytest.param(
            {"phase": DRAINING, "running_units": 2, "drain_deadline_s": NOW_S - 301},
            ["terminate r0 (deadline_passed)"],
            id="work that never lets go does not keep it",
        ),
        pytest.param(
            {"phase": READY, "in_s": -1.0}, ["release r0 (deadline_passed)"], id="heard of too late: released at once"
        ),
        pytest.param({"phase": LAUNCHING, "in_s": -400.0}, ["terminate r0 (reap)"], id="it outlived its end: reaped"),
    ],
)
def test_one_that_is_announced_to_go_is_drained_and_ended_by_us(
    kind: NoticeKind, duties: Duties, replica: dict[str, object], expected: list[str]
) -> None:
    given = {"in_s": DAYS_S} | replica
    assert told(noticed(kind, **given), a_fleet(duties)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ANNOUNCED)
@pytest.mark.parametrize("duties", [MANAGED, KARPENTER], ids=["managed", "karpenter"])
@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param({"phase": READY}, ["drain r0 (notice)"], id="drained"),
        pytest.param({"phase": DRAINED}, [], id="handed over: its owner ends it"),
        pytest.param(
            {"phase": DRAINING, "running_units": 2, "drain_deadline_s": NOW_S - 1},
            ["release r0 (deadline_passed)"],
            id="its work is released in its own time",
        ),
        pytest.param({"phase": DRAINED, "in_s": -301.0}, ["terminate r0 (reap)"], id="one that outlives it is reaped"),
    ],
)
def test_where_others_replace_it_others_end_it(
    kind: NoticeKind, duties: Duties, replica: dict[str, object], expected: list[str]
) -> None:
    given = {"in_s": DAYS_S} | replica
    assert told(noticed(kind, **given), a_fleet(duties)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ANNOUNCED)
@pytest.mark.parametrize(
    ("facts", "world"),
    [
        pytest.param({"paused": True}, {}, id="paused"),
        pytest.param({}, {"pools": [a_pool_view(refused="another owner")]}, id="refused"),
    ],
)
def test_while_paused_an_announced_one_is_drained_and_released_and_not_ended(
    kind: NoticeKind, facts: dict[str, bool], world: dict[str, object]
) -> None:
    def commands(phase: ReplicaPhase, **more: object) -> list[str]:
        return told(noticed(kind, phase, in_s=DAYS_S, **more), a_fleet(GROUP, **facts), **world)

    assert commands(READY) == ["drain r0 (notice)"]
    assert commands(DRAINED) == []
    assert commands(DRAINING, running_units=1, drain_deadline_s=NOW_S - 1) == ["release r0 (deadline_passed)"]


def test_bug_015_a_state_change_is_due_now_and_waits_for_no_drain() -> None:
    stopped = noticed(NoticeKind.STATE_CHANGE, READY, in_s=0.0, running_units=4)
    plan = planned(a_world_of([stopped]), a_fleet_spec(1, pools=[a_pool_spec(duties=GROUP)]))
    assert sorted(briefly(plan.commands)) == ["launch g/a/spot (size_up)", "release r0 (deadline_passed)"]


def test_bug_018_an_announced_end_without_a_time_drains_in_the_default_time() -> None:
    notice = a_notice(kind=NoticeKind.SCHEDULED_CHANGE, deadline_s=None, noticed_at_s=NOW_S)
    (command,) = planned(a_world_of([a_replica(notice=notice)]), a_fleet(GROUP)).commands
    assert isinstance(command, DrainReplica)
    assert command.deadline_s == NOW_S + 120.0


@pytest.mark.parametrize("phase", [DRAINED, DRAINING, READY, LAUNCHING])
@pytest.mark.parametrize("kind", BY_ITSELF)
@pytest.mark.parametrize("duties", [GROUP, MANAGED, KARPENTER, LOCAL], ids=["group", "managed", "karpenter", "local"])
def test_what_the_cloud_takes_is_never_ended_by_us_before_it_is_long_overdue(
    kind: NoticeKind, phase: ReplicaPhase, duties: Duties
) -> None:
    for in_s in (120.0, 5.0, -1.0, -299.0):
        plan = planned(a_world_of([noticed(kind, phase, in_s=in_s)]), a_fleet(duties))
        assert not [command for command in plan.commands if isinstance(command, TerminateReplica)]


def test_what_comes_by_itself_counts_and_is_nobodys_to_withdraw() -> None:
    coming = [
        a_replica(f"replacement-of:r{n}", ReplicaPhase.REQUESTED, comes_by_itself=True, launched_at_s=0.0)
        for n in range(3)
    ]
    steady = planned(a_world_of(coming), a_fleet_spec(3))
    assert briefly(steady.commands) == []
    assert steady.stages[0].requested == 3
    lowered = planned(a_world_of([*coming, a_replica("r7")]), a_fleet_spec(2))
    assert briefly(lowered.commands) == ["drain r7 (size_down)"], "lowered by what is ours"
