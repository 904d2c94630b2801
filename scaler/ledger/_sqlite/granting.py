"""Handing out leases: what is decided in the transaction; `calls` makes leases of it once the lock is free."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from scaler.ledger._sqlite.fleet import WorkerRow, control_of, find_worker
from scaler.ledger._sqlite.returning import end_back_offs, expire
from scaler.ledger._sqlite.schema import FRESH, INDEX_BITS, INDEX_MASK, LEASED, PENDING
from scaler.ledger._sqlite.transaction import Transaction, run_text
from scaler.ledger._sqlite.units import runs
from scaler.ledger.contract import Control
from scaler.ledger.history import EventKind
from scaler.ledger.rules import admissible

_group = attrgetter("name")
_NEXT = (
    "SELECT uid, rank, attempt, published, name, resume FROM units"
    f" WHERE job = ? AND state = {PENDING} ORDER BY rank, uid LIMIT ?"
)
_LEASE = (
    f"UPDATE units SET state = {LEASED}, owner = ?, deadline_s = ?, store_epoch = ?, fence = ?,"
    " attempt = attempt + 1, rank = min(rank, ?) WHERE uid BETWEEN ? AND ?"
)
_GO_NEXT = (
    f"UPDATE units SET rank = ?1 WHERE uid > ?2 AND uid < ((?2 >> {INDEX_BITS}) + 1) << {INDEX_BITS} AND rank = {FRESH}"
)


class Taken(NamedTuple):
    """A unit that was handed out, as it was before."""

    uid: int
    rank: int
    """`FRESH` where no unit of its group was leased before."""
    attempts: int
    published: int
    name: str
    resume: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What a lease call decided. Its fencing token is the job's newest."""

    deadline_s: float
    units: Sequence[Taken]
    control: Control


def grant(tx: Transaction, worker: str, n: int, ttl_s: float) -> Grant:
    """Decide a lease call; see `Ledger.lease`."""
    expire(tx)
    end_back_offs(tx)
    row = find_worker(tx, worker)
    deadline_s = tx.now_s + ttl_s
    room = _room(tx, n)
    units = _hand_out(tx, row, room, deadline_s) if row is not None and row.may_lease and room > 0 else ()
    return Grant(deadline_s, units, control_of(tx, row))


def _room(tx: Transaction, n: int) -> int:
    """How many units the call may take: half-done groups first, then what admission leaves for fresh ones.

    A group that was admitted keeps the places of all its units while they wait. Without that, fresh groups would take
    the place of a unit that backs off, and once the bound is full of groups that each lack a unit, nothing moves again.
    """
    counters = tx.counters
    in_hand = min(counters.half_done, n)
    kept = counters.buffered + counters.half_done + counters.backing_off
    fresh = min(n - in_hand, admissible(tx.settings, counters.running, kept))
    waiting = counters.pending - counters.backing_off
    return min(in_hand + fresh, waiting, tx.settings.max_concurrent - counters.running)


def _hand_out(tx: Transaction, row: WorkerRow, n: int, deadline_s: float) -> Sequence[Taken]:
    taken = _take(tx, row.wid, n, deadline_s)
    counters = tx.counters
    fresh = [unit.uid for unit in taken if unit.rank == FRESH]
    counters.pending -= len(taken)
    counters.half_done -= len(taken) - len(fresh)
    if fresh:
        _admit(tx, fresh)
    counters.running += len(taken)
    counters.next_expiry_s = min(deadline_s, counters.next_expiry_s or deadline_s)
    salvaged = [unit.published for unit in taken if unit.published]
    counters.salvages += len(salvaged)
    counters.salvaged_tokens += sum(salvaged)
    fence = f"{counters.store_epoch}.{counters.fence}"
    entries = [run_text(name, fence, _told(units)) for name, units in groupby(taken, key=_group)]
    tx.record(EventKind.LEASED, entries, keys=("fence", "attempt", "progress"), worker=row.name)
    return taken


def _take(tx: Transaction, wid: int, n: int, deadline_s: float) -> list[Taken]:
    # One token and one rank serve the whole call: a token orders the holders of one unit, and groups that are admitted
    # together keep the order they were put in, which is that of their row ids.
    counters = tx.counters
    counters.fence += 1
    counters.admitted += 1
    taken = [Taken._make(row) for row in tx.db.execute(_NEXT, (tx.job, n))]
    new = (wid, deadline_s, counters.store_epoch, counters.fence, counters.admitted)
    tx.db.executemany(_LEASE, [(*new, *run) for run in runs([unit.uid for unit in taken])])
    return taken


def _admit(tx: Transaction, fresh: Sequence[int]) -> None:
    """The groups of units that were leased first. Only the last can have been admitted in part: the rest of it goes next."""
    gids = dict.fromkeys([uid >> INDEX_BITS for uid in fresh])
    tx.db.executemany("UPDATE groups SET admitted = 1 WHERE gid = ?", [(gid,) for gid in gids])
    tx.counters.half_done += tx.db.execute(_GO_NEXT, (tx.counters.admitted, fresh[-1])).rowcount


def _told(units: Iterable[Taken]) -> list[int]:
    return [number for unit in units for number in (unit.uid & INDEX_MASK, unit.attempts + 1, unit.published)]
