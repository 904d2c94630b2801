"""The ledger at scale: Valkey (Redis protocol), one Lua function a call.

Invariants
* A call is one function of the library in `_valkey/*.lua`: it happens whole or not at all, whatever becomes of client or
  connection. What it acknowledges is in the append-only file before the call returns (`WAITAOF`, in the same round trip);
  a lease alone is not waited for, since one that is lost is void.
* All keys of a job share a hash slot, so that jobs spread over shards; the URL may name any primary of a cluster.
* A server that was not seen before raises the store epoch before it is used: see `_valkey/link.py`.
* Above 80 % of `maxmemory` no more units come in; what is on its way still finds room.

A server to use: `appendonly yes`, `appendfsync everysec` (a waiting commit brings the sync forward), `maxmemory` with
`maxmemory-policy noeviction`; users of its own for each role as in `_valkey/acl.py`; TLS in front of anything shared.

Non-goals: calls while a job's slot is being moved (they are unavailable until it has); journals outside the store (a
journal grows with every heartbeat, which an object cannot; it is bounded by the units in flight).
"""

import json
from collections.abc import Callable, Iterator, Sequence

from scaler.ledger._valkey.address import Address, parse_url
from scaler.ledger._valkey.link import Link
from scaler.ledger._valkey.readings import (
    census_entry,
    dead_letter_of,
    event_of,
    report_text,
    settings_text,
    stats_of,
    workers_of,
)
from scaler.ledger._valkey.runs import commit_words, fence_bytes, run_of
from scaler.ledger._valkey.wire import (
    batch_of,
    control_of,
    delta_words,
    group_words,
    identity_text,
    lease_reply_of,
    status_text,
)
from scaler.ledger.bodies import FolderStore, sample_fault
from scaler.ledger.contract import (
    Beat,
    CensusEntry,
    Commit,
    CommitOutcome,
    Control,
    DeadLetter,
    HeldSample,
    LeaseReply,
    Ledger,
    Release,
)
from scaler.ledger.history import HistoryEvent
from scaler.ledger.rules import group_up
from scaler.model.job import JobSettings, LedgerStats, TrainerReport, WorkerIdentity, WorkerRecord, WorkerStatus
from scaler.model.work import Batch, PolicyVersion, ReleaseReason, WorkUnit

_OUTCOMES = {ord("c"): CommitOutcome.COMMITTED, ord("a"): CommitOutcome.ALREADY, ord("r"): CommitOutcome.REFUSED}
_COMPACTED_AT_ONCE = 1000
_SCANNED_AT_ONCE = 1000
_SAMPLES_AT_ONCE = 100
MAX_GROUP_SIZE = 4096
"""Lua hands at most some thousand words to one command."""


def open_url(url: str, job: str) -> Ledger:
    """Open a job's ledger; the forms of a URL are in `scaler.ledger._valkey.address`.

    Raises:
        LedgerRefused: the server could lose what it acknowledges; the message has the remedy.
        LedgerUnavailable: it does not answer.
    """
    return ValkeyLedger(parse_url(url), job)


def open_for_reading(url: str, job: str) -> Ledger:
    """Open the ledger of a job that is there, to read it; nothing is created and no epoch raised.

    Raises:
        LedgerRefused: no such job, or as `open_url`.
        LedgerUnavailable: it does not answer.
    """
    return ValkeyLedger(parse_url(url), job, reads_only=True)


