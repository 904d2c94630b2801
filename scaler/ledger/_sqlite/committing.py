"""Leases turned into samples.

A call's commits are judged, and written, group by group and token by token, as they were leased: so the store is asked
for the units that are held under that token, and what is the same for all of them is said once.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scaler.ledger._sqlite.fleet import note_commits
from scaler.ledger._sqlite.groups import drop_stale
from scaler.ledger._sqlite.objects import UnitObjects, forget_bodies
from scaler.ledger._sqlite.returning import count_pending
from scaler.ledger._sqlite.samples import SampleRow, sample_rows, store_samples
from scaler.ledger._sqlite.schema import BACKING_OFF, COMMITTED, INDEX_BITS, INDEX_MASK, LEASED, PENDING, READY
from scaler.ledger._sqlite.transaction import Transaction, run_text
from scaler.ledger._sqlite.units import renew_oldest, runs
from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, encode_sample, pack
from scaler.ledger.contract import Commit, CommitOutcome
from scaler.ledger.history import EventKind
from scaler.model.work import FencingToken

_COMMITTABLE = frozenset({PENDING, BACKING_OFF, LEASED})
"""While its token is the last one handed out: a lease that ran out may still end well."""
_MOST_DIGITS = 7
"""Of an index; see `MAX_GROUP_SIZE`."""
_FIND = (
    f"SELECT uid & {INDEX_MASK}, state, attempt, published, oldest, tokens FROM units"
    " WHERE uid BETWEEN ? AND ? AND fence = ? AND store_epoch = ? AND attempt > 0 AND name = ?"
)
_COMMIT = f"UPDATE units SET state = {COMMITTED}, owner = NULL, tokens = ?, oldest = ? WHERE uid = ?"
_GROW = "UPDATE groups SET committed = committed + ?2, oldest = min(ifnull(oldest, ?3), ?3) WHERE gid = ?1"
# Asked apart: RETURNING sets up a table of its own for what it returns, which takes several times as long as both.
_IS_COMPLETE = "SELECT committed = size FROM groups WHERE gid = ?"
# Apart, since all indexes of groups hang on their state, and most commits of one unit leave it as it is.
_COMPLETE = f"UPDATE groups SET state = {READY}, ready = ?, ready_at_s = ? WHERE gid = ?"
PackedCommit = tuple[int, int, int, int, bytes]
"""Position in the call, place in the group (negative: none can have it), tokens, oldest version, sample as a record."""


class GroupCommits(NamedTuple):
    """What a call commits of one group under one token. The samples are encoded already, where no lock is held."""

    name: str
    gid: int | None
    """As the client remembers it."""
    store_epoch: int
    fence: int
    commits: Sequence[PackedCommit]

    @property
    def fence_text(self) -> str:
        """The token as the history writes it."""
        return f"{self.store_epoch}.{self.fence}"


class _Unit(NamedTuple):
    """A unit as a commit finds it; `tokens` is None before it was committed."""

    place: int
    """In its group."""
    state: int
    attempt: int
    published: int
    oldest: int | None
    tokens: int | None


class _Accepted(NamedTuple):
    """What is to be committed of a group: units as they were found, and what is committed of each, in the same order."""

    group: GroupCommits
    gid: int
    units: Sequence[_Unit]
    tokens: Sequence[int]
    versions: Sequence[int]
    """The oldest in each sample."""
    records: Sequence[bytes]


def group_commits(objects: ObjectStore, gids: Mapping[str, int], commits: Sequence[Commit]) -> list[GroupCommits]:
    """A call's commits, encoded; `gids` are the groups' numbers that the client remembers.

    Raises:
        ValueError: a sample is of another unit.
    """
    packed: dict[tuple[str, FencingToken], list[PackedCommit]] = {}
    for at, commit in enumerate(commits):
        name, _, index = commit.unit_id.rpartition("/")
        place = int(index) if index.isdecimal() and len(index) <= _MOST_DIGITS else -1
        one = at, place, len(commit.sample.tokens), commit.sample.oldest_version, _record(objects, commit)
        packed.setdefault((name, commit.fencing_token), []).append(one)
    return [
        GroupCommits(name, gids.get(name), token.store_epoch, token.counter, ones)
        for (name, token), ones in packed.items()
    ]


def commit(tx: Transaction, worker: str, count: int, groups: Sequence[GroupCommits]) -> Sequence[CommitOutcome]:
    """See `Ledger.commit`, of `count` units. A sample too stale already is committed, and its group dropped at once."""
    outcomes = [CommitOutcome.REFUSED] * count
    accepted = [part for part in [_accept(tx, group, outcomes) for group in groups] if part is not None]
    if accepted:
        _store(tx, worker, accepted)
        for part in accepted:
            _follow(tx, part)
        drop_stale(tx, [part.gid for part in accepted])
    return outcomes


def _record(objects: ObjectStore, commit: Commit) -> bytes:
    if commit.sample.unit_id != commit.unit_id:
        raise ValueError(f"a commit of {commit.unit_id} with a sample of {commit.sample.unit_id}")
    body = encode_sample(commit.sample)
    return pack(None if len(body) <= INLINE_BYTES else UnitObjects(objects, commit.unit_id), body)


def _accept(tx: Transaction, group: GroupCommits, outcomes: list[CommitOutcome]) -> _Accepted | None:
    gid, units = _find(tx, group)
    # A raised store epoch voids every lease, also one whose unit nobody else has had since.
    valid = group.store_epoch == tx.counters.store_epoch
    accepted: dict[int, tuple[_Unit, int, int, bytes]] = {}
    for at, place, tokens, version, record in group.commits:
        unit = units.get(place)
        if unit is None:
            continue
        if unit.tokens is not None or place in accepted:
            outcomes[at] = CommitOutcome.ALREADY
        elif valid and unit.state in _COMMITTABLE:
            outcomes[at] = CommitOutcome.COMMITTED
            accepted[place] = (unit, tokens, version, record)
    return _Accepted(group, gid, *zip(*accepted.values(), strict=True)) if accepted else None


def _find(tx: Transaction, group: GroupCommits) -> tuple[int, dict[int, _Unit]]:
    """The group's number, and those of the units by place of which the token is the last that was handed out."""
    units = {} if group.gid is None else _read(tx, group.gid, group)
    if units and group.gid is not None:
        return group.gid, units
    gid = tx.gid_of(group.name)
    return (0, {}) if gid is None else (gid, _read(tx, gid, group))


