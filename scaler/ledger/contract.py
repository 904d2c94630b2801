"""The contract of every ledger engine (design section 4), proved by one conformance suite for all of them.

Promises
* What was acknowledged is durable. Every call is one atomic step; a client killed inside one leaves none or all of it.
* The store's clock decides expiry. `commit` and `heartbeat` with an old fencing token are refused, one unit by one.
* A unit that comes back keeps its progress (as its `Resume` says). Units of half-done groups are leased first, the
  oldest admitted first.
* A token or time bound is a finish reason. Loss of capacity costs no retry; only `UNIT_FAILURE` counts to the limit.
* A batch is itself a lease: until acknowledged it comes again, the same groups in the same order, to whoever attaches next.
* Every change is in the history, in order, in the same atomic step.

Not its business: who is drained when, what a reward is, how weights travel.

Calls are synchronous and block for one round trip; asynchronous callers use a thread. One object serves one thread at
a time; each process, and each thread that works at the same time, opens its own.

Errors: `LedgerUnavailable` where the store does not answer (nothing is known about the call; every call may be
repeated), `LedgerRefused` where the store must not be used or is full, `StaleEpoch` where the caller has been succeeded.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from scaler.ledger.history import HistoryEvent
from scaler.model.job import JobSettings, LedgerStats, TrainerReport, WorkerIdentity, WorkerRecord, WorkerStatus
from scaler.model.work import (
    Batch,
    DropReason,
    FencingToken,
    Lease,
    PolicyVersion,
    ProgressDelta,
    ReleaseReason,
    Sample,
    WorkUnit,
)


class LedgerError(Exception):
    """Base of what a ledger raises."""


class LedgerUnavailable(LedgerError):
    """The store did not answer. Nothing is known about the call; repeat it after a back-off."""


class LedgerRefused(LedgerError):
    """The store may not be used as it is (no append-only file, wrong schema, not configured), or takes no more units."""


NOT_CONFIGURED = (
    "the job is not configured yet: its controller sets the rules, unless it is a dry run; "
    "so does `python -m trainer --configure`"
)
"""What `LedgerRefused` says, on every engine, where a call needs the job's rules and nobody has set them."""


class StaleEpoch(LedgerError):
    """A newer trainer or controller has taken over; the caller must stop."""


