"""Groups: put, dropped, drawn again.

A group with one unit that is too stale is too stale, whatever the others are. Such a group is dropped (or drawn again)
at the first moment that shows it: a publication, a heartbeat, a commit, a release, a batch. So nothing that can no
longer be trained on holds a place of admission, and no lease hands it out.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scaler.ledger._sqlite.objects import forget_bodies
from scaler.ledger._sqlite.schema import (
    BACKING_OFF,
    COMMITTED,
    DEAD_LETTERED,
    DROPPED,
    FRESH,
    GONE,
    INDEX_BITS,
    LEASED,
    OPEN,
    PENDING,
    READY,
    TAKEN,
)
from scaler.ledger._sqlite.specs import SpecRow, redrawn
from scaler.ledger._sqlite.transaction import Transaction, split_name
from scaler.ledger.history import EventKind, Scalar
from scaler.ledger.rules import length_bucket
from scaler.model.job import OnStale
from scaler.model.work import DropReason, unit_id_of


class Draw(NamedTuple):
    """A group to be added."""

    name: str
    redraws: int
    """How often it was drawn anew for a dead letter."""
    resumes: Sequence[int]
    """Of its units, in order."""
    specs: Sequence[SpecRow]


def reserve_gids(tx: Transaction, count: int) -> int:
    """The first of `count` new group numbers."""
    (after,) = tx.db.execute("UPDATE next_gid SET gid = gid + ? RETURNING gid", (count,)).fetchone()
    return int(after) - count


def known_names(tx: Transaction, names: Iterable[str]) -> set[str]:
    """Those of the group names that the job has ever had."""
    return {name for name in names if _known(tx, name)}


def insert_groups(tx: Transaction, draws: Sequence[Draw]) -> None:
    """Add groups; tells the history."""
    if not draws:
        return
    first = reserve_gids(tx, len(draws))
    groups, units, specs, entries = [], [], [], []
    for gid, (name, redraws, resumes, rows) in enumerate(draws, first):
        group_id, epoch = split_name(name)
        groups.append((gid, tx.job, name, len(resumes), redraws))
        specs += [(gid << INDEX_BITS | index, *row) for index, *row in rows]
        for index, resume in enumerate(resumes):
            units.append((gid << INDEX_BITS | index, tx.job, name, resume))
            entries.append((unit_id_of(group_id, epoch, index), group_id, epoch, index, len(resumes)))
    tx.db.executemany(
        f"INSERT INTO groups (gid, job, name, size, state, admitted, committed, redraws)"
        f" VALUES (?, ?, ?, ?, {OPEN}, 0, 0, ?)",
        groups,
    )
    tx.db.executemany(
        "INSERT INTO units (uid, job, name, state, rank, attempt, store_epoch, fence, resume, published, failures, returns)"
        f" VALUES (?, ?, ?, {PENDING}, {FRESH}, 0, 0, 0, ?, 0, 0, 0)",
        units,
    )
    tx.db.executemany("INSERT INTO specs (uid, size, facts, body) VALUES (?, ?, ?, ?)", specs)
    tx.counters.pending += len(units)
    tx.record(EventKind.UNITS_PUT, entries, keys=("group", "epoch", "index", "group_size"))


def drop_stale(tx: Transaction, gids: Iterable[int]) -> set[int]:
    """Drop those of the groups that are too stale for the published version; returns them."""
    oldest_usable = oldest_usable_version(tx)
    if oldest_usable is None:
        return set()
    query = f"SELECT 1 FROM groups WHERE gid = ? AND state IN ({OPEN}, {READY}) AND oldest < ?"
    stale = [gid for gid in sorted(set(gids)) if tx.db.execute(query, (gid, oldest_usable)).fetchone()]
    drop_as_stale(tx, stale)
    return set(stale)


def sweep_stale(tx: Transaction) -> None:
    """Drop every incomplete group that is too stale for the published version. Complete ones are the trainer's to judge."""
    oldest_usable = oldest_usable_version(tx)
    if oldest_usable is None:
        return
    query = f"SELECT gid FROM groups WHERE job = ? AND state = {OPEN} AND admitted = 1 AND oldest < ? ORDER BY gid"
    drop_as_stale(tx, [gid for (gid,) in tx.db.execute(query, (tx.job, oldest_usable)).fetchall()])


def oldest_usable_version(tx: Transaction) -> int | None:
    """The oldest version that may still be trained on; None before the first publication."""
    version = tx.counters.version
    return None if version is None else version - tx.settings.max_staleness


