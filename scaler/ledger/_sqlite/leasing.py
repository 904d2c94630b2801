"""A lease's life: kept alive, turned into a sample, given back."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Sequence
from typing import Any, NamedTuple

from scaler.ledger._sqlite.fleet import control_of, note_commits, note_heartbeat
from scaler.ledger._sqlite.groups import drop_stale
from scaler.ledger._sqlite.objects import UnitObjects, forget_bodies
from scaler.ledger._sqlite.returning import count_pending, give_back
from scaler.ledger._sqlite.samples import store_samples
from scaler.ledger._sqlite.schema import (
    BACKING_OFF,
    COMMITTED,
    DROPPED,
    INDEX_BITS,
    INDEX_MASK,
    LEASED,
    PENDING,
    READY,
)
from scaler.ledger._sqlite.transaction import Transaction, entry_text
from scaler.ledger._sqlite.units import UnitRow, append_progress, find_units, note_oldest, renew_oldest, runs
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

    place: int
    """In the call."""
    member: int
    """Index in the group; negative where the id is none that a unit can have."""
    store_epoch: int
    fence: int
    tokens: int
    oldest_version: int
    record: bytes


class GroupCommits(NamedTuple):
    """What a call commits of one group."""

    name: str
    gid: int | None
    """As the client remembers it."""
    commits: Sequence[tuple[Any, ...]]
    """Each is a `PackedCommit`."""


class _Unit(NamedTuple):
    """A unit as a commit finds it."""

    member: int
    state: int
    attempt: int
    store_epoch: int
    fence: int
    published: int
    oldest: int | None
    tokens: int | None

    @property
    def fence_text(self) -> str:
        """The token as the history writes it."""
        return f"{self.store_epoch}.{self.fence}"


def pack_commit(objects: ObjectStore, place: int, commit: Commit) -> PackedCommit:
    """Encode a commit's sample.

    Raises:
        ValueError: the sample is of another unit.
    """
    sample, unit_id, token = commit.sample, commit.unit_id, commit.fencing_token
    if sample.unit_id != unit_id:
        raise ValueError(f"a commit of {unit_id} with a sample of {sample.unit_id}")
    body = encode_sample(sample)
    record = pack(None if len(body) <= INLINE_BYTES else UnitObjects(objects, unit_id), body)
    _, _, index = unit_id.rpartition("/")
    return PackedCommit(
        place,
        int(index) if index.isdecimal() else -1,
        token.store_epoch,
        token.counter,
        len(sample.tokens),
        sample.oldest_version,
        record,
    )


def commit(tx: Transaction, worker: str, count: int, groups: Sequence[GroupCommits]) -> Sequence[CommitOutcome]:
    """See `Ledger.commit`, of `count` units. A sample too stale already is committed, and its group dropped at once."""
    outcomes = [CommitOutcome.REFUSED] * count
    accepted = [_accept(tx, group, outcomes) for group in groups]
    accepted = [group for group in accepted if group.commits]
    if accepted:
        _store(tx, worker, accepted)
        for group in accepted:
            _follow(tx, group)
        drop_stale(tx, [group.gid for group in accepted])
    return outcomes


class _Accepted(NamedTuple):
    """What is to be committed of one group: units as they were found, and what is committed of each."""

    name: str
    gid: int
    commits: Sequence[tuple[_Unit, PackedCommit]]


def _accept(tx: Transaction, group: GroupCommits, outcomes: list[CommitOutcome]) -> _Accepted:
    gid, units = _find(tx, group)
    accepted: list[tuple[_Unit, PackedCommit]] = []
    done = set[int]()
    for packed in map(PackedCommit._make, group.commits):
        unit = units.get(packed.member)
        if unit is None or not _held(unit, packed):
            continue
        if unit.tokens is not None or packed.member in done:
            outcomes[packed.place] = CommitOutcome.ALREADY
        # A raised store epoch voids every lease, also one whose unit nobody else has had since.
        elif unit.state in _COMMITTABLE and packed.store_epoch == tx.counters.store_epoch:
            outcomes[packed.place] = CommitOutcome.COMMITTED
            done.add(packed.member)
            accepted.append((unit, packed))
    return _Accepted(group.name, gid, accepted)


def _find(tx: Transaction, group: GroupCommits) -> tuple[int, dict[int, _Unit]]:
    """The group's number and those of the units that the store holds, by index."""
    indexes = [index for _, index, *_ in group.commits]
    if group.gid is not None:
        units = _read(tx, group.gid, group.name, indexes)
        if units:
            return group.gid, units
    gid = tx.gid_of(group.name)
    return (0, {}) if gid is None else (gid, _read(tx, gid, group.name, indexes))


