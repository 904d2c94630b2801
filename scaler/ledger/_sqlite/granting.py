"""Handing out leases: what is decided in the transaction; `calls` makes leases of it once the lock is free."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scaler.ledger._sqlite.fleet import Orders, WorkerRow, find_worker, orders_of
from scaler.ledger._sqlite.returning import end_back_offs, expire
from scaler.ledger._sqlite.schema import FRESH, INDEX_BITS, INDEX_MASK, LEASED, PENDING
from scaler.ledger._sqlite.transaction import Transaction, run_text
from scaler.ledger._sqlite.units import runs
from scaler.ledger.history import EventKind
from scaler.ledger.rules import admissible

_LEASED_KEYS = ("fence", "attempt", "progress")
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


Taken = tuple[int, int, int, int, str, int]
"""A unit that was handed out, as it was before: row id, rank (`FRESH` where no unit of its group was leased before),
attempts, tokens published, name of its group, resume."""


class Grant(NamedTuple):
    """What a lease call decided. Its fencing token is the job's newest."""

    deadline_s: float
    units: Sequence[Taken]
    orders: Orders


def grant(tx: Transaction, worker: str, n: int, ttl_s: float) -> Grant:
    """Decide a lease call; see `Ledger.lease`."""
    expire(tx)
    end_back_offs(tx)
    row = find_worker(tx, worker)
    deadline_s = tx.now_s + ttl_s
    room = _room(tx, n)
    units = _hand_out(tx, row, room, deadline_s) if row is not None and row.may_lease and room > 0 else ()
    return Grant(deadline_s, units, orders_of(tx, row))


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
    fresh = [uid for uid, rank, *_ in taken if rank == FRESH]
    counters.pending -= len(taken)
    counters.half_done -= len(taken) - len(fresh)
    if fresh:
        _admit(tx, fresh)
    counters.running += len(taken)
    counters.next_expiry_s = min(deadline_s, counters.next_expiry_s or deadline_s)
    salvaged = [published for _, _, _, published, _, _ in taken if published]
    if salvaged:
        counters.salvages += len(salvaged)
        counters.salvaged_tokens += sum(salvaged)
    tx.record(EventKind.LEASED, _entries(tx, taken), keys=_LEASED_KEYS, worker=row.name)
    return taken


def _take(tx: Transaction, wid: int, n: int, deadline_s: float) -> list[Taken]:
    # One token and one rank serve the whole call: a token orders the holders of one unit, and groups that are admitted
    # together keep the order they were put in, which is that of their row ids.
    counters = tx.counters
    counters.fence += 1
    counters.admitted += 1
    taken: list[Taken] = tx.db.execute(_NEXT, (tx.job, n)).fetchall()
    new = (wid, deadline_s, counters.store_epoch, counters.fence, counters.admitted)
    for first, last in runs([uid for uid, *_ in taken]):
        tx.db.execute(_LEASE, (*new, first, last))
    return taken


def _admit(tx: Transaction, fresh: Sequence[int]) -> None:
    """The groups of units that were leased first. Only the last can have been admitted in part: the rest of it goes next."""
    for gid in dict.fromkeys([uid >> INDEX_BITS for uid in fresh]):
        tx.db.execute("UPDATE groups SET admitted = 1 WHERE gid = ?", (gid,))
    tx.counters.half_done += tx.db.execute(_GO_NEXT, (tx.counters.admitted, fresh[-1])).rowcount


def _entries(tx: Transaction, taken: Iterable[Taken]) -> list[str]:
    counters = tx.counters
    told: list[tuple[str, list[int]]] = []
    last = None
    for uid, _, attempts, published, name, _ in taken:
        if name != last:
            numbers: list[int] = []
            told.append((name, numbers))
            last = name
        numbers += (uid & INDEX_MASK, attempts + 1, published)
    return [run_text(name, counters.store_epoch, counters.fence, numbers) for name, numbers in told]