def drop_as_stale(tx: Transaction, gids: Sequence[int]) -> None:
    """Drop groups for staleness, and draw them again if the job is configured so."""
    drop_groups(tx, gids, DropReason.STALE, redraw=tx.settings.on_stale is OnStale.REQUEUE)


def drop_groups(tx: Transaction, gids: Sequence[int], reason: DropReason, *, redraw: bool = False) -> None:
    """End groups: their units are DROPPED (dead-lettered ones stay so), their places are free; maybe draw them again.

    Leases on their units are void; the rows keep their owner until it has been told.
    """
    if not gids:
        return
    entries: list[tuple[Scalar, ...]] = []
    draws = []
    for gid in gids:
        name, state, redraws = tx.db.execute("SELECT name, state, redraws FROM groups WHERE gid = ?", (gid,)).fetchone()
        again = next_name(tx, name) if redraw else None
        if again is not None:
            draws.append(_redraw(tx, gid, name, again, redraws + (reason is DropReason.DEAD_LETTERED)))
        _drop_units(tx, gid, state, reason)
        forget_bodies(tx, "progress", name, *unit_range(gid))
        entries.append((name, reason.value, again))
    seq = tx.record(EventKind.GROUP_DROPPED, entries, keys=("reason", "redrawn_as"))
    tx.db.executemany(
        f"UPDATE groups SET state = {GONE}, batch = NULL, final_seq = ? WHERE gid = ?", [(seq, gid) for gid in gids]
    )
    insert_groups(tx, draws)


def next_name(tx: Transaction, name: str) -> str:
    """The name of the group's next draw; skips epochs that the caller has put itself."""
    group_id, epoch = split_name(name)
    while _known(tx, f"{group_id}.{epoch + 1}"):
        epoch += 1
    return f"{group_id}.{epoch + 1}"


def unit_range(gid: int) -> tuple[int, int]:
    """First row id of a group's units, and the one after its last."""
    return gid << INDEX_BITS, (gid + 1) << INDEX_BITS


def _known(tx: Transaction, name: str) -> bool:
    query = "SELECT 1 FROM groups WHERE job = ?1 AND name = ?2 UNION ALL SELECT 1 FROM watermarks WHERE job = ?1 AND name = ?2"
    return tx.db.execute(query, (tx.job, name)).fetchone() is not None


def _drop_units(tx: Transaction, gid: int, group_state: int, reason: DropReason) -> None:
    counters = tx.counters
    units = tx.db.execute(
        f"SELECT state, published, tokens FROM units WHERE uid >= ? AND uid < ? AND state <> {DEAD_LETTERED}",
        unit_range(gid),
    ).fetchall()
    states = Counter(state for state, _, _ in units)
    lengths = [tokens if state == COMMITTED else published for state, published, tokens in units]
    counters.pending -= states[PENDING] + states[BACKING_OFF]
    counters.half_done -= states[PENDING]
    counters.backing_off -= states[BACKING_OFF]
    counters.running -= states[LEASED]
    counters.in_vain += states[LEASED]
    counters.buffered -= states[COMMITTED]
    counters.discarded_tokens += sum(lengths)
    counters.ready_groups -= group_state == READY
    counters.taken -= len(units) if group_state == TAKEN else 0
    _count_drops(tx, reason, Counter(map(length_bucket, lengths)))
    tx.db.execute(
        f"UPDATE units SET state = {DROPPED} WHERE uid >= ? AND uid < ? AND state <> {DEAD_LETTERED}", unit_range(gid)
    )


def _count_drops(tx: Transaction, reason: DropReason, buckets: Counter[str]) -> None:
    tx.db.executemany(
        "INSERT INTO drops (job, reason, bucket, units) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (job, reason, bucket) DO UPDATE SET units = units + excluded.units",
        [(tx.job, reason.value, bucket, units) for bucket, units in buckets.items()],
    )


def _redraw(tx: Transaction, gid: int, old_name: str, name: str, redraws: int) -> Draw:
    units = tx.db.execute("SELECT resume FROM units WHERE uid >= ? AND uid < ? ORDER BY uid", unit_range(gid))
    specs = tx.db.execute(
        "SELECT uid, size, facts, body FROM specs WHERE uid >= ? AND uid < ? ORDER BY uid", unit_range(gid)
    )
    return Draw(name, redraws, [resume for (resume,) in units], redrawn(tx.objects, specs, old_name, name))
