"""The phase of a replica, from what its pool lists and what the ledger knows."""

from dataclasses import replace

import pytest

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.job import DrainMark, WorkerRecord
from scaler.model.pool import InstanceState
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.replicas import Join, JoinInput
from tests.builders.fleet import a_notice, a_worker, an_instance

MARK = DrainMark(deadline_s=160.0, reason="notice", epoch=1)
ORDER = DrainOrder(
    stage="rollout", pool="pool", replica_id="r-i", instance_ids=("i",), deadline_s=60.0, reason="size_down"
)
NOTHING = JoinInput(
    workers=(), store_ahead_s=100.0, notices=(), orders={}, ending=frozenset(), ready_since_s={}
)  # fmt: skip


@pytest.mark.parametrize(
    ("worker", "order", "phase"),
    [
        pytest.param(None, None, ReplicaPhase.LAUNCHING, id="no worker yet"),
        pytest.param(None, ORDER, ReplicaPhase.DRAINED, id="no worker, and told to go: it holds nothing"),
        pytest.param(a_worker("i", ready=False), None, ReplicaPhase.LOADING, id="registered, not ready"),
        pytest.param(a_worker("i"), None, ReplicaPhase.READY, id="ready"),
        pytest.param(a_worker("i"), ORDER, ReplicaPhase.DRAINING, id="told to go, and it may still lease"),
        pytest.param(a_worker("i", leases=1, drain=MARK), None, ReplicaPhase.DRAINING, id="marked, holding a lease"),
        pytest.param(a_worker("i", drain=MARK), None, ReplicaPhase.DRAINED, id="marked, holding nothing"),
        pytest.param(a_worker("i", gone=True), None, ReplicaPhase.DRAINED, id="it said goodbye"),
        pytest.param(a_worker("other"), None, ReplicaPhase.LAUNCHING, id="somebody else's worker"),
    ],
)
def test_phase(worker: WorkerRecord | None, order: DrainOrder | None, phase: ReplicaPhase) -> None:
    given = replace(NOTHING, workers=(worker,) if worker else (), orders={"r-i": order} if order else {})
    assert Join(given).replica("pool", (an_instance("i"),)).phase is phase


@pytest.mark.parametrize("state", list(InstanceState))
@pytest.mark.parametrize("ending", [frozenset[str](), frozenset({"r-i"})])
def test_what_shuts_down_or_is_being_ended_is_terminating_whatever_its_worker_says(
    state: InstanceState, ending: frozenset[str]
) -> None:
    view = Join(replace(NOTHING, workers=(a_worker("i"),), ending=ending)).replica(
        "pool", (an_instance("i", state=state),)
    )
    expected = state is InstanceState.SHUTTING_DOWN or bool(ending)
    assert (view.phase is ReplicaPhase.TERMINATING) == expected


def test_a_live_worker_wins_over_one_that_left_the_same_instance() -> None:
    old = replace(a_worker("i", gone=True), registered_at_s=50.0)
    for workers in ((old, a_worker("i", leases=2)), (a_worker("i", leases=2), old)):
        view = Join(replace(NOTHING, workers=workers)).replica("pool", (an_instance("i"),))
        assert (view.phase, view.running_units) == (ReplicaPhase.READY, 2)


def test_a_drain_deadline_is_shown_on_the_controllers_clock() -> None:
    view = Join(replace(NOTHING, workers=(a_worker("i", drain=MARK),))).replica("pool", (an_instance("i"),))
    assert (view.drain_deadline_s, view.drain_reason) == (60.0, "notice")


def test_a_notices_mark_is_shown_of_one_that_has_said_goodbye_too() -> None:
    """A new leader knows of the notice by it, until the message is seen again: it does not end what the cloud takes."""
    (noticed, chosen) = (a_worker("i", gone=True, drain=replace(MARK, reason=why)) for why in ("notice", "size_down"))
    view = Join(replace(NOTHING, workers=(noticed,))).replica("pool", (an_instance("i"),))
    assert (view.phase, view.drain_deadline_s, view.drain_reason) == (ReplicaPhase.DRAINED, 60.0, "notice")
    sooner = replace(NOTHING, workers=(noticed,), notices=(a_notice("i", 57.0 - 120.0),))
    assert Join(sooner).replica("pool", (an_instance("i"),)).drain_deadline_s == 57.0, "nobody is left to be told"
    view = Join(replace(NOTHING, workers=(chosen,))).replica("pool", (an_instance("i"),))
    assert (view.phase, view.drain_deadline_s, view.drain_reason) == (ReplicaPhase.DRAINED, None, None)


def test_an_interruption_weighs_more_than_a_hint_and_the_nearest_deadline_most() -> None:
    hint = a_notice("i", 0.0, kind=NoticeKind.REBALANCE_RECOMMENDATION)
    late, early = a_notice("i", 500.0), a_notice("j", 100.0)
    nodes = (an_instance("i"), replace(an_instance("j"), replica_id="r-i"))
    view = Join(replace(NOTHING, notices=(hint, late, early))).replica("pool", nodes)
    assert view.notice == early
    assert view.instance_ids == ("i", "j")
    assert Join(replace(NOTHING, notices=(hint, late))).replica("pool", nodes).notice == late


def test_work_of_a_lost_instance_shows_only_while_it_holds_leases() -> None:
    join = Join(replace(NOTHING, workers=(a_worker("i", leases=2, drain=MARK), a_worker("j"))))
    view = join.orphan("pool", an_instance("i"))
    assert view is not None
    assert (view.phase, view.instance_ids, view.worker) == (ReplicaPhase.TERMINATING, (), "w-i")
    assert (view.drain_deadline_s, view.drain_reason) == (60.0, "notice"), "the mark outlives the notice"
    assert join.orphan("pool", an_instance("j")) is None
    assert join.orphan("pool", an_instance("k")) is None