_STUMBLES = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""What code raises over bytes that are not what it wrote; undecodable text and broken JSON are `ValueError`s."""


@contextmanager
def legible(what: str) -> Iterator[None]:
    """For those who only read a store, which may be damaged: what cannot be made out there is `LedgerRefused`."""
    try:
        yield
    except _STUMBLES as error:
        raise LedgerRefused(f"{what} cannot be read: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What every reply to a worker carries: the ledger is the drain channel."""

    store_now_s: float
    drain_deadline_s: float | None = None
    """Store clock. Set: take no more leases, be done by then."""
    drain_reason: str | None = None
    abandon: tuple[str, ...] = ()
    """Unit ids of this worker that can no longer be consumed within the staleness bound: stop and release ABANDONED."""
    lost: tuple[str, ...] = ()
    """Unit ids whose fencing token was refused: not this worker's any more; stop without releasing."""
    version: int | None = None
    """Newest published policy version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReply:
    """Leases granted, perhaps none."""

    leases: tuple[Lease, ...]
    control: Control


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Keeps one lease alive, and publishes what was generated since the last beat."""

    unit_id: str
    fencing_token: FencingToken
    progress: ProgressDelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The end of a lease: its sample.."""

    unit_id: str
    fencing_token: FencingToken
    sample: Sample


class CommitOutcome(StrEnum):
    """What became of a commit."""

    COMMITTED = "committed"
    ALREADY = "already"
    """The same unit under the same fence was committed before: a repeat, nothing changed."""
    REFUSED = "refused"
    """Fence too old, lease gone, or the unit can no longer be used; nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A lease given back, with the tokens not yet published."""

    unit_id: str
    fencing_token: FencingToken
    reason: ReleaseReason
    progress: ProgressDelta | None = None
    error: str = ""
    """What went wrong, for UNIT_FAILURE; kept with a dead letter."""


class UnitState(StrEnum):
    """Where a unit is. Everything but PENDING, LEASED and COMMITTED is final."""

    PENDING = "pending"
    LEASED = "leased"
    COMMITTED = "committed"
    """Its sample is in the buffer, or in a batch not yet acknowledged."""
    CONSUMED = "consumed"
    DROPPED = "dropped"
    DEAD_LETTERED = "dead_lettered"


@dataclass(frozen=True, slots=True)
class CensusEntry:
    """A unit as the store holds it now; compared with what the history says."""

    unit_id: str
    state: UnitState
    fencing_token: FencingToken | None


@dataclass(frozen=True, slots=True)
class HeldSample:
    """Of a sample as the store holds it now: whose it is, and whether it can be read."""

    unit_id: str
    fault: str = ""
    """Why it cannot be read; empty where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A unit that failed for good."""

    unit_id: str
    failures: int
    error: str


class Ledger(Protocol):
    """See the module's docstring for the promises. All methods raise `LedgerUnavailable` where the store is away."""

    def configure(self, settings: JobSettings) -> None:
        """Set the job's rules. Repeating it is harmless; `group_size` of units already there binds."""
        ...

    def register(self, identity: WorkerIdentity) -> int:
        """Make a worker known and return its incarnation (1, 2, ...).

        A worker of the same name that was known before is superseded: its leases go back with their progress, and
        its drain mark is void.
        """
        ...

    def drain(self, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
        """Order a worker to leave by `deadline_s` (store clock). False where it is unknown or gone.

        An earlier deadline wins over a later one. `epoch` is the controller's leader epoch: `StaleEpoch` where the
        ledger has seen a higher one (in `drain`, `undrain` or `release_worker`).
        """
        ...

    def undrain(self, worker: str, epoch: int) -> bool:
        """Take the order back. False where there was none."""
        ...

    def put_units(self, units: Sequence[WorkUnit]) -> int:
        """Add units; those whose id was ever known are skipped. Returns how many were new.

        All units of a group come in one call, else `ValueError`. `LedgerRefused` where the store is nearly full.
        """
        ...

    def lease(self, worker: str, n: int, ttl_s: float) -> LeaseReply:
        """Hand out at most `n` units for `ttl_s`; none to a draining, unknown or gone worker, or past admission.

        Leases that have run out are expired first. Order: units that come back or belong to a group of which a unit
        was leased before, oldest admitted group first; then groups in the order they were put.
        """
        ...

    def heartbeat(self, worker: str, beats: Sequence[Beat], status: WorkerStatus, ttl_s: float) -> Control:
        """Extend leases by `ttl_s` from now, append progress, tell status, hear orders.

        A beat whose fence is old, or whose delta leaves a gap, changes nothing and is in `Control.lost`.
        """
        ...

    def commit(self, worker: str, commits: Sequence[Commit]) -> tuple[CommitOutcome, ...]:
        """Turn leases into samples; idempotent by (unit, fence). Valid until the fence is passed on, also late."""
        ...

    def release(self, worker: str, releases: Sequence[Release]) -> tuple[bool, ...]:
        """Give leases back. False, one by one, where the fence is old. Progress is kept as the unit's `Resume` says."""
        ...

    def release_worker(self, worker: str, reason: ReleaseReason, epoch: int | None = None) -> int:
        """Give all of a worker's leases back and mark it gone. Returns how many.

        `epoch` as in `drain`; None when the worker says goodbye itself.
        """
        ...

    def expire(self) -> int:
        """Give back every lease that has run out. Returns how many."""
        ...

    def attach_trainer(self, owner: str) -> int:
        """Become the job's trainer and return its epoch; older ones are refused from now on (`StaleEpoch`)."""
        ...

    def take_batch(self, trainer_epoch: int, groups: int, trainer_version: int, max_staleness: int) -> Batch | None:
        """Hand out `groups` complete groups, oldest complete first, or None where there are too few.

        A batch not acknowledged comes first, unchanged, with `redelivered` set, whatever the other arguments. Groups
        too stale (trainer_version - oldest_version > max_staleness, or the job's own bound where that is less) are
        dropped or drawn again, as configured.
        """
        ...

    def take_more(self, trainer_epoch: int, batch_id: int, reject: Sequence[str]) -> Batch | None:
        """Take the groups of ids `reject` out of a batch (dropped as FILTERED) and fill their places.

        None where the buffer holds too few yet: the rejections stand, the batch stays as it is, and the call may be
        repeated with nothing to reject. The batch it returns is what comes again.
        """
        ...

    def ack_batch(self, trainer_epoch: int, batch_ids: Sequence[int]) -> int:
        """The batches are in a durable checkpoint. Unknown and repeated ids are skipped; returns how many were new."""
        ...

    def publish(self, trainer_epoch: int, version: PolicyVersion) -> None:
        """A version's weights are durable and readable. Its step may not go down within a trainer epoch."""
        ...

    def report(self, trainer_epoch: int, report: TrainerReport) -> None:
        """What the trainer says of itself; kept until the next one, stamped by the store's clock."""
        ...

    def stats(self) -> LedgerStats:
        """One consistent reading; cost does not grow with the number of units."""
        ...

    def workers(self) -> tuple[WorkerRecord, ...]:
        """Workers that are live, or went within the last hour."""
        ...

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Units that failed for good, with their errors."""
        ...

    def history(self, after_seq: int = 0, limit: int = 10_000) -> Sequence[HistoryEvent]:
        """Events with a higher sequence number, in order."""
        ...

    def census(self) -> Iterator[CensusEntry]:
        """Every unit the store holds; consistent only while nobody writes."""
        ...

    def check(self) -> None:
        """Have the store look itself over, where it can: `LedgerRefused` says what is damaged."""
        ...

    def samples(self) -> Iterator[HeldSample]:
        """The samples of committed units, each read and decoded; those of other units may be among them.

        Consistent only while nobody writes.
        """
        ...

    def compact(self) -> int:
        """Drop history beyond `settings.history_events`, and bodies of final units; keep watermarks of ids."""
        ...

    def close(self) -> None:
        """Give up the connection; the object is of no use afterwards."""
        ...


__all__ = [
    "NOT_CONFIGURED",
    "Beat",
    "CensusEntry",
    "Commit",
    "CommitOutcome",
    "Control",
    "DeadLetter",
    "DropReason",
    "HeldSample",
    "LeaseReply",
    "Ledger",
    "LedgerError",
    "LedgerRefused",
    "LedgerUnavailable",
    "Release",
    "StaleEpoch",
    "UnitState",
    "legible",
]
