"""Calls that one client of the SQLite engine does for others: once, durably, whoever is killed meanwhile."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from scaler.ledger._sqlite import calls
from scaler.ledger._sqlite.desk import SLOTS, Desk
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger.audit import audit
from scaler.ledger.contract import CommitOutcome, LedgerUnavailable
from scaler.ledger.history import EventKind
from scaler.ledger.sqlite import SqliteLedger, open_path
from scaler.model.work import Lease
from tests.builders.ledger import TTL_S, commit_of, groups, identity, lease_all, settings
from tests.builders.sqlite_ledger import back_up, restore

PROCESSES = get_context("fork")


def begin(path: Path) -> SqliteLedger:
    """A configured job with the workers w0 to w3 and eight groups of two."""
    ledger = open_path(path, "job")
    ledger.configure(settings(batch_groups=1000))
    for number in range(4):
        ledger.register(identity(f"w{number}"))
    ledger.put_units(groups(8))
    return ledger


@contextmanager
def posted(holder: SqliteLedger, *others: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """The holder has the lock, and the others' calls lie on the desk. The block has to let go of the lock."""
    store = holder._store
    with ThreadPoolExecutor(len(others)) as pool:
        store._sidecar.turn.wait()
        futures = [pool.submit(other) for other in others]
        while len(store._desk.posts(store._job)) < len(others):
            pass
        yield futures


def lease_call(ledger: SqliteLedger, worker: str, n: int = 2) -> Callable[[], Sequence[Lease]]:
    return lambda: ledger.lease(worker, n, TTL_S).leases


def do_own(ledger: SqliteLedger, worker: str) -> Sequence[Lease]:
    """The holder's own call, with the lock in hand."""
    store = ledger._store
    reply = store._do(calls.lease_request(worker, 2, TTL_S))
    return calls.lease_reply(store.objects, store.cache, worker, reply).leases


def units_of(*granted: Sequence[Lease]) -> list[str]:
    return [lease.unit.unit_id for leases in granted for lease in leases]


def test_the_holder_does_all_posted_calls_in_one_transaction(path: Path) -> None:
    ledger, others = begin(path), [open_path(path, "job") for _ in range(3)]
    watcher = sqlite3.connect(path)
    (before,) = watcher.execute("PRAGMA data_version").fetchone()

    with posted(ledger, *(lease_call(other, f"w{number}") for number, other in enumerate(others, 1))) as futures:
        own = do_own(ledger, "w0")
        theirs = [future.result() for future in futures]

    (after,) = watcher.execute("PRAGMA data_version").fetchone()
    watcher.close()
    assert after == before + 1
    assert len(set(units_of(own, *theirs))) == 8
    assert [lease.owner for leases in theirs for lease in leases] == ["w1", "w1", "w2", "w2", "w3", "w3"]
    outcomes = others[0].commit("w1", [commit_of(lease) for lease in theirs[0]])
    assert outcomes == (CommitOutcome.COMMITTED,) * 2
    assert audit(ledger).findings == ()


def test_many_clients_at_once_get_each_unit_once(path: Path) -> None:
    ledger = begin(path)
    ledger.put_units(groups(200, first=100))
    clients = [open_path(path, "job") for _ in range(4)]

    def work(number: int) -> int:
        done = 0
        while leases := clients[number].lease(f"w{number}", 3, TTL_S).leases:
            outcomes = clients[number].commit(f"w{number}", [commit_of(lease) for lease in leases])
            assert set(outcomes) == {CommitOutcome.COMMITTED}
            done += len(leases)
        return done

    with ThreadPoolExecutor(len(clients)) as pool:
        done = sum(pool.map(work, range(len(clients))))

    assert done == 416
    assert ledger.stats().buffered == 416
    assert sum(worker.committed_samples for worker in ledger.workers()) == 416
    assert audit(ledger).findings == ()


def test_a_call_that_fails_takes_no_other_with_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, good, bad = begin(path), open_path(path, "job"), open_path(path, "job")
    real = calls.answer

    def answer(tx: Transaction, request: calls.Told) -> calls.Told:
        reply = real(tx, request)
        if "w2" in request:
            raise ValueError("not this one")
        return reply

    monkeypatch.setattr(calls, "answer", answer)
    with posted(ledger, lease_call(good, "w1"), lease_call(bad, "w2")) as (fine, failing):
        own = do_own(ledger, "w0")
        assert len(set(units_of(own, fine.result()))) == 4
        with pytest.raises(ValueError, match="not this one"):
            failing.result()

    assert ledger.stats().running == 4
    assert audit(ledger).findings == ()


