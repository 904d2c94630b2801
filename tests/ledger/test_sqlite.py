"""What only the SQLite engine has: its file, its sidecar, its lock, its backups."""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger.audit import audit
from scaler.ledger.contract import CommitOutcome, LedgerRefused, LedgerUnavailable, StaleEpoch
from scaler.ledger.history import EventKind
from scaler.ledger.registry import open_for_reading, open_ledger
from scaler.ledger.sqlite import SqliteLedger, open_path, open_url
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    groups,
    ids,
    lease_all,
    release_of,
    run_units,
    settings,
)
from tests.builders.sqlite_ledger import back_up, begin, restore

# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_url_names_an_absolute_path(tmp_path: Path) -> None:
    open_ledger(f"sqlite://{tmp_path}/my%20ledger.db", "job").close()

    assert (tmp_path / "my ledger.db").exists()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite://host/ledger.db", "sqlite:///a.db?mode=ro", "valkey:///a.db"]
)
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(LedgerRefused, match="sqlite:///absolute/path"):
        open_url(url, "job")


def test_a_folder_that_is_not_there_is_a_store_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable):
        open_path(tmp_path / "nowhere" / "ledger.db", "job")


def hold_the_switch(path: Path) -> sqlite3.Connection:
    """One who is opening a new file, and holds the lock of the switch to write-ahead logging, which no busy time-out covers."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_whoever_opens_a_new_file_waits_for_another_who_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = hold_the_switch(path)
    waits: list[float] = []

    def wait(wait_s: float) -> None:
        waits.append(wait_s)
        if len(waits) == 2:
            other.close()

    monkeypatch.setattr("scaler.ledger._sqlite.store.time.sleep", wait)
    ledger = open_path(path, "job", busy_timeout_s=1.0)

    assert len(waits) == 2
    assert ledger._store._db.execute("PRAGMA busy_timeout").fetchone() == (1000,)


def test_whoever_opens_a_new_file_gives_up_on_another_who_holds_on_to_it(path: Path) -> None:
    other = hold_the_switch(path)

    with pytest.raises(LedgerUnavailable, match="locked"):
        open_path(path, "job", busy_timeout_s=0.05)

    other.close()
    open_path(path, "job").close()


def make_text(path: Path) -> None:
    path.write_text("this is no database, and long enough to have a header" * 10)


def make_foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE stranger (x)")
    db.close()


def make_future(path: Path) -> None:
    open_path(path, "job").close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()


@pytest.mark.parametrize("make", [make_text, make_foreign, make_future], ids=lambda make: str(make.__name__))
def test_a_file_that_is_no_ledger_of_this_version_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], None]
) -> None:
    make(path)
    before = path.read_bytes()

    with pytest.raises(LedgerRefused):
        open_path(path, "job")

    assert path.read_bytes()[100:] == before[100:]


def test_a_ledger_of_another_schema_is_refused_with_what_to_do(path: Path) -> None:
    open_path(path, "job").close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 1")
    db.close()

    with pytest.raises(LedgerRefused, match=r"schema is version 1, .* knows version 2: .* begin a new ledger"):
        open_path(path, "job")


def test_a_unit_is_named_in_ascii_digits_only(path: Path) -> None:
    ledger = begin(path)
    (lease,) = lease_all(ledger, "w1", 1)
    name = lease.unit.unit_id.replace("/0", "/\u0660")
    commit = commit_of(lease)
    misnamed = replace(commit, unit_id=name, sample=replace(commit.sample, unit_id=name))

    assert ledger.heartbeat("w1", [replace(beat_of(lease), unit_id=name)], READY, TTL_S).lost == (name,)
    assert ledger.commit("w1", [misnamed]) == (CommitOutcome.REFUSED,)
    assert ledger.commit("w1", [commit]) == (CommitOutcome.COMMITTED,)


# --- writers ----------------------------------------------------------------------------------------------------------


def test_a_writer_that_does_not_let_go_makes_the_store_unavailable_and_nothing_else(path: Path) -> None:
    ledger, other = begin(path), open_path(path, "job", busy_timeout_s=0.05)

    with other._store.write(), pytest.raises(LedgerUnavailable, match="another writer"):
        ledger.put_units(groups(1, first=5))

    assert ledger.put_units(groups(1, first=5)) == 2


def test_a_foreign_writer_is_waited_for_and_given_up_on_too(path: Path) -> None:
    ledger = begin(path)
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")

    with pytest.raises(LedgerUnavailable, match="locked"):
        ledger.put_units(groups(1, first=5))

    assert ledger.stats().pending == 4
    foreign.close()
    assert ledger.put_units(groups(1, first=5)) == 2


def test_nothing_is_acknowledged_before_the_log_is_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = begin(path), open_path(path, "job")
    (lease, _) = lease_all(ledger, "w1", 2)
    synced: list[int] = []
    real = os.fdatasync

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    def count(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(LedgerUnavailable, match="Input/output"):
        ledger.commit("w1", [commit_of(lease)])
    monkeypatch.setattr(os, "fdatasync", count)

    # It is there all the same; saying so to anybody needs the sync that the first caller did not get.
    assert other.commit("w1", [commit_of(lease)]) == (CommitOutcome.ALREADY,)
    assert len(synced) == 1


def test_a_poll_that_finds_nothing_writes_nothing(path: Path) -> None:
    ledger = begin(path)
    lease_all(ledger, "w1", 100)
    watcher = sqlite3.connect(path)
    before = watcher.execute("PRAGMA data_version").fetchone()

    for _ in range(3):
        assert lease_all(ledger, "w1", 4) == ()
        assert ledger.expire() == 0

    assert watcher.execute("PRAGMA data_version").fetchone() == before
    watcher.close()


def test_a_call_that_fails_half_way_leaves_nothing_behind(path: Path) -> None:
    ledger = begin(path)
    one, two = lease_all(ledger, "w1", 2)
    bad = delta(0, 2).__class__(start=2, tokens=(1, 2), logprobs=(-0.5,), spans=())

    with pytest.raises(ValueError, match="log-probabilities"):
        ledger.heartbeat("w1", [beat_of(one, delta(0, 2)), beat_of(two, bad)], READY, TTL_S)
    with pytest.raises(LedgerRefused):
        open_path(path, "unconfigured").put_units(groups(1))

    ledger.release("w1", [release_of(one)])
    assert lease_all(ledger, "w1", 1)[0].progress.tokens == ()
    assert audit(ledger).findings == ()


def test_settings_that_were_rolled_back_are_not_remembered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = begin(path)

    def fail(tx: Transaction) -> None:
        assert tx.settings.max_concurrent == 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scaler.ledger.sqlite.sweep_stale", fail)
    with pytest.raises(OSError, match="No space"):
        ledger.configure(settings(max_concurrent=1))
    monkeypatch.undo()
    open_path(path, "job").configure(settings(max_concurrent=3))

    assert len(lease_all(ledger, "w1", 100)) == 3


# --- backups ----------------------------------------------------------------------------------------------------------


def test_opening_again_changes_nothing(path: Path) -> None:
    first = begin(path)
    (lease, _) = lease_all(first, "w1", 2)
    first.close()

    again = open_path(path, "job")

    assert (again.stats().store_epoch, again.stats().running) == (1, 2)
    assert again.commit("w1", [commit_of(lease)]) == (CommitOutcome.COMMITTED,)


def test_a_restored_backup_voids_every_lease_that_it_remembers_and_every_one_that_it_forgot(path: Path) -> None:
    ledger = begin(path)
    (known,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(known, delta(0, 3))], READY, TTL_S)
    old_trainer = ledger.attach_trainer("t")
    back_up(path, path.with_suffix(".backup"))
    (forgotten,) = lease_all(ledger, "w1", 1)
    ledger.close()
    restore(path, path.with_suffix(".backup"))

    ledger = open_path(path, "job")

    stats = ledger.stats()
    assert (stats.store_epoch, stats.running, stats.pending) == (2, 0, 4)
    assert ledger.commit("w1", [commit_of(known), commit_of(forgotten)]) == (CommitOutcome.REFUSED,) * 2
    again = lease_all(ledger, "w1", 2)
    assert ids(again) == [known.unit.unit_id, forgotten.unit.unit_id]
    assert again[0].progress.tokens == (0, 1, 2)
    assert all(old.fencing_token < new.fencing_token for old in (known, forgotten) for new in again)
    with pytest.raises(StaleEpoch):
        ledger.take_batch(old_trainer, 1, 0, 1)
    assert EventKind.STORE_EPOCH in {event.kind for event in ledger.history()}
    assert audit(ledger).findings == ()
    ledger.close()
    assert open_path(path, "job").stats().store_epoch == 2


def test_nothing_beside_a_ledger_in_use_is_a_pipe_that_a_copy_would_wait_on(path: Path) -> None:
    left_by_an_earlier_build = path.with_name(f"{path.name}.fence.turn")
    os.mkfifo(left_by_an_earlier_build)
    ledger, other = begin(path), open_path(path, "job")
    run_units(ledger, "w1", 2)

    assert [found for found in path.parent.glob(f"{path.name}*") if found.is_fifo()] == []

    ledger.close()
    other.close()


def test_a_writer_of_an_earlier_build_wakes_nobody_and_is_waited_for_even_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the pipe in another place; the lock is the same."""
    ledger = begin(path)
    holder = os.open(f"{path}.fence", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    looks: list[bool] = []
    release_at_the_third_look(monkeypatch, ledger, looks, holder)

    assert ledger.put_units(groups(1, first=5)) == 2
    assert len(looks) == 3

    os.close(holder)


def release_at_the_third_look(
    monkeypatch: pytest.MonkeyPatch, ledger: SqliteLedger, looks: list[bool], holder: int
) -> None:
    turn = ledger._store._sidecar.turn
    look = turn.try_lock

    def counted() -> bool:
        if len(looks) == 2:
            fcntl.flock(holder, fcntl.LOCK_UN)
        looks.append(look())
        return looks[-1]

    monkeypatch.setattr(turn, "try_lock", counted)


def test_a_backup_by_sqlite_of_a_ledger_in_use_opens_clean_with_a_higher_epoch(path: Path, tmp_path: Path) -> None:
    ledger = begin(path)
    run_units(ledger, "w1", 2)
    lease_all(ledger, "w1", 1)
    copy = tmp_path / "copy.db"
    back_up(path, copy)

    assert audit(open_for_reading(f"sqlite://{copy}", "job")).findings == ()
    restored = open_path(copy, "job")

    stats = restored.stats()
    assert (stats.store_epoch, stats.running, stats.buffered) == (2, 0, 2)
    assert audit(restored).findings == ()
    assert ledger.stats().store_epoch == 1


def test_a_batch_of_lost_history_is_never_acknowledged_by_its_number(path: Path) -> None:
    ledger = begin(path)
    run_units(ledger, "w1", 4)
    back_up(path, path.with_suffix(".backup"))
    lost = ledger.take_batch(ledger.attach_trainer("t"), 2, 0, 1)
    assert lost is not None
    ledger.put_units(groups(1, first=9))
    lease_all(ledger, "w1", 1)
    ledger.close()
    restore(path, path.with_suffix(".backup"))
    ledger = open_path(path, "job")

    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 2, 0, 1)

    assert batch is not None
    assert batch.batch_id > lost.batch_id
    assert ledger.ack_batch(epoch, [lost.batch_id]) == 0