class ValkeyLedger:
    """See the contract for what the methods promise."""

    def __init__(
        self, address: Address, job: str, *, now_s: Callable[[], float] | None = None, reads_only: bool = False
    ) -> None:
        """Open and check. `now_s` replaces the store's clock, for tests; all clients of a store must then share it."""
        self._objects = FolderStore(address.objects) if address.objects else None
        self._link = Link(address, job, now_s, reads_only=reads_only)
        self._link.open()

    def configure(self, settings: JobSettings) -> None:
        """Set the job's rules."""
        limits = (settings.admitted_samples, settings.max_concurrent, settings.max_staleness)
        rules = {
            "on_stale": settings.on_stale.value,
            "unit_failure_limit": settings.unit_failure_limit,
            "group_redraw_limit": settings.group_redraw_limit,
            "backoff_initial_s": settings.backoff_initial_s,
            "backoff_max_s": settings.backoff_max_s,
            "history_events": settings.history_events,
        }
        told = json.dumps({"group_size": settings.group_size, "max_staleness": settings.max_staleness})
        self._link.call(
            "configure", settings_text(settings), told, *limits, *(word for rule in rules.items() for word in rule)
        )

    def register(self, identity: WorkerIdentity) -> int:
        """Make a worker known."""
        return int(self._link.call("register", identity.worker, identity_text(identity)))

    def drain(self, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
        """Order a worker to leave."""
        return bool(self._link.call("drain", worker, repr(float(deadline_s)), reason, epoch))

    def undrain(self, worker: str, epoch: int) -> bool:
        """Take the order back."""
        return bool(self._link.call("undrain", worker, epoch))

    def put_units(self, units: Sequence[WorkUnit]) -> int:
        """Add units."""
        groups = group_up(units, MAX_GROUP_SIZE)
        words = [word for name, members in groups.items() for word in group_words(self._objects, name, members)]
        return int(self._link.call("put_units", *words)) if words else 0

    def lease(self, worker: str, n: int, ttl_s: float) -> LeaseReply:
        """Hand out units. Not waited for on disk: a lease that a crash forgets is void with its epoch."""
        return lease_reply_of(self._objects, worker, self._link.call("lease", worker, n, ttl_s, durable=False))

    def heartbeat(self, worker: str, beats: Sequence[Beat], status: WorkerStatus, ttl_s: float) -> Control:
        """Keep leases, append progress."""
        words = [
            word
            for beat in beats
            for word in (beat.unit_id, fence_bytes(beat.fencing_token), *delta_words(beat.progress))
        ]
        progress = any(beat.progress is not None for beat in beats)
        reply = self._link.call("heartbeat", worker, ttl_s, status_text(status), *words, durable=progress)
        return control_of(reply)

    def commit(self, worker: str, commits: Sequence[Commit]) -> tuple[CommitOutcome, ...]:
        """Turn leases into samples."""
        reply = self._link.call("commit", worker, *commit_words(self._objects, commits)) if commits else b""
        return tuple([_OUTCOMES[letter] for letter in reply])

    def release(self, worker: str, releases: Sequence[Release]) -> tuple[bool, ...]:
        """Give leases back."""
        words = [
            word
            for release in releases
            for word in (
                release.unit_id,
                fence_bytes(release.fencing_token),
                release.reason.value,
                *delta_words(release.progress),
                release.error,
            )
        ]
        reply = self._link.call("release", worker, *words) if words else b""
        return tuple(digit == ord("1") for digit in reply)

    def release_worker(self, worker: str, reason: ReleaseReason, epoch: int | None = None) -> int:
        """Give all of a worker's leases back and mark it gone."""
        return int(self._link.call("release_worker", worker, reason.value, "" if epoch is None else epoch))

    def expire(self) -> int:
        """Give back every lease that has run out."""
        return int(self._link.call("expire"))

    def attach_trainer(self, owner: str) -> int:
        """Become the job's trainer."""
        return int(self._link.call("attach_trainer", owner))

    def take_batch(self, trainer_epoch: int, groups: int, trainer_version: int, max_staleness: int) -> Batch | None:
        """Hand out complete groups."""
        if groups < 1:
            raise ValueError(f"a batch of {groups} groups")
        reply = self._link.call("take_batch", trainer_epoch, groups, trainer_version, max_staleness)
        return None if reply is None else batch_of(self._objects, reply)

    def take_more(self, trainer_epoch: int, batch_id: int, reject: Sequence[str]) -> Batch | None:
        """Replace groups of a batch."""
        reply = self._link.call("take_more", trainer_epoch, batch_id, *reject)
        return None if reply is None else batch_of(self._objects, reply)

    def ack_batch(self, trainer_epoch: int, batch_ids: Sequence[int]) -> int:
        """The batches are in a durable checkpoint."""
        return int(self._link.call("ack_batch", trainer_epoch, *batch_ids))

    def publish(self, trainer_epoch: int, version: PolicyVersion) -> None:
        """A version's weights are durable and readable."""
        self._link.call("publish", trainer_epoch, version.step, version.digest)

    def report(self, trainer_epoch: int, report: TrainerReport) -> None:
        """What the trainer says of itself."""
        self._link.call("report", trainer_epoch, report_text(report))

    def stats(self) -> LedgerStats:
        """One consistent reading."""
        return stats_of(self._link.call("stats", durable=False))

    def workers(self) -> tuple[WorkerRecord, ...]:
        """Workers that are live, or went within the last hour."""
        return workers_of(self._link.call("workers", durable=False))

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Units that failed for good."""
        return tuple(map(dead_letter_of, self._link.command("LRANGE", "e", 0, -1)))

    def history(self, after_seq: int = 0, limit: int = 10_000) -> Sequence[HistoryEvent]:
        """Events, in order."""
        entries = self._link.command("XRANGE", "x", f"{after_seq + 1}-0", "+", "COUNT", limit)
        return [event_of(seq, text) for seq, (_, text) in entries]

    def census(self) -> Iterator[CensusEntry]:
        """Every unit the store holds."""
        return (census_entry(unit_id, record) for unit_id, record in self._scan("u", _SCANNED_AT_ONCE))

    def check(self) -> None:
        """Nothing to do: a server has checked its files before it answers."""

    def samples(self) -> Iterator[HeldSample]:
        """Every sample the store holds."""
        for first, text in self._scan("s", _SAMPLES_AT_ONCE):
            for unit_id, record in run_of(first, text):
                yield HeldSample(unit_id, sample_fault(self._objects, unit_id, record))

    def compact(self) -> int:
        """Drop old history and the units whose ends it told, then objects that no record names any more."""
        dropped: int = 0
        while True:
            count, objects = self._link.call("compact", _COMPACTED_AT_ONCE)
            dropped += int(count)
            self._delete_objects([name.decode() for name in objects])
            if count < _COMPACTED_AT_ONCE and not objects:
                return dropped

    def close(self) -> None:
        """Give up the connection."""
        self._link.close()

    def _scan(self, table: str, at_once: int) -> Iterator[tuple[str, bytes]]:
        """All of a hash, each field once."""
        cursor, seen = b"0", set[bytes]()
        while True:
            cursor, flat = self._link.command("HSCAN", table, cursor, "COUNT", at_once)
            found = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2) if flat[i] not in seen}
            seen |= found.keys()
            yield from ((field.decode(), value) for field, value in found.items())
            if cursor == b"0":
                return

    def _delete_objects(self, names: Sequence[str]) -> None:
        if not names or self._objects is None:
            return
        bodies = {}
        for name in names:
            bodies[name] = self._objects.get(name)
            self._objects.delete(name)
        # One that was named again between the question and the deletion is put back.
        for name in self._link.call("objects_deleted", *names):
            self._objects.put(name.decode(), bodies[name.decode()])
