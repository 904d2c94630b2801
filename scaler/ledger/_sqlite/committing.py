"""Leases turned into samples.

A call's commits are judged, and written, group by group and token by token, as they were leased: so the store is asked
for the units that are held under that token, and what is the same for all of them is said once.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scaler.ledger._sqlite.fleet import note_commits
from scaler.ledger._sqlite.groups import drop_stale
from scaler.ledger._sqlite.objects import UnitObjects, forget_bodies
from scaler.ledger._sqlite.returning import count_pending
from scaler.ledger._sqlite.samples import SampleRow, joined_samples, sample_rows, store_samples
from scaler.ledger._sqlite.schema import BACKING_OFF, COMMITTED, INDEX_BITS, INDEX_MASK, LEASED, PENDING, READY
from scaler.ledger._sqlite.transaction import Transaction, run_text
from scaler.ledger._sqlite.units import renew_oldest, runs
from scaler.ledger.bodies import INLINE_BYTES, ObjectStore, encode_sample, pack
from scaler.ledger.contract import Commit, CommitOutcome
from scaler.ledger.history import EventKind
from scaler.ledger.rules import place_in_group
from scaler.model.work import FencingToken

_COMMITTABLE = frozenset({PENDING, BACKING_OFF, LEASED})
"""While its token is the last one handed out: a lease that ran out may still end well."""
_FIND = (
    f"SELECT uid & {INDEX_MASK}, state, attempt, published, oldest, tokens FROM units"
    " WHERE uid BETWEEN ? AND ? AND fence = ? AND store_epoch = ? AND attempt > 0 AND name = ?"
)
_COMMIT = f"UPDATE units SET state = {COMMITTED}, owner = NULL, tokens = ?, oldest = ? WHERE uid = ?"
_GROW = "UPDATE groups SET committed = committed + ?2, oldest = min(ifnull(oldest, ?3), ?3) WHERE gid = ?1"
# Apart, since all indexes of groups hang on their state, and most commits of one unit leave it as it is.
_COMPLETE = f"UPDATE groups SET state = {READY}, ready = ?, ready_at_s = ? WHERE gid = ? AND committed = size"
_COMMITTED_KEYS = ("fence", "attempt", "tokens", "oldest_version")
_STATE, _TOKENS = 1, 5
"""Where in a `_UnitRow`."""
PackedCommit = tuple[int, int, int, int, int]
"""Position in the call, place in the group (negative: none can have it), tokens, oldest version, bytes of its record."""
_UnitRow = tuple[int, int, int, int, int | None, int | None]
"""What `_FIND` finds: place in the group, state, attempt, published, oldest, tokens (None before it was committed)."""

_JUST_COMMITTED: _UnitRow = (0, COMMITTED, 0, 0, None, 0)
"""What a call finds when it commits a unit twice."""


class GroupCommits(NamedTuple):
    """What a call commits of one group under one token. The samples are encoded already, where no lock is held."""

    name: str
    gid: int | None
    """As the client remembers it."""
    store_epoch: int
    fence: int
    commits: Sequence[PackedCommit]
    parts: bytes
    """With `body` the row of all samples; empty where there cannot be one, see `samples.joined_samples`."""
    body: bytes
    """The records, one after the other."""


@dataclass(slots=True)
class _Accepted:
    """What is to be committed of a group."""

    group: GroupCommits
    gid: int
    places: list[int] = field(default_factory=list)
    changes: list[tuple[int, int, int]] = field(default_factory=list)
    """Tokens, oldest version and row id of each unit."""
    numbers: list[int] = field(default_factory=list)
    """See `run_text`."""
    waiting: list[int] = field(default_factory=list)
    """States of those that were not leased any more."""
    journals: list[tuple[int, bool]] = field(default_factory=list)
    """Row ids of units with a journal, and whether it has tokens older than the sample."""

    def add(self, row: _UnitRow, tokens: int, version: int) -> None:
        """One more unit."""
        place, state, attempt, published, oldest, _ = row
        uid = self.gid << INDEX_BITS | place
        self.places.append(place)
        self.changes.append((tokens, version, uid))
        self.numbers += (place, attempt, tokens, version)
        if state != LEASED:
            self.waiting.append(state)
        if published:
            self.journals.append((uid, oldest is not None and oldest < version))

    def sample_rows(self) -> list[SampleRow]:
        """Where the samples go."""
        group = self.group
        if group.parts and len(self.places) == len(group.commits):
            return [(self.changes[0][2], group.parts, group.body)]
        records: dict[int, bytes] = {}
        at = 0
        for _, place, _, _, size in group.commits:
            records.setdefault(place, group.body[at : at + size])
            at += size
        return sample_rows(self.gid, [(place, records[place]) for place in self.places])


def group_commits(objects: ObjectStore, gids: Mapping[str, int], commits: Sequence[Commit]) -> list[GroupCommits]:
    """A call's commits, encoded; `gids` are the groups' numbers that the client remembers.

    Raises:
        ValueError: a sample is of another unit.
    """
    packed: dict[tuple[str, FencingToken], tuple[list[PackedCommit], list[tuple[int, bytes]]]] = {}
    last: tuple[str, FencingToken] | None = None
    for at, commit in enumerate(commits):
        name, _, index = commit.unit_id.rpartition("/")
        # Units that were leased together come together, with one token.
        if last is None or commit.fencing_token is not last[1] or name != last[0]:
            last = name, commit.fencing_token
            ones, records = packed.setdefault(last, ([], []))
        place = place_in_group(index)
        record = _record(objects, commit)
        ones.append((at, place, len(commit.sample.tokens), commit.sample.oldest_version, len(record)))
        records.append((place, record))
    return [
        GroupCommits(name, gids.get(name), token.store_epoch, token.counter, ones, *joined_samples(records))
        for (name, token), (ones, records) in packed.items()
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
    accepted = _Accepted(group, gid)
    for at, place, tokens, version, _ in group.commits:
        row = units.get(place)
        if row is None:
            continue
        if row[_TOKENS] is not None:
            outcomes[at] = CommitOutcome.ALREADY
        elif valid and row[_STATE] in _COMMITTABLE:
            outcomes[at] = CommitOutcome.COMMITTED
            accepted.add(row, tokens, version)
            units[place] = _JUST_COMMITTED
    return accepted if accepted.places else None


def _find(tx: Transaction, group: GroupCommits) -> tuple[int, dict[int, _UnitRow]]:
    """The group's number, and those of the units by place of which the token is the last that was handed out."""
    units = {} if group.gid is None else _read(tx, group.gid, group)
    if units and group.gid is not None:
        return group.gid, units
    gid = tx.gid_of(group.name)
    return (0, {}) if gid is None else (gid, _read(tx, gid, group))


