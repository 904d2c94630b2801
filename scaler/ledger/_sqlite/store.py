"""The file of a ledger: opened, locked, and proved to be the newest that there is.

Invariants
* A write holds the sidecar's lock and SQLite's own; whatever is raised inside rolls it back, and nothing is half done.
* `lease` and `commit`, which many clients call at once, go through the desk (`_sqlite.desk`): whoever gets the lock does
  those that wait as well, in one transaction with one sync. Where one of them fails, all are undone and each is done
  alone by its own client, so that nobody hears of another's error.
* Nobody hears of a write before the write-ahead log is synced up to it. SQLite's `synchronous=FULL` would do that with
  the lock held; here it is done right after, so that others write meanwhile. While one client syncs for the desk, the
  next waits for it a little, with the lock: that is when calls gather. A slow disk is not waited for, since it does
  several syncs as fast as one. A write that others have seen is synced no later than theirs, which come after it in the
  log. SQLite itself (`NORMAL`) syncs the log before it folds it back, and the database before it starts the log anew.
* A database behind its sidecar, or with one that cannot be trusted, gets a higher store epoch in every job, before any
  call: leases are void, and trainer epochs and batch numbers start beyond all that the lost history may have given away.
* A database file that was exchanged under a running client is noticed at its next write. No client does the calls of one
  that has another file open.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from scaler.ledger._sqlite import calls, schema
from scaler.ledger._sqlite.desk import Answer, Desk, Post
from scaler.ledger._sqlite.objects import delete_object
from scaler.ledger._sqlite.returning import void_leases
from scaler.ledger._sqlite.sidecar import Sidecar
from scaler.ledger._sqlite.transaction import INSERT_COUNTERS, ClientCache, Transaction, new_counters
from scaler.ledger._sqlite.turnstile import LOOK_AGAIN_S
from scaler.ledger.bodies import FolderStore
from scaler.ledger.contract import LedgerRefused, LedgerUnavailable
from scaler.ledger.history import EventKind

LOST_HISTORY_GAP = 1 << 20
"""Trainer epochs and batch numbers are raised by this with the store epoch: a checkpoint may name some that are lost."""
_CHECKPOINT_PAGES = 4000
_NOWHERE = (0, 0)
"""No file is open: an exchanged one could not be opened yet."""
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

    _synced_seq = 0
    """The event up to which the log is known to be synced."""

    def __init__(self, path: Path, job: str, now_s: Callable[[], float], busy_timeout_s: float) -> None:
        self._path = path
        self._job_name = job
        self._now_s = now_s
        self._busy_timeout_s = busy_timeout_s
        self.cache = ClientCache()
        self._open(may_create=True)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """One atomic change; durable when this returns, and so is everything that its reply rests on."""
        with translated():
            self._check_file()
            self._sidecar.turn.wait()
            try:
                with self._transaction() as tx:
                    yield tx
                self._note(tx)
            finally:
                self._let_go()
            self._make_durable(tx)
        self._delete_garbage(tx)

    def call(self, request: calls.Told) -> calls.Told:
        """The answer to a call as in `calls`, done here or, where others are at it already, by one of them.

        Durable when this returns, and so is everything that the answer rests on.
        """
        with translated():
            if self._opened == _NOWHERE:
                self._reopen()
            if self._desk.held or not self._sidecar.turn.try_lock():
                reply = self._have_it_done(request)
                if reply is not None:
                    return reply
            return self._do(request)

    def _hold_newest(self) -> None:
        """With the lock: have it on the file that is there now.

        Whoever only posts need not look: a call is done by a client that has the same file open, and has looked.
        """
        is_newest = False
        try:
            is_newest = self._file_id() == self._opened
        finally:
            if not is_newest:
                self._let_go()
        if not is_newest:
            self._reopen()
            self._sidecar.turn.wait()

    def _have_it_done(self, request: calls.Told) -> calls.Told | None:
        """Wait at the desk. None: the lock is ours, and the call still to be done."""
        ticket = self._desk.post(calls.packed(request))
        if ticket is None:
            self._sidecar.turn.wait()
            return None
        try:
            answer = self._await_answer(ticket)
        except BaseException:
            self._desk.withdraw()
            raise
        return None if answer is None else self._believe(answer, ticket, request)

    def _await_answer(self, ticket: int) -> Answer | None:
        desk, turn = self._desk, self._sidecar.turn
        idle_s, turns = 0.0, desk.turns
        # Only a hint: a try that is spared here is made up for when the holder rings, or at the first look.
        may_be_free = not desk.held
        while (answer := desk.answer(ticket)) is None:
            if may_be_free and turn.try_lock():
                if self._is_open(ticket):
                    return None
                continue
            may_be_free = True
            if not desk.rung(LOOK_AGAIN_S):
                idle_s, turns = idle_s + LOOK_AGAIN_S if desk.turns == turns else 0.0, desk.turns
                if idle_s >= turn.timeout_s:
                    raise turn.held_too_long()
        return answer

    def _is_open(self, ticket: int) -> bool:
        """With the lock, which is kept only if so: whether the own call is still to be done."""
        is_open = False
        try:
            # What a killed holder has left is for those to settle who see the file it wrote to.
            if not self._desk.marked or self._file_id() == self._opened:
                self._desk.settle(self._settled_seq)
            if self._desk.answer(ticket) is None:
                self._desk.take_back(ticket)
                is_open = True
        finally:
            if not is_open:
                self._let_go()
        return is_open

    def _believe(self, answer: Answer, ticket: int, request: calls.Told) -> calls.Told:
        reply = answer.reply
        if reply is None:
            self._sidecar.turn.wait()
            return self._do(request, alone=True)
        while not answer.durable and self._desk.rung(LOOK_AGAIN_S):
            answer = self._desk.answer(ticket) or answer
        if not answer.durable:
            self._see_to_durability(answer, ticket)
        return calls.unpacked(reply)

    def _see_to_durability(self, answer: Answer, ticket: int) -> None:
        """Whoever gave the answer is killed, or its sync takes long."""
        with self._desk.sync_turn:
            answer = self._desk.answer(ticket) or answer
            if not answer.durable:
                self._sync(answer.seq)

    def _do(self, request: calls.Told, *, alone: bool = False) -> calls.Told:
        """With the lock, which is given up: do a call, and those that are posted along with it."""
        self._hold_newest()
        posts: Sequence[Post] = ()
        try:
            try:
                self._desk.hold()
                if not alone:
                    posts = self._desk.posts(self._job)
                tx, reply = self._transact(request, posts)
                in_turn = self._desk.sync_turn.wait_briefly()
            finally:
                self._let_go()
            try:
                self._make_durable(tx)
                self._desk.synced(posts)
            finally:
                if in_turn:
                    self._desk.sync_turn.let_go()
        finally:
            self._desk.ring(posts)
        self._delete_garbage(tx)
        return reply

    def _transact(self, request: calls.Told, posts: Sequence[Post]) -> tuple[Transaction, calls.Told]:
        try:
            tx, reply = self._answer_all(request, posts)
        except Exception as error:
            self._desk.decline(posts)
            # Whose fault it was shows when each is done alone; but a store that is away is away for all.
            if not posts or isinstance(error, sqlite3.OperationalError):
                raise
            posts = ()
            tx, reply = self._answer_all(request, posts)
        self._note(tx)
        self._desk.confirm(posts)
        return tx, reply

    def _answer_all(self, request: calls.Told, posts: Sequence[Post]) -> tuple[Transaction, calls.Told]:
        with self._transaction() as tx:
            reply = calls.answer(tx, request)
            replies = [calls.packed(calls.answer(tx, calls.unpacked(post.request))) for post in posts]
            if posts and not self._desk.prepare(posts, replies, self._job, tx.counters.seq):
                raise LedgerUnavailable("an answer is too long to lie on the desk")
        return tx, reply

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """With the lock: all or nothing of what is done inside."""
        self._desk.settle(self._settled_seq)
        self._db.execute("BEGIN IMMEDIATE")
        changes = self._db.total_changes
        try:
            tx = self._begun()
            yield tx
            tx.finish()
            self._db.execute("COMMIT")
        except BaseException:
            self.cache.clear()
            self._roll_back()
            raise
        tx.changed = self._db.total_changes != changes

    def _note(self, tx: Transaction) -> None:
        self._sidecar.note(self._job, tx.counters.store_epoch, tx.counters.fence)

    def _settled_seq(self, job: int) -> int | None:
        """The last event of a job, whose newest token is noted, for which its writer may not have had the time."""
        for known, store_epoch, fence, seq in self._tokens():
            if known == job:
                self._sidecar.note(job, store_epoch, fence)
                return seq
        return None

    def _let_go(self) -> None:
        self._desk.count_turn()
        self._sidecar.turn.let_go()
        self._desk.ring_next()

    def _make_durable(self, tx: Transaction) -> None:
        # Also where nothing changed: "already committed" may rest on a commit whose client died before it synced.
        if tx.changed or tx.counters.seq > self._synced_seq:
            self._sync(tx.counters.seq)

    def _delete_garbage(self, tx: Transaction) -> None:
        for unit_id, record in tx.garbage:
            delete_object(self.objects, unit_id, record)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """One consistent reading."""
        with translated():
            self._db.execute("BEGIN")
            try:
                yield self._begun()
            finally:
                self._roll_back()

    def close(self) -> None:
        """Give up file, desk and lock. Harmless when repeated."""
        self._closing.close()

    def _begun(self) -> Transaction:
        return Transaction(self._db, self._job, self._now_s(), self.cache, self.objects)

    def _sync(self, seq: int) -> None:
        try:
            os.fdatasync(self._log)
        except OSError as error:
            raise LedgerUnavailable(f"{self._path}: {error.strerror}") from error
        self._synced_seq = max(self._synced_seq, seq)

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _check_file(self) -> None:
        if self._file_id() != self._opened:
            self._reopen()

    def _file_id(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except FileNotFoundError as error:
            raise LedgerUnavailable(f"{self._path} is gone") from error
        return found.st_dev, found.st_ino

    def _reopen(self) -> None:
        self.close()
        self.cache.clear()
        self._opened = _NOWHERE
        self._open(may_create=False)

    def _open(self, *, may_create: bool) -> None:
        with translated(), ExitStack() as stack:
            # In a folder, which `cp ledger.db*` leaves out: reading from a pipe has no end.
            self._sidecar = Sidecar(self._beside("fence"), self._beside("desk") / "turn", self._busy_timeout_s)
            stack.callback(self._sidecar.close)
            self._db = connect(self._path, self._busy_timeout_s, may_create=may_create)
            stack.callback(self._db.close)
            with self._sidecar.turn:
                opened = self._file_id()
                self._job = self._find_job()
                self.objects = FolderStore(self._beside("objects") / str(self._job))
                self._desk = Desk(self._beside("desk"), self._job, self._busy_timeout_s, opened[1])
                stack.callback(self._desk.close)
                self._desk.settle(self._settled_seq)
                self._raise_epochs()
            self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, self._log)
            self._synced_seq = 0
            self._sync(0)
            self._opened = opened
            self._closing = stack.pop_all()

    def _beside(self, kind: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{kind}")

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
        journal = _write_ahead(db, busy_timeout_s)
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


def _write_ahead(db: sqlite3.Connection, patience_s: float) -> str:
    """The journal mode after WAL was asked for.

    Two who open a file at once may meet at a lock that SQLite does not wait for, so we wait here, for all its locks.
    """
    db.execute("PRAGMA busy_timeout = 0")
    for left in reversed(range(1 + int(patience_s / LOOK_AGAIN_S))):
        try:
            with closing(db.execute("PRAGMA journal_mode = WAL")) as answer:
                (journal,) = answer.fetchone()
            break
        except sqlite3.OperationalError as error:
            if left == 0 or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        time.sleep(LOOK_AGAIN_S)
    db.execute(f"PRAGMA busy_timeout = {round(patience_s * 1000)}")
    return str(journal)


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