def _read(tx: Transaction, gid: int, name: str, indexes: Sequence[int]) -> dict[int, _Unit]:
    query = (
        f"SELECT uid & {INDEX_MASK}, state, attempt, store_epoch, fence, published, oldest, tokens FROM units"
        " WHERE uid BETWEEN ? AND ? AND name = ?"
    )
    base = gid << INDEX_BITS
    return {
        row[0]: _Unit._make(row)
        for first, last in runs(indexes)
        for row in tx.db.execute(query, (base + first, base + last, name))
    }


def _held(unit: _Unit, packed: PackedCommit) -> bool:
    return packed.fence == unit.fence and packed.store_epoch == unit.store_epoch and unit.attempt > 0


def _store(tx: Transaction, worker: str, accepted: Sequence[_Accepted]) -> None:
    changes: list[tuple[int, int, int]] = []
    entries: list[str] = []
    for name, gid, commits in accepted:
        base = gid << INDEX_BITS
        changes += [(packed.tokens, packed.oldest_version, base + packed.member) for _, packed in commits]
        entries += [
            entry_text(name, unit.member, unit.fence_text, unit.attempt, packed.tokens, packed.oldest_version)
            for unit, packed in commits
        ]
        store_samples(tx, gid, [(packed.member, packed.record) for _, packed in commits])
        _count(tx, commits)
    tx.db.executemany(
        f"UPDATE units SET state = {COMMITTED}, owner = NULL, tokens = ?, oldest = ? WHERE uid = ?", changes
    )
    note_commits(tx, worker, len(entries))
    tx.record(EventKind.COMMITTED, entries, keys=("fence", "attempt", "tokens", "oldest_version"), worker=worker)


def _count(tx: Transaction, commits: Sequence[tuple[_Unit, PackedCommit]]) -> None:
    waiting = [unit.state for unit, _ in commits if unit.state != LEASED]
    count_pending(tx, waiting, -1)
    tx.counters.running -= len(commits) - len(waiting)
    tx.counters.buffered += len(commits)
    tx.counters.committed_tokens += sum([packed.tokens for _, packed in commits])


def _follow(tx: Transaction, group: _Accepted) -> None:
    """What follows for the group, and for the journals of its units."""
    _grow_group(tx, group.gid, [packed.oldest_version for _, packed in group.commits])
    for unit in [unit for unit, _ in group.commits if unit.published]:
        uid = group.gid << INDEX_BITS | unit.member
        forget_bodies(tx, "progress", group.name, uid, uid + 1)
    if any(unit.oldest is not None and unit.oldest < packed.oldest_version for unit, packed in group.commits):
        renew_oldest(tx, group.gid)


def _grow_group(tx: Transaction, gid: int, versions: Sequence[int]) -> None:
    (complete,) = tx.db.execute(
        "UPDATE groups SET committed = committed + ?2, oldest = min(ifnull(oldest, ?3), ?3) WHERE gid = ?1"
        " RETURNING committed = size",
        (gid, len(versions), min(versions)),
    ).fetchone()
    # Apart, since all indexes of groups hang on their state, and most commits of one unit leave it as it is.
    if complete:
        tx.counters.ready += 1
        tx.counters.ready_groups += 1
        tx.db.execute(
            f"UPDATE groups SET state = {READY}, ready = ?, ready_at_s = ? WHERE gid = ?",
            (tx.counters.ready, tx.now_s, gid),
        )


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
