"""A lease's life: kept alive, turned into a sample, given back."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Sequence
from typing import NamedTuple

from scaler.ledger._sqlite.fleet import control_of, note_commits, note_heartbeat
from scaler.ledger._sqlite.groups import drop_stale
from scaler.ledger._sqlite.objects import UnitObjects, forget_bodies
from scaler.ledger._sqlite.returning import count_pending, give_back
from scaler.ledger._sqlite.schema import BACKING_OFF, COMMITTED, DROPPED, LEASED, PENDING, READY
from scaler.ledger._sqlite.transaction import ClientCache, Transaction, entry_text
from scaler.ledger._sqlite.units import UnitRow, append_progress, find_units, note_oldest, renew_oldest
from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, encode_sample, pack
from scaler.ledger.contract import Beat, Commit, CommitOutcome, Control, Release
from scaler.ledger.history import EventKind
from scaler.model.job import WorkerStatus
from scaler.model.work import ReleaseReason

_COMMITTABLE = frozenset({PENDING, BACKING_OFF, LEASED})
"""While its token is the last one handed out: a lease that ran out may still end well."""


# --- heartbeat --------------------------------------------------------------------------------------------------------


def heartbeat(tx: Transaction, worker: str, beats: Sequence[Beat], status: WorkerStatus, ttl_s: float) -> Control:
    """See `Ledger.heartbeat`."""
    row = note_heartbeat(tx, worker, status)
    units = find_units(tx, [beat.unit_id for beat in beats])
    alive, abandon, lost = [], [], []
    for beat in beats:
        unit = units.get(beat.unit_id)
        if unit is None or not unit.held_under(beat.fencing_token):
            lost.append(beat.unit_id)
        elif unit.state == DROPPED:
            abandon.append(beat.unit_id)
        elif unit.state != LEASED or not (beat.progress is None or append_progress(tx, unit, beat.progress)):
            lost.append(beat.unit_id)
        else:
            alive.append(unit)
    abandon += _extend(tx, alive, tx.now_s + ttl_s)
    return control_of(tx, row, abandon=abandon, lost=lost)


def _extend(tx: Transaction, units: Sequence[UnitRow], deadline_s: float) -> list[str]:
    """Move deadlines and journals' lengths on; returns the ids of those whose group the new tokens show to be stale."""
    if not units:
        return []
    tx.db.executemany(
        "UPDATE units SET deadline_s = ?, published = ?, oldest = ? WHERE uid = ?",
        [(deadline_s, unit.published, unit.oldest, unit.uid) for unit in units],
    )
    tx.counters.next_expiry_s = min(deadline_s, tx.counters.next_expiry_s or deadline_s)
    note_oldest(tx, units)
    dropped = drop_stale(tx, [unit.gid for unit in units])
    return [unit.unit_id for unit in units if unit.gid in dropped]


# --- commit -----------------------------------------------------------------------------------------------------------


class PackedCommit(NamedTuple):
    """A commit whose sample is encoded already, so that the lock is not held meanwhile."""

    unit_id: str
    uid: int | None
    """As the client remembers it."""
    store_epoch: int
    fence: int
    tokens: int
    oldest_version: int
    record: bytes


def pack_commit(objects: ObjectStore, cache: ClientCache, commit: Commit) -> PackedCommit:
    """Encode a commit's sample.

    Raises:
        ValueError: the sample is of another unit.
    """
    sample, unit_id, token = commit.sample, commit.unit_id, commit.fencing_token
    if sample.unit_id != unit_id:
        raise ValueError(f"a commit of {unit_id} with a sample of {sample.unit_id}")
    body = encode_sample(sample)
    record = pack(None if len(body) <= INLINE_BYTES else UnitObjects(objects, unit_id), body)
    uid, tokens = cache.uid_of(unit_id), len(sample.tokens)
    return PackedCommit(unit_id, uid, token.store_epoch, token.counter, tokens, sample.oldest_version, record)


def commit(tx: Transaction, worker: str, commits: Sequence[PackedCommit]) -> tuple[CommitOutcome, ...]:
    """See `Ledger.commit`. A sample that is too stale already is committed, and its group dropped as stale at once."""
    units = find_units(tx, [packed.unit_id for packed in commits], [packed.uid for packed in commits])
    outcomes = []
    accepted: list[tuple[UnitRow, PackedCommit]] = []
    for packed in commits:
        unit = units.get(packed.unit_id)
        outcome = _judge(tx, unit, packed)
        if unit is not None and outcome is CommitOutcome.COMMITTED:
            _count_commit(tx, unit, packed.tokens)
            accepted.append((unit, packed))
        outcomes.append(outcome)
    if accepted:
        _store_samples(tx, worker, accepted)
    return tuple(outcomes)