def _read(tx: Transaction, gid: int, group: GroupCommits) -> dict[int, _UnitRow]:
    base = gid << INDEX_BITS
    return {
        row[0]: row
        for first, last in runs([commit[1] for commit in group.commits])
        for row in tx.db.execute(_FIND, (base + first, base + last, group.fence, group.store_epoch, group.name))
    }


def _store(tx: Transaction, worker: str, accepted: Sequence[_Accepted]) -> None:
    changes = [change for part in accepted for change in part.changes]
    tx.db.executemany(_COMMIT, changes)
    store_samples(tx, [row for part in accepted for row in part.sample_rows()])
    note_commits(tx, worker, len(changes))
    _count(tx, changes, [state for part in accepted for state in part.waiting])
    entries = [run_text(part.group.name, part.group.store_epoch, part.group.fence, part.numbers) for part in accepted]
    tx.record(EventKind.COMMITTED, entries, keys=_COMMITTED_KEYS, worker=worker)


def _count(tx: Transaction, changes: Sequence[tuple[int, int, int]], waiting: Sequence[int]) -> None:
    counters = tx.counters
    if waiting:
        count_pending(tx, waiting, -1)
    counters.running -= len(changes) - len(waiting)
    counters.buffered += len(changes)
    counters.committed_tokens += sum([tokens for tokens, _, _ in changes])


def _follow(tx: Transaction, part: _Accepted) -> None:
    """What follows for the group, and for the journals of its units."""
    _grow_group(tx, part.gid, [version for _, version, _ in part.changes])
    for uid, _ in part.journals:
        forget_bodies(tx, "progress", part.group.name, uid, uid + 1)
    if any(was_older for _, was_older in part.journals):
        renew_oldest(tx, part.gid)


def _grow_group(tx: Transaction, gid: int, versions: Sequence[int]) -> None:
    tx.db.execute(_GROW, (gid, len(versions), min(versions)))
    counters = tx.counters
    if tx.db.execute(_COMPLETE, (counters.ready + 1, tx.now_s, gid)).rowcount:
        counters.ready += 1
        counters.ready_groups += 1