@pytest.mark.parametrize("with_sidecar", [False, True], ids=["without its sidecar", "with its sidecar"])
def test_a_copy_in_another_place_proves_nothing_and_raises_the_epoch_of_every_job(
    path: Path, tmp_path: Path, with_sidecar: bool
) -> None:
    for job in ("one", "two"):
        ledger = begin(path, job)
        lease_all(ledger, "w1", 1)
        ledger.close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    back_up(path, elsewhere / "ledger.db")
    if with_sidecar:
        shutil.copy(f"{path}.fence", elsewhere)

    epochs = [open_path(elsewhere / "ledger.db", job).stats().store_epoch for job in ("one", "two")]

    assert epochs == [2, 2]


def test_a_file_exchanged_under_a_client_is_noticed_at_its_next_write(path: Path) -> None:
    ledger = begin(path)
    back_up(path, path.with_suffix(".backup"))
    (lease,) = lease_all(ledger, "w1", 1)
    restore(path, path.with_suffix(".backup"))

    assert ledger.commit("w1", [commit_of(lease)]) == (CommitOutcome.REFUSED,)
    assert ledger.stats().store_epoch == 2


def test_a_file_exchanged_for_something_else_is_refused_until_a_ledger_is_back(path: Path) -> None:
    ledger = begin(path)
    back_up(path, path.with_suffix(".backup"))
    make_text(path.with_suffix(".text"))
    restore(path, path.with_suffix(".text"))

    for _ in range(2):
        with pytest.raises(LedgerRefused):
            lease_all(ledger, "w1", 1)

    restore(path, path.with_suffix(".backup"))
    assert len(lease_all(ledger, "w1", 1)) == 1


def test_a_file_that_is_gone_is_not_made_anew_under_a_client(path: Path) -> None:
    ledger = begin(path)
    path.rename(path.with_suffix(".away"))

    with pytest.raises(LedgerUnavailable, match="gone"):
        ledger.put_units(groups(1, first=5))

    path.with_suffix(".away").rename(path)
    assert ledger.put_units(groups(1, first=5)) == 2
