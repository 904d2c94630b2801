"""The file of a ledger: opened, locked, and proved to be the newest that there is.

Invariants
* A write holds the sidecar's lock and SQLite's own; whatever is raised inside rolls it back, and nothing is half done.
* Nobody hears of a write before the write-ahead log is synced up to it. SQLite's `synchronous=FULL` would do that with
  the lock held; here it is done right after, so that others write meanwhile and one sync serves several of them. A write
  that others have seen is synced no later than theirs, which come after it in the log. SQLite itself (`NORMAL`) syncs
  the log before it folds it back, and the database before it starts the log anew.
* A database behind its sidecar, or with one that cannot be trusted, gets a higher store epoch in every job, before any
  call: leases are void, and trainer epochs and batch numbers start beyond all that the lost history may have given away.
* A database file that was exchanged under a running client is noticed at its next write.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from scaler.ledger._sqlite import schema
from scaler.ledger._sqlite.objects import delete_object
from scaler.ledger._sqlite.returning import void_leases
from scaler.ledger._sqlite.sidecar import Sidecar
from scaler.ledger._sqlite.specs import read_specs
from scaler.ledger._sqlite.transaction import INSERT_COUNTERS, ClientCache, Transaction, new_counters
from scaler.ledger.bodies import FolderStore
from scaler.ledger.contract import LedgerRefused, LedgerUnavailable
from scaler.ledger.history import EventKind

LOST_HISTORY_GAP = 1 << 20
"""Trainer epochs and batch numbers are raised by this with the store epoch: a checkpoint may name some that are lost."""
_CHECKPOINT_PAGES = 4000
_AWAY_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
}
_REFUSED_CODES = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


class Store:
    """One client's hold on the file, for one job."""

    _log = -1
    """Descriptor of the write-ahead log."""

    def __init__(self, path: Path, job: str, now_s: Callable[[], float], busy_timeout_s: float) -> None:
        self._path = path
        self._job_name = job
        self._now_s = now_s
        self._busy_timeout_s = busy_timeout_s
        self._cache = ClientCache()
        self._open(may_create=True)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """One atomic change; durable when this returns, and so is everything that its reply rests on."""
        with translated():
            if self._file_id() != self._opened:
                self._reopen()
            with self._sidecar.turn:
                self._db.execute("BEGIN IMMEDIATE")
                changes = self._db.total_changes
                try:
                    tx = self._transaction()
                    yield tx
                    tx.finish()
                    self._db.execute("COMMIT")
                except BaseException:
                    self._cache.clear()
                    self._roll_back()
                    raise
                self._sidecar.note(self._job, tx.counters.store_epoch, tx.counters.fence)
            # Also where nothing changed: "already committed" may rest on a commit whose client died before it synced.
            if self._db.total_changes != changes or tx.counters.seq > self._synced_seq:
                self._sync(tx.counters.seq)
        for unit_id, record in tx.garbage:
            delete_object(self.objects, unit_id, record)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """One consistent reading."""
        with translated():
            self._db.execute("BEGIN")
            try:
                yield self._transaction()
            finally:
                self._roll_back()

    def specs(self, uids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        """What units ask for, by row id."""
        if not uids:
            return {}
        with translated():
            return read_specs(self._db, uids)

    def close(self) -> None:
        """Give up file and lock."""
        self._db.close()
        self._sidecar.close()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _transaction(self) -> Transaction:
        return Transaction(self._db, self._job, self._now_s(), self._cache, self.objects)

    def _sync(self, seq: int) -> None:
        try:
            os.fdatasync(self._log)
        except OSError as error:
            raise LedgerUnavailable(f"{self._path}: {error.strerror}") from error
        self._synced_seq = seq

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _file_id(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - in every write; pathlib takes three times as long
        except FileNotFoundError as error:
            raise LedgerUnavailable(f"{self._path} is gone") from error
        return found.st_dev, found.st_ino

    def _reopen(self) -> None:
        self.close()
        self._cache.clear()
        self._open(may_create=False)

    def _open(self, *, may_create: bool) -> None:
        with translated():
            sidecar = Sidecar(self._path.with_name(self._path.name + ".fence"), self._busy_timeout_s)
            try:
                self._db = connect(self._path, self._busy_timeout_s, may_create=may_create)
            except BaseException:
                sidecar.close()
                raise
            self._sidecar = sidecar
            try:
                with sidecar.turn:
                    opened = self._file_id()
                    self._job = self._find_job()
                    self.objects = FolderStore(self._path.with_name(self._path.name + ".objects") / str(self._job))
                    self._raise_epochs()
                self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
                self._sync(0)
                self._opened = opened
            except BaseException:
                self.close()
                raise

    def _find_job(self) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            schema.prepare(self._db)
            self._db.execute("INSERT OR IGNORE INTO jobs (name) VALUES (?)", (self._job_name,))
            (job,) = self._db.execute("SELECT job FROM jobs WHERE name = ?", (self._job_name,)).fetchone()
            row = job << schema.WORKER_BITS
            if self._db.execute("SELECT 1 FROM counters WHERE id = ?", (row,)).fetchone() is None:
                self._db.execute(INSERT_COUNTERS, (row, *new_counters()))
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        return int(job)

    def _raise_epochs(self) -> None:
        """See the module's second invariant."""
        trusted = self._sidecar.trusted()
        self._db.execute("BEGIN IMMEDIATE")
        for job, store_epoch, fence, seq in self._tokens():
            noted = self._sidecar.noted(job) if trusted else (store_epoch, 0)
            # A job without history has given nothing away: a new file needs no higher epoch.
            if noted > (store_epoch, fence) or (not trusted and seq):
                self._raise_epoch(job, max(noted[0], store_epoch) + 1)
        self._db.execute("COMMIT")
        for job, store_epoch, fence, _ in self._tokens():
            self._sidecar.note(job, store_epoch, fence)
        if not trusted:
            self._sidecar.trust()

    def _tokens(self) -> list[tuple[int, int, int, int]]:
        query = (
            "SELECT j.job, c.store_epoch, c.fence, c.seq FROM jobs j"
            f" JOIN counters c ON c.id = j.job << {schema.WORKER_BITS}"
        )
        return self._db.execute(query).fetchall()

    def _raise_epoch(self, job: int, store_epoch: int) -> None:
        tx = Transaction(self._db, job, self._now_s(), ClientCache(), self.objects)
        void_leases(tx)
        tx.counters.store_epoch = store_epoch
        tx.counters.trainer_epoch += LOST_HISTORY_GAP
        tx.counters.batch += LOST_HISTORY_GAP
        tx.record(EventKind.STORE_EPOCH, data={"store_epoch": store_epoch})
        tx.finish()


def connect(path: Path, busy_timeout_s: float, *, may_create: bool) -> sqlite3.Connection:
    """A connection whose commits are durable.

    Raises:
        LedgerRefused: the file's place does not support write-ahead logging.
    """
    mode = "rwc" if may_create else "rw"
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        cached_statements=512,
        check_same_thread=False,
    )
    try:
        with closing(db.execute("PRAGMA journal_mode = WAL")) as answer:
            (journal,) = answer.fetchone()
        if journal != "wal":
            raise LedgerRefused(f"{path}: the file system does not support write-ahead logging ({journal})")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = OFF")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        db.execute("PRAGMA cache_size = -32000")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def translated() -> Iterator[None]:
    """Turn what SQLite says of the store into the contract's errors; a mistake of ours stays what it is."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # Extended codes keep the primary one in their lowest byte.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _AWAY_CODES:
            raise LedgerUnavailable(f"SQLite: {error}") from error
        if code in _REFUSED_CODES:
            raise LedgerRefused(f"SQLite: {error}") from error
        raise