def test_whoever_asked_syncs_the_log_where_the_holder_could_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = begin(path), open_path(path, "job")
    real, calls_of_it = os.fdatasync, []

    def fail_once(descriptor: int) -> None:
        calls_of_it.append(descriptor)
        if len(calls_of_it) == 1:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail_once)
    with posted(ledger, lease_call(other, "w1")) as (theirs,):
        with pytest.raises(LedgerUnavailable, match="Input/output"):
            do_own(ledger, "w0")
        assert len(theirs.result()) == 2

    assert calls_of_it == [ledger._store._log, other._store._log]


def test_a_store_that_is_held_too_long_is_unavailable_and_the_call_is_not_done_later(path: Path) -> None:
    ledger, other = begin(path), open_path(path, "job", busy_timeout_s=0.05)

    with posted(ledger, lease_call(other, "w1")) as (theirs,):
        with pytest.raises(LedgerUnavailable, match="another writer"):
            theirs.result()
        do_own(ledger, "w0")

    assert ledger.stats().running == 2
    assert len(other.lease("w1", 2, TTL_S).leases) == 2


def test_without_a_place_at_the_desk_calls_are_done_all_the_same(path: Path) -> None:
    ledger = begin(path)
    seated = [Desk(path.with_name("ledger.db.desk"), 1, TTL_S) for _ in range(SLOTS)]
    other = open_path(path, "job")
    store = ledger._store

    with ThreadPoolExecutor(1) as pool:
        store._sidecar.turn.wait()
        theirs = pool.submit(lease_call(other, "w1"))
        own = do_own(ledger, "w0")
        assert len(set(units_of(own, theirs.result()))) == 4

    for desk in seated:
        desk.close()


def test_a_holder_does_not_do_the_call_of_a_client_that_has_another_file_open(path: Path) -> None:
    ledger, other = begin(path), open_path(path, "job")
    back_up(path, path.with_suffix(".backup"))
    restore(path, path.with_suffix(".backup"))
    ledger.expire()  # a write, which sees the other file
    store = ledger._store

    with ThreadPoolExecutor(1) as pool:
        store._sidecar.turn.wait()
        theirs = pool.submit(lease_call(other, "w1"))
        while not store._desk._waiting():
            pass
        assert store._desk.posts(store._job) == []
        own = do_own(ledger, "w0")
        assert len(set(units_of(own, theirs.result()))) == 4

    assert ledger.stats().running == 4
    assert audit(ledger).findings == ()


# --- kill -9 of the holder --------------------------------------------------------------------------------------------


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


INSTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the answers are laid out": lambda patch: patch.setattr(Desk, "prepare", die),
    "after the commit, before the token is noted": lambda patch: patch.setattr(
        "scaler.ledger._sqlite.store.Store._note", die
    ),
    "after the commit, before the answers count": lambda patch: patch.setattr(Desk, "confirm", die),
    "before the sync": lambda patch: patch.setattr(os, "fdatasync", die),
    "after the sync": lambda patch: patch.setattr(Desk, "synced", die),
    "before the clients are told": lambda patch: patch.setattr(Desk, "ring", die),
}


def hold_and_die(path: Path, instant: str, there: Connection) -> None:
    """Take the lock when told to, wait until a call is posted, do it with an own one, and be killed at the instant."""
    ledger = open_path(path, "job")
    store = ledger._store
    there.recv()
    store._sidecar.turn.wait()
    there.send("locked")
    while not store._desk.posts(store._job):
        pass
    INSTANTS[instant](pytest.MonkeyPatch())
    do_own(ledger, "w0")


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_holder_killed_at_any_instant_loses_and_doubles_nobodys_call(path: Path, instant: str) -> None:
    begin(path).close()
    here, there = PROCESSES.Pipe()
    holder = PROCESSES.Process(target=hold_and_die, args=(path, instant, there))
    holder.start()
    ledger = open_path(path, "job")
    here.send("now")
    assert here.recv() == "locked"

    leases = ledger.lease("w1", 2, TTL_S).leases

    holder.join()
    assert holder.exitcode == -signal.SIGKILL
    holder.close()
    assert len(leases) == 2
    told = [event.worker for event in ledger.history() if event.kind is EventKind.LEASED]
    assert told.count("w1") == 1
    assert ledger.commit("w1", [commit_of(lease) for lease in leases]) == (CommitOutcome.COMMITTED,) * 2
    assert len(lease_all(ledger, "w2", 100)) == 16 - 2 * len(told)
    assert audit(ledger).findings == ()