def _judge(tx: Transaction, unit: UnitRow | None, packed: PackedCommit) -> CommitOutcome:
    if unit is None or not unit.held_as(packed.store_epoch, packed.fence):
        return CommitOutcome.REFUSED
    if unit.tokens is not None:
        return CommitOutcome.ALREADY
    # A raised store epoch voids every lease, also one whose unit nobody else has had since.
    if unit.state not in _COMMITTABLE or packed.store_epoch != tx.counters.store_epoch:
        return CommitOutcome.REFUSED
    return CommitOutcome.COMMITTED


def _count_commit(tx: Transaction, unit: UnitRow, tokens: int) -> None:
    counters = tx.counters
    if unit.state == LEASED:
        counters.running -= 1
    else:
        count_pending(tx, [unit], -1)
    counters.buffered += 1
    counters.committed_tokens += tokens
    unit.state, unit.tokens = COMMITTED, tokens


def _store_samples(tx: Transaction, worker: str, accepted: Sequence[tuple[UnitRow, PackedCommit]]) -> None:
    tx.db.executemany(
        f"UPDATE units SET state = {COMMITTED}, owner = NULL, tokens = ?, oldest = ? WHERE uid = ?",
        [(packed.tokens, packed.oldest_version, unit.uid) for unit, packed in accepted],
    )
    tx.db.executemany(
        "INSERT INTO samples (uid, body) VALUES (?, ?)", [(unit.uid, packed.record) for unit, packed in accepted]
    )
    note_commits(tx, worker, len(accepted))
    entries = [
        entry_text(packed.unit_id, unit.fence_text, unit.attempt, packed.tokens, packed.oldest_version)
        for unit, packed in accepted
    ]
    tx.record(EventKind.COMMITTED, entries, keys=("fence", "attempt", "tokens", "oldest_version"), worker=worker)
    by_group: dict[int, list[int]] = {}
    for unit, packed in accepted:
        by_group.setdefault(unit.gid, []).append(packed.oldest_version)
        if unit.published:
            forget_bodies(tx, "progress", unit.name, unit.uid, unit.uid + 1)
    for gid, versions in by_group.items():
        _grow_group(tx, gid, versions)
    for unit, packed in accepted:
        if unit.oldest is not None and unit.oldest < packed.oldest_version:
            renew_oldest(tx, unit.gid)
    drop_stale(tx, by_group)


def _grow_group(tx: Transaction, gid: int, versions: Sequence[int]) -> None:
    counters = tx.counters
    (state,) = tx.db.execute(
        "UPDATE groups SET committed = committed + ?2, oldest = min(ifnull(oldest, ?3), ?3),"
        f" state = iif(committed + ?2 = size, {READY}, state), ready = iif(committed + ?2 = size, ?4, NULL),"
        " ready_at_s = iif(committed + ?2 = size, ?5, NULL) WHERE gid = ?1 RETURNING state",
        (gid, len(versions), min(versions), counters.ready + 1, tx.now_s),
    ).fetchone()
    if state == READY:
        counters.ready += 1
        counters.ready_groups += 1


# --- release ----------------------------------------------------------------------------------------------------------


def release(tx: Transaction, worker: str, releases: Sequence[Release]) -> tuple[bool, ...]:
    """See `Ledger.release`. Units of a group dropped meanwhile are let go of too, and nothing is recorded for them."""
    units = find_units(tx, [release.unit_id for release in releases])
    accepted: dict[ReleaseReason, list[UnitRow]] = {}
    errors: dict[int, str] = {}
    outcomes = []
    for one in releases:
        unit = units.get(one.unit_id)
        held = unit is not None and unit.held_under(one.fencing_token) and unit.state in (LEASED, DROPPED)
        outcomes.append(held)
        if unit is not None and held:
            del units[one.unit_id]
            if one.progress is not None and unit.state == LEASED:
                append_progress(tx, unit, one.progress)
            accepted.setdefault(one.reason, []).append(unit)
            errors[unit.uid] = one.error
    given_back = [unit for rows in accepted.values() for unit in rows]
    note_oldest(tx, given_back)
    # Failures last: they may end groups, and with them units that are still to be given back.
    for reason in sorted(accepted, key=lambda reason: reason is ReleaseReason.UNIT_FAILURE):
        give_back(tx, accepted[reason], reason, worker=worker, errors=errors)
    drop_stale(tx, [unit.gid for unit in given_back])
    return tuple(outcomes)