def _read(tx: Transaction, gid: int, group: GroupCommits) -> dict[int, _Unit]:
    base = gid << INDEX_BITS
    return {
        row[0]: _Unit._make(row)
        for first, last in runs([commit[1] for commit in group.commits])
        for row in tx.db.execute(_FIND, (base + first, base + last, group.fence, group.store_epoch, group.name))
    }


def _store(tx: Transaction, worker: str, accepted: Sequence[_Accepted]) -> None:
    changes: list[tuple[int, int, int]] = []
    rows: list[SampleRow] = []
    entries: list[str] = []
    for group, gid, units, tokens, versions, records in accepted:
        name, fence, base = group.name, group.fence_text, gid << INDEX_BITS
        changes += [
            (length, version, base + unit.place) for unit, length, version in zip(units, tokens, versions, strict=True)
        ]
        numbers = [
            number
            for unit, length, version in zip(units, tokens, versions, strict=True)
            for number in (unit.place, unit.attempt, length, version)
        ]
        entries.append(run_text(name, fence, numbers))
        rows += sample_rows(gid, [(unit.place, record) for unit, record in zip(units, records, strict=True)])
        _count(tx, units, tokens)
    tx.db.executemany(_COMMIT, changes)
    store_samples(tx, rows)
    note_commits(tx, worker, len(changes))
    tx.record(EventKind.COMMITTED, entries, keys=("fence", "attempt", "tokens", "oldest_version"), worker=worker)


def _count(tx: Transaction, units: Sequence[_Unit], tokens: Sequence[int]) -> None:
    waiting = [unit.state for unit in units if unit.state != LEASED]
    count_pending(tx, waiting, -1)
    tx.counters.running -= len(units) - len(waiting)
    tx.counters.buffered += len(units)
    tx.counters.committed_tokens += sum(tokens)


def _follow(tx: Transaction, part: _Accepted) -> None:
    """What follows for the group, and for the journals of its units."""
    _grow_group(tx, part.gid, part.versions)
    published = [pair for pair in zip(part.units, part.versions, strict=True) if pair[0].published]
    for unit, _ in published:
        uid = part.gid << INDEX_BITS | unit.place
        forget_bodies(tx, "progress", part.group.name, uid, uid + 1)
    if any(unit.oldest is not None and unit.oldest < version for unit, version in published):
        renew_oldest(tx, part.gid)


def _grow_group(tx: Transaction, gid: int, versions: Sequence[int]) -> None:
    tx.db.execute(_GROW, (gid, len(versions), min(versions)))
    (complete,) = tx.db.execute(_IS_COMPLETE, (gid,)).fetchone()
    if complete:
        tx.counters.ready += 1
        tx.counters.ready_groups += 1
        tx.db.execute(_COMPLETE, (tx.counters.ready, tx.now_s, gid))
