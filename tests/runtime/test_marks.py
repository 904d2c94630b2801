"""Which nodes are to be marked, emptied and by when, and which notices are recorded beyond losing."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from scaler.act.nodes import NodeMark
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.model.spec import Duties, FleetSpec
from scaler.runtime.marks import NodeMarks, NoMarks, handed_over, marks_of, owned_by
from tests.builders.snapshots import (
    NOW_S,
    a_fleet_spec,
    a_hint,
    a_notice,
    a_pool_spec,
    a_replica,
    a_victim,
    a_world_of,
    planned,
)

GROUP = Duties(taints=True, evicts=True, replaces=True, detaches=True)
MANAGED = Duties(taints=True, evicts=True, replaces=False)
KARPENTER = Duties(replaces=False)
READY, DRAINING, DRAINED, TERMINATING, LAUNCHING = (
    ReplicaPhase.READY,
    ReplicaPhase.DRAINING,
    ReplicaPhase.DRAINED,
    ReplicaPhase.TERMINATING,
    ReplicaPhase.LAUNCHING,
)
SPOT = a_notice()
LATER = a_notice(kind=NoticeKind.SCHEDULED_CHANGE, deadline_s=NOW_S + 90_000)


def a_fleet(duties: Duties = GROUP, *, paused: bool = False) -> FleetSpec:
    return a_fleet_spec(0, pools=[a_pool_spec(duties=duties)], min_replicas=0, lower_after_fresh_s=1e9, paused=paused)


def marks(*replicas: ReplicaView, fleet: FleetSpec | None = None) -> dict[str, NodeMark]:
    """What is wanted of the nodes of these replicas, with the plan that is made for them."""
    snapshot, spec = a_world_of(replicas), fleet or a_fleet()
    return {mark.instance_id: mark for mark in marks_of(spec, snapshot, planned(snapshot, spec))}


@pytest.mark.parametrize(
    ("replica", "in_s", "empty_from_s"),
    [
        pytest.param(a_replica(), None, None, id="a ready one is not marked"),
        pytest.param(a_replica(notice=a_hint()), None, None, id="bug 016: a hint marks nothing"),
        pytest.param(a_replica(notice=SPOT), 120, 110, id="from the plan that drains it"),
        pytest.param(a_replica(phase=LAUNCHING, notice=SPOT), 120, 110, id="one that has not joined, likewise"),
        pytest.param(
            a_replica(phase=DRAINING, notice=SPOT, drain_deadline_s=NOW_S + 119.6, drain_reason="notice"),
            120,
            110,
            id="by the notice, though the drain shows a moment earlier",
        ),
        pytest.param(
            a_replica(phase=DRAINING, notice=SPOT, drain_deadline_s=NOW_S + 40, drain_reason="size_down"),
            40,
            30,
            id="by its drain where that is earlier",
        ),
        pytest.param(
            a_replica(phase=DRAINED, notice=SPOT, drain_deadline_s=NOW_S + 120, drain_reason="notice"),
            120,
            0 - NOW_S,
            id="handed over: emptied at once",
        ),
        pytest.param(
            a_replica(phase=TERMINATING, notice=SPOT, drain_deadline_s=NOW_S + 120),
            120,
            0 - NOW_S,
            id="bug 039: on its way down it stays marked",
        ),
        pytest.param(a_replica(notice=replace(SPOT, deadline_s=NOW_S - 5)), -5, -15, id="too late is late, not never"),
        pytest.param(a_replica(notice=LATER), 120, 0 - NOW_S, id="days ahead: by the drain that is ordered"),
        pytest.param(
            a_replica(phase=DRAINING, notice=LATER, drain_deadline_s=NOW_S + 77, drain_reason="notice"),
            77,
            0 - NOW_S,
            id="and by the one that shows",
        ),
        pytest.param(a_victim(), 60, 0 - NOW_S, id="our own victim"),
        pytest.param(a_victim(phase=TERMINATING), 60, 0 - NOW_S, id="our own victim, ending"),
        pytest.param(a_replica(phase=TERMINATING), None, None, id="one that ends without a drain has no deadline"),
        pytest.param(
            a_replica(phase=DRAINING, drain_reason="sigterm"), None, None, id="a worker that drains by itself"
        ),
        pytest.param(a_victim(drain_deadline_s=float("nan")), None, None, id="a deadline that is none marks nothing"),
    ],
)
def test_what_is_wanted_of_a_node(replica: ReplicaView, in_s: float | None, empty_from_s: float | None) -> None:
    found = marks(replica).get("i-r0")
    told = (None, None) if found is None else (found.deadline_s, found.empty_from_s)
    assert told == (
        None if in_s is None else pytest.approx(NOW_S + in_s),
        None if empty_from_s is None else pytest.approx(NOW_S + empty_from_s),
    )


@pytest.mark.parametrize(
    ("replica", "voluntary"),
    [
        pytest.param(a_replica(notice=SPOT), False, id="the cloud's choice"),
        pytest.param(a_victim(), True, id="ours"),
        pytest.param(a_replica(phase=DRAINED, notice=LATER, drain_deadline_s=NOW_S + 1), True, id="ours, in our time"),
    ],
)
def test_budgets_and_workers_are_spared_where_the_choice_is_ours(replica: ReplicaView, voluntary: bool) -> None:
    assert marks(replica)["i-r0"].voluntary is voluntary


def test_where_others_end_an_announced_one_it_is_no_choice_of_ours() -> None:
    going = a_replica(phase=DRAINED, notice=LATER, drain_deadline_s=NOW_S + 1)
    assert marks(going, fleet=a_fleet(MANAGED))["i-r0"].voluntary is False


@pytest.mark.parametrize(
    ("duties", "taints", "empties"),
    [
        pytest.param(GROUP, True, True, id="a group of ours"),
        pytest.param(MANAGED, True, True, id="a managed group"),
        pytest.param(KARPENTER, False, False, id="Karpenter's"),
        pytest.param(Duties(taints=True), True, False, id="tainted by us, emptied by others"),
    ],
)
def test_who_taints_and_who_evicts(duties: Duties, taints: bool, empties: bool) -> None:
    mark = marks(a_replica(notice=SPOT), fleet=a_fleet(duties))["i-r0"]
    assert (mark.taint, mark.empty_from_s is not None) == (taints, empties)


def test_while_paused_noticed_nodes_are_emptied_and_our_own_victims_are_not() -> None:
    found = marks(a_replica("r0", notice=SPOT), a_victim("r1"), fleet=a_fleet(paused=True))
    assert found["i-r0"].empty_from_s is not None
    assert found["i-r1"].empty_from_s is None


def test_of_nodes_that_go_together_each_carries_only_its_own_notice() -> None:
    found = marks(a_replica(notice=SPOT, instance_ids=("i-r0", "i-peer")))
    assert {name: mark.notice for name, mark in found.items()} == {"i-r0": SPOT, "i-peer": None}
    assert found["i-peer"].deadline_s == found["i-r0"].deadline_s


def test_every_instance_is_owned_but_those_that_are_ending() -> None:
    snapshot = a_world_of([a_replica("r0"), a_victim("r1"), a_replica("r2", TERMINATING)])
    assert owned_by(snapshot).keys() == {"i-r0", "i-r1"}


ORDERED: dict[str, Any] = {"drain_deadline_s": NOW_S + 120, "drain_reason": "notice"}


@dataclass
class Keeper:
    """The part of a `NodeKeeper` that is asked."""

    standing: set[str] = field(default_factory=set)

    def recorded(self, instance_id: str) -> bool:
        return instance_id in self.standing


def node_marks(*standing: str) -> NodeMarks:
    keeper: Any = Keeper(set(standing))
    return NodeMarks(keeper)


@pytest.mark.parametrize(
    ("replica", "marked", "durable", "recorded"),
    [
        pytest.param(a_replica(phase=DRAINING, notice=SPOT, **ORDERED), True, True, True, id="marked and ordered"),
        pytest.param(
            a_replica(phase=DRAINING, notice=SPOT, **ORDERED), False, True, False, id="its node is not marked"
        ),
        pytest.param(
            a_replica(phase=DRAINING, notice=SPOT, **ORDERED), True, False, False, id="the journal is not there"
        ),
        pytest.param(a_replica(notice=SPOT), True, True, False, id="not ordered yet"),
        pytest.param(
            a_replica(phase=DRAINED, worker=None, notice=SPOT, **ORDERED),
            True,
            True,
            True,
            id="nobody registered, ordered",
        ),
        pytest.param(a_replica(phase=DRAINED, notice=SPOT), True, True, True, id="its worker has said goodbye"),
        pytest.param(
            a_replica(phase=DRAINING, notice=replace(SPOT, deadline_s=NOW_S + 30), **ORDERED),
            True,
            True,
            False,
            id="ordered for later than this notice",
        ),
        pytest.param(a_replica(phase=TERMINATING, notice=SPOT), False, False, True, id="bug 010: gone is success"),
        pytest.param(a_replica(notice=a_hint()), False, False, True, id="bug 016: a hint asks for nothing"),
        pytest.param(a_replica(), True, True, False, id="no notice, no message"),
    ],
)
def test_bug_003_bug_004_a_notice_is_recorded_once_nothing_can_lose_it(
    replica: ReplicaView, marked: bool, durable: bool, recorded: bool
) -> None:
    snapshot = a_world_of([replica])
    found = node_marks(*(["i-r0"] if marked else [])).recorded(snapshot, durable=durable)
    assert found == (frozenset({"i-r0"}) if recorded else frozenset())


@pytest.mark.parametrize(
    ("replica", "durable", "recorded"),
    [
        pytest.param(a_replica(phase=DRAINING, notice=SPOT, **ORDERED), True, True, id="ordered and journalled"),
        pytest.param(a_replica(phase=DRAINING, notice=SPOT, **ORDERED), False, False, id="not journalled"),
        pytest.param(a_replica(notice=SPOT), True, False, id="not ordered"),
        pytest.param(a_replica(phase=TERMINATING, notice=SPOT), True, True, id="going"),
    ],
)
def test_without_nodes_ledger_and_journal_record_everything(
    replica: ReplicaView, durable: bool, recorded: bool
) -> None:
    found = NoMarks().recorded(a_world_of([replica]), durable=durable)
    assert found == (frozenset({"i-r0"}) if recorded else frozenset())


def test_bug_002_only_what_holds_no_work_is_handed_over() -> None:
    snapshot: Snapshot = a_world_of(
        [
            a_replica("r0", DRAINING, notice=SPOT),
            a_replica("r1", DRAINED),
            a_replica("r2", TERMINATING),
            a_replica("r3"),
        ]
    )
    assert handed_over(snapshot) == {"i-r1"}
