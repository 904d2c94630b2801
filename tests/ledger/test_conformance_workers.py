"""Promises of workers, drains, controllers, history and compaction."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from scaler.ledger.audit import audit
from scaler.ledger.contract import CommitOutcome, Ledger, StaleEpoch, UnitState
from scaler.ledger.history import EventKind, HistoryEvent
from scaler.model.job import DrainMark, WorkerStatus
from scaler.model.work import ReleaseReason
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    groups,
    identity,
    lease_all,
    release_of,
    run_units,
    settings,
    states,
    version,
)
from tests.ledger.factories import START_S, LedgerFactory


def test_a_worker_is_known_by_what_it_says_of_itself(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.put_units(groups(2))
    leases = lease_all(ledger, "w1", 3)
    ledger.commit("w1", [commit_of(leases[0])])
    ledger_factory.now_s += 3
    status = WorkerStatus(ready=True, version=2, capacity_units=8, running_units=2, unpublished_tokens=5)
    ledger.heartbeat("w1", [], status, TTL_S)

    (record,) = ledger.workers()

    assert (record.identity, record.incarnation, record.status) == (identity("w1"), 1, status)
    assert (record.registered_at_s, record.last_seen_at_s) == (START_S, START_S + 3)
    assert (record.leases, record.committed_samples, record.drain, record.gone) == (2, 1, None, False)


def test_a_new_process_of_the_same_name_supersedes_the_old_one(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 2))], READY, TTL_S)
    ledger.drain("w1", START_S + 60, "spot", 1)

    assert ledger.register(identity("w1")) == 2

    (record,) = ledger.workers()
    assert (record.leases, record.drain, record.committed_samples, record.incarnation) == (0, None, 0, 2)
    assert ledger.heartbeat("w1", [beat_of(lease)], READY, TTL_S).lost == (lease.unit.unit_id,)
    assert lease_all(ledger, "w1", 1)[0].progress.tokens == (0, 1)


# --- drains -----------------------------------------------------------------------------------------------------------


def test_a_drain_is_told_in_every_reply_and_can_be_taken_back(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    assert ledger.drain("w1", START_S + 60, "spot", 4)

    for control in (ledger.lease("w1", 1, TTL_S).control, ledger.heartbeat("w1", [], READY, TTL_S)):
        assert (control.drain_deadline_s, control.drain_reason) == (START_S + 60, "spot")
    assert ledger.workers()[0].drain == DrainMark(deadline_s=START_S + 60, reason="spot", epoch=4)

    assert [ledger.undrain("w1", 4), ledger.undrain("w1", 4)] == [True, False]
    assert ledger.heartbeat("w1", [], READY, TTL_S).drain_deadline_s is None
    assert len(lease_all(ledger, "w1", 1)) == 1


def test_an_earlier_deadline_wins_over_a_later_one(ledger: Ledger) -> None:
    for deadline_s in (60, 90, 30):
        assert ledger.drain("w1", START_S + deadline_s, f"in {deadline_s}", 1)

    control = ledger.heartbeat("w1", [], READY, TTL_S)
    assert (control.drain_deadline_s, control.drain_reason) == (START_S + 30, "in 30")


def test_the_mark_of_one_that_has_said_goodbye_stays_until_it_registers_anew(ledger: Ledger) -> None:
    deadline_s = START_S + 60
    assert ledger.drain("w1", deadline_s, "notice", 1)
    ledger.release_worker("w1", ReleaseReason.DRAIN)
    (record,) = [each for each in ledger.workers() if each.identity.worker == "w1"]
    assert (record.gone, record.drain) == (True, DrainMark(deadline_s=deadline_s, reason="notice", epoch=1))
    ledger.register(record.identity)
    (record,) = [each for each in ledger.workers() if each.identity.worker == "w1"]
    assert (record.gone, record.drain) == (False, None)


def test_who_is_unknown_or_gone_cannot_be_drained(ledger: Ledger) -> None:
    ledger.release_worker("w1", ReleaseReason.DRAIN)

    assert [ledger.drain(worker, START_S, "spot", 1) for worker in ("w1", "nobody")] == [False, False]
    assert not ledger.undrain("nobody", 1)


def test_a_controller_that_was_succeeded_is_refused(ledger: Ledger) -> None:
    ledger.drain("w1", START_S + 60, "spot", 2)
    assert not ledger.undrain("nobody", 3)

    calls: tuple[Callable[[], object], ...] = (
        lambda: ledger.drain("w1", START_S + 1, "late", 2),
        lambda: ledger.undrain("w1", 2),
        lambda: ledger.release_worker("w1", ReleaseReason.WORKER_LOST, 2),
    )
    for call in calls:
        with pytest.raises(StaleEpoch):
            call()
    assert ledger.workers()[0].drain == DrainMark(deadline_s=START_S + 60, reason="spot", epoch=2)


def test_a_draining_worker_may_finish_what_it_holds(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    one, two = lease_all(ledger, "w1", 2)
    ledger.drain("w1", START_S + 60, "spot", 1)

    ledger.commit("w1", [commit_of(one)])
    ledger.release("w1", [release_of(two, progress=delta(0, 2))])

    assert states(ledger) == {UnitState.COMMITTED: 1, UnitState.PENDING: 1}


@pytest.mark.parametrize("epoch", [None, 1], ids=["says goodbye", "is given up by the controller"])
def test_a_worker_that_leaves_gives_everything_back(
    ledger: Ledger, ledger_factory: LedgerFactory, epoch: int | None
) -> None:
    ledger.put_units(groups(2))
    leases = lease_all(ledger, "w1", 3)
    ledger.heartbeat("w1", [beat_of(leases[0], delta(0, 4))], READY, TTL_S)

    assert ledger.release_worker("w1", ReleaseReason.WORKER_LOST, epoch) == 3
    assert ledger.release_worker("w1", ReleaseReason.WORKER_LOST, epoch) == 0
    assert ledger.release_worker("nobody", ReleaseReason.WORKER_LOST, epoch) == 0

    assert states(ledger) == {UnitState.PENDING: 4}
    assert ledger.workers()[0].gone
    ledger.register(identity("w2"))
    assert lease_all(ledger, "w2", 1)[0].progress.tokens == (0, 1, 2, 3)
    ledger_factory.now_s += 3601
    assert [record.identity.worker for record in ledger.workers()] == ["w2"]


# --- history ----------------------------------------------------------------------------------------------------------


def live_a_little(ledger: Ledger, factory: LedgerFactory, rounds: int) -> None:
    """Batches with a filtered group, an expired lease and a drain in each round."""
    epoch = ledger.attach_trainer("t")
    for number in range(rounds):
        ledger.put_units(groups(3, first=3 * number))
        ledger.register(identity("w1"))
        lease_all(ledger, "w1", 1)
        factory.now_s += TTL_S + 1
        run_units(ledger, "w1", 8, version=number)
        batch = ledger.take_batch(epoch, 2, number, 1)
        assert batch is not None
        assert ledger.take_more(epoch, batch.batch_id, [batch.groups[0].group_id]) is not None
        ledger.ack_batch(epoch, [batch.batch_id])
        ledger.publish(epoch, version(number + 1))
        ledger.drain("w1", factory.now_s + 60, "spot", 1)
        ledger.release_worker("w1", ReleaseReason.DRAIN)


def test_history_has_no_holes_and_can_be_read_in_pages(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    live_a_little(ledger, ledger_factory, 2)

    whole = list(ledger.history())
    paged: list[HistoryEvent] = []
    while page := ledger.history(paged[-1].seq if paged else 0, 5):
        paged += page

    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    assert paged == whole
    assert all(earlier.at_s <= later.at_s for earlier, later in itertools.pairwise(whole))
    assert {event.kind for event in whole} >= set(EventKind) - {
        EventKind.STORE_EPOCH,
        EventKind.DEAD_LETTERED,
        EventKind.COMPACTED,
    }


def test_a_call_on_many_units_is_one_event(ledger: Ledger) -> None:
    ledger.put_units(groups(4))
    before = len(ledger.history())
    run_units(ledger, "w1", 8)

    events = ledger.history()[before:]

    assert [(event.kind, event.worker, len(event.entries)) for event in events] == [
        (EventKind.LEASED, "w1", 8),
        (EventKind.COMMITTED, "w1", 8),
    ]
    assert events[1].entries[0].subject == "g0.0/0"
    assert set(events[1].entries[0].data) == {"fence", "attempt", "tokens", "oldest_version"}


def test_a_call_that_changes_nothing_leaves_no_event(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    before = len(ledger.history())

    ledger.configure(settings())
    ledger.put_units(groups(1))
    ledger.expire()
    ledger.lease("nobody", 1, TTL_S)
    ledger.heartbeat("w1", [], READY, TTL_S)

    assert len(ledger.history()) == before


def test_the_audit_of_a_lively_ledger_is_clean(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    live_a_little(ledger, ledger_factory, 3)

    report = audit(ledger)

    assert (report.findings, report.unprovable_units) == ((), 0)


def test_compaction_bounds_the_history_and_forgets_no_id(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    live_a_little(ledger, ledger_factory, 4)
    before = ledger.stats()
    ledger.configure(settings(history_events=20))
    events = len(ledger.history())

    dropped = ledger.compact()

    kept = ledger.history()
    assert (dropped, len(kept)) == (events - 20, 21)
    assert kept[-1].kind is EventKind.COMPACTED
    assert kept[-1].data["through_seq"] == kept[0].seq - 1
    assert kept[-1].data["units_final"] == before.accepted + sum(before.dropped["filtered"].values()) - len(
        [entry for entry in ledger.census() if entry.state in (UnitState.CONSUMED, UnitState.DROPPED)]
    )
    assert ledger.put_units(groups(12)) == 0
    assert audit(ledger).findings == ()
    after = ledger.stats()
    assert (after.accepted, after.dropped, after.tokens) == (before.accepted, before.dropped, before.tokens)


def test_compaction_within_its_bound_drops_no_event_and_no_unit_in_flight(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    live_a_little(ledger, ledger_factory, 1)
    ledger.register(identity("w1"))
    ledger.put_units(groups(2, first=50))
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 3))], READY, TTL_S)
    ledger.release("w1", [release_of(lease)])
    before, events = states(ledger), len(ledger.history())

    assert ledger.compact() == 0
    assert ledger.compact() == 0

    assert (states(ledger), len(ledger.history())) == (before, events)
    assert lease_all(ledger, "w1", 1)[0].progress.tokens == (0, 1, 2)
    run_units(ledger, "w1", 10)


@pytest.mark.parametrize("ends", ["its time", "its worker", "its worker's successor"])
def test_a_lease_whose_group_was_compacted_away_ends_without_trouble(
    ends: str, ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    ledger.configure(settings(unit_failure_limit=1, group_redraw_limit=0, history_events=0))
    ledger.register(identity("w1"))
    ledger.register(identity("w2"))
    ledger.put_units(groups(2))
    (failed,) = lease_all(ledger, "w1", 1)
    held = lease_all(ledger, "w2", 2)
    ledger.release("w1", [release_of(failed, ReleaseReason.UNIT_FAILURE, error="boom")])
    ledger.compact()
    assert failed.unit.group_id == held[0].unit.group_id
    assert held[0].unit.unit_id not in {entry.unit_id for entry in ledger.census()}

    if ends == "its time":
        ledger_factory.now_s += 2 * TTL_S
        ledger.expire()
    elif ends == "its worker":
        ledger.release_worker("w2", ReleaseReason.WORKER_LOST)
    else:
        ledger.register(replace(identity("w2"), pod_uid="another"))

    assert {record.identity.worker: record.leases for record in ledger.workers()} == {"w1": 0, "w2": 0}
    assert ledger.stats().pending == 2
    assert ledger.commit("w2", [commit_of(held[0])]) == (CommitOutcome.REFUSED,)
    assert [lease.unit.unit_id for lease in lease_all(ledger, "w1", 8)] == ["g1.0/0", "g1.0/1"]
