"""The default ledger: an SQLite file on one machine, for any number of processes there.

Policy
* One transaction a call, begun as a writer; leases and commits that wait for each other share one (`_sqlite.desk`). The
  write-ahead log is synced up to it before the call returns: what is acknowledged is durable, as with
  `synchronous=FULL` (`_sqlite.store` says why it is done by hand).
* Bodies are encoded before and decoded after the transaction; inside it there are a handful of statements, whatever
  the number of units in the store.
* Several jobs may share a file; they share nothing but its lock.
* The store's clock is this machine's. The file must lie on a local disk: SQLite's locks do not hold on network file
  systems, which is why a cluster uses another engine.
* Beside `ledger.db` lie `ledger.db.fence` (see `_sqlite.sidecar`), `ledger.db.desk` (calls that wait, and the pipes on
  which clients wake each other; worth nothing without them), and `ledger.db.objects` (bodies above 64 KiB). A backup is
  the database (by `VACUUM INTO`, or SQLite's backup) and the objects, without the rest.

Choices that the contract leaves open
* A unit too stale to be trained on ends its group at the first call that shows it (`_sqlite.groups`); a sample committed
  too late is kept, counted, and dropped with its group, so that its place is free when `commit` returns.
* A re-drawn group has the seeds of the old one, shifted, and queues as a new one.
* A heartbeat or release for a lease that ran out is refused, a commit is not, until the fence is passed on.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scaler.ledger._sqlite import batches, calls, compaction, fleet, leasing, putting, reading, returning
from scaler.ledger._sqlite.groups import sweep_stale
from scaler.ledger._sqlite.read_store import ReadStore
from scaler.ledger._sqlite.schema import MAX_GROUP_SIZE
from scaler.ledger._sqlite.store import Store
from scaler.ledger._sqlite.transaction import dump_settings
from scaler.ledger.contract import (
    Beat,
    CensusEntry,
    Commit,
    CommitOutcome,
    Control,
    DeadLetter,
    HeldSample,
    LeaseReply,
    LedgerRefused,
    Release,
)
from scaler.ledger.history import EventKind, HistoryEvent
from scaler.ledger.rules import group_up
from scaler.model.job import JobSettings, LedgerStats, TrainerReport, WorkerIdentity, WorkerRecord, WorkerStatus
from scaler.model.work import Batch, PolicyVersion, ReleaseReason, WorkUnit

BUSY_TIMEOUT_S = 10.0
"""How long a call waits for other writers before it raises `LedgerUnavailable`."""


def open_url(url: str, job: str) -> "SqliteLedger":
    """Open `sqlite:///absolute/path`; the file is made if it is not there, its folder is not.

    Raises:
        LedgerRefused: not such a URL, not a ledger, or a ledger of another schema.
        LedgerUnavailable: the place does not answer.
    """
    return open_path(_path_of(url), job)


def open_for_reading(url: str, job: str) -> "SqliteLedger":
    """Open a ledger that is there, and leave no trace in it; whatever would write is refused.

    Raises:
        LedgerRefused: not such a URL, not a ledger, or no such job in it.
        LedgerUnavailable: the place does not answer.
    """
    return SqliteLedger(ReadStore(_path_of(url), job, time.time, BUSY_TIMEOUT_S))  # noqa: TID251 - the store's clock


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "sqlite" or parts.netloc or parts.query or parts.fragment or not path.strip("/"):
        raise LedgerRefused(f"ledger URL {url!r}: write it like sqlite:///absolute/path/ledger.db")
    return Path(path)


def open_path(
    path: Path,
    job: str,
    *,
    # The store's clock is the machine's, the same for all who open the file.
    now_s: Callable[[], float] = time.time,  # noqa: TID251
    busy_timeout_s: float = BUSY_TIMEOUT_S,
) -> "SqliteLedger":
    """Open a job's ledger in a file, with a store clock of the caller's choice."""
    return SqliteLedger(Store(path, job, now_s, busy_timeout_s))


class SqliteLedger:
    """`scaler.ledger.contract.Ledger` on SQLite; one object serves one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def configure(self, settings: JobSettings) -> None:
        """See `Ledger.configure`."""
        text = dump_settings(settings)
        with self._store.write() as tx:
            (before,) = tx.db.execute("SELECT settings FROM jobs WHERE job = ?", (tx.job,)).fetchone()
            if before == text:
                return
            tx.db.execute("UPDATE jobs SET settings = ? WHERE job = ?", (text, tx.job))
            tx.counters.configured += 1
            facts = {"group_size": settings.group_size, "max_staleness": settings.max_staleness}
            tx.record(EventKind.CONFIGURED, data=facts)
            sweep_stale(tx)

    def register(self, identity: WorkerIdentity) -> int:
        """See `Ledger.register`."""
        with self._store.write() as tx:
            return fleet.register(tx, identity)

    def drain(self, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
        """See `Ledger.drain`."""
        with self._store.write() as tx:
            return fleet.drain(tx, worker, deadline_s, reason, epoch)

    def undrain(self, worker: str, epoch: int) -> bool:
        """See `Ledger.undrain`."""
        with self._store.write() as tx:
            return fleet.undrain(tx, worker, epoch)

    def put_units(self, units: Sequence[WorkUnit]) -> int:
        """See `Ledger.put_units`."""
        groups = group_up(units, MAX_GROUP_SIZE)
        with self._store.write() as tx:
            return putting.put_groups(tx, groups)

    def lease(self, worker: str, n: int, ttl_s: float) -> LeaseReply:
        """See `Ledger.lease`."""
        reply = self._store.call(calls.lease_request(worker, n, ttl_s))
        return calls.lease_reply(self._store.objects, self._store.cache, worker, reply)

    def heartbeat(self, worker: str, beats: Sequence[Beat], status: WorkerStatus, ttl_s: float) -> Control:
        """See `Ledger.heartbeat`."""
        with self._store.write() as tx:
            return leasing.heartbeat(tx, worker, beats, status, ttl_s)

    def commit(self, worker: str, commits: Sequence[Commit]) -> tuple[CommitOutcome, ...]:
        """See `Ledger.commit`."""
        request = calls.commit_request(self._store.objects, self._store.cache, worker, commits)
        return calls.commit_reply(self._store.call(request))

    def release(self, worker: str, releases: Sequence[Release]) -> tuple[bool, ...]:
        """See `Ledger.release`."""
        with self._store.write() as tx:
            return leasing.release(tx, worker, releases)

    def release_worker(self, worker: str, reason: ReleaseReason, epoch: int | None = None) -> int:
        """See `Ledger.release_worker`."""
        with self._store.write() as tx:
            return fleet.release_worker(tx, worker, reason, epoch)

    def expire(self) -> int:
        """See `Ledger.expire`."""
        with self._store.write() as tx:
            return returning.expire(tx)

    def attach_trainer(self, owner: str) -> int:
        """See `Ledger.attach_trainer`."""
        with self._store.write() as tx:
            return batches.attach(tx, owner)

    def take_batch(self, trainer_epoch: int, groups: int, trainer_version: int, max_staleness: int) -> Batch | None:
        """See `Ledger.take_batch`."""
        with self._store.write() as tx:
            taken = batches.take(tx, trainer_epoch, groups, trainer_version, max_staleness)
        return None if taken is None else self._read_batch(taken[0], redelivered=taken[1])

    def take_more(self, trainer_epoch: int, batch_id: int, reject: Sequence[str]) -> Batch | None:
        """See `Ledger.take_more`. None also for a batch that is not open."""
        with self._store.write() as tx:
            full = batches.take_more(tx, trainer_epoch, batch_id, reject)
        return self._read_batch(batch_id, redelivered=False) if full else None

    def ack_batch(self, trainer_epoch: int, batch_ids: Sequence[int]) -> int:
        """See `Ledger.ack_batch`."""
        with self._store.write() as tx:
            return batches.ack(tx, trainer_epoch, batch_ids)

    def publish(self, trainer_epoch: int, version: PolicyVersion) -> None:
        """See `Ledger.publish`. `ValueError` for a step that goes down within a trainer epoch."""
        with self._store.write() as tx:
            batches.publish(tx, trainer_epoch, version)

    def report(self, trainer_epoch: int, report: TrainerReport) -> None:
        """See `Ledger.report`."""
        with self._store.write() as tx:
            batches.report(tx, trainer_epoch, report)

    def stats(self) -> LedgerStats:
        """See `Ledger.stats`."""
        with self._store.read() as tx:
            return reading.stats(tx)

    def workers(self) -> tuple[WorkerRecord, ...]:
        """See `Ledger.workers`."""
        with self._store.read() as tx:
            return fleet.records(tx)

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """See `Ledger.dead_letters`."""
        with self._store.read() as tx:
            return reading.dead_letters(tx)

    def history(self, after_seq: int = 0, limit: int = 10_000) -> Sequence[HistoryEvent]:
        """See `Ledger.history`."""
        with self._store.read() as tx:
            return reading.history(tx, after_seq, limit)

    def census(self) -> Iterator[CensusEntry]:
        """See `Ledger.census`."""
        return reading.census(self._store)

    def check(self) -> None:
        """See `Ledger.check`."""
        reading.check(self._store)

    def samples(self) -> Iterator[HeldSample]:
        """See `Ledger.samples`."""
        return reading.samples(self._store)

    def compact(self) -> int:
        """See `Ledger.compact`."""
        return compaction.compact(self._store)

    def close(self) -> None:
        """See `Ledger.close`."""
        self._store.close()

    def _read_batch(self, batch_id: int, *, redelivered: bool) -> Batch:
        with self._store.read() as tx:
            return batches.read(tx, batch_id, redelivered=redelivered)
