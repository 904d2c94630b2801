"""Handing out leases: what is decided in the transaction, and the leases made of it once the lock is free."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scaler.ledger._sqlite.fleet import WorkerRow, control_of, find_worker
from scaler.ledger._sqlite.returning import end_back_offs, expire
from scaler.ledger._sqlite.schema import FRESH, INDEX_BITS, LEASED, PENDING
from scaler.ledger._sqlite.specs import unit_of
from scaler.ledger._sqlite.transaction import Transaction, unit_id
from scaler.ledger._sqlite.units import JournalRows, decode_journal, read_journal
from scaler.ledger.bodies import ObjectStore
from scaler.ledger.contract import Control, LeaseReply
from scaler.ledger.history import EventKind
from scaler.ledger.rules import admissible
from scaler.model.work import FencingToken, Lease


@dataclass(frozen=True, slots=True)
class Taken:
    """A unit that was handed out."""

    uid: int
    rank: int
    attempt: int
    published: int
    name: str
    resume: int
    journal: JournalRows = ()
    """Still bytes, to be decoded when the lock is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a lease call decided."""

    worker: str
    token: FencingToken
    deadline_s: float
    units: tuple[Taken, ...]
    control: Control


def grant(tx: Transaction, worker: str, n: int, ttl_s: float) -> Grant:
    """Decide a lease call; see `Ledger.lease`."""
    expire(tx)
    end_back_offs(tx)
    row = find_worker(tx, worker)
    deadline_s = tx.now_s + ttl_s
    room = _room(tx, n)
    units = _hand_out(tx, row, room, deadline_s) if row is not None and row.may_lease and room > 0 else ()
    counters = tx.counters
    return Grant(
        worker=worker,
        token=FencingToken(counters.store_epoch, counters.fence),
        deadline_s=deadline_s,
        units=units,
        control=control_of(tx, row),
    )


def reply(grant: Grant, specs: Mapping[int, tuple[Any, ...]], objects: ObjectStore) -> LeaseReply:
    """The leases of a grant; a unit without a spec has ended with its group and been forgotten since."""
    leases = tuple(_lease(grant, unit, specs[unit.uid], objects) for unit in grant.units if unit.uid in specs)
    return LeaseReply(leases=leases, control=grant.control)


def _lease(grant: Grant, taken: Taken, spec: tuple[Any, ...], objects: ObjectStore) -> Lease:
    return Lease(
        unit=unit_of(objects, taken.uid, taken.name, taken.resume, spec),
        owner=grant.worker,
        fencing_token=grant.token,
        attempt=taken.attempt,
        deadline_s=grant.deadline_s,
        progress=decode_journal(objects, unit_id(taken.name, taken.uid), taken.journal),
    )


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


def _hand_out(tx: Transaction, row: WorkerRow, n: int, deadline_s: float) -> tuple[Taken, ...]:
    taken = _take(tx, row.wid, n, deadline_s)
    counters = tx.counters
    _admit(tx, {unit.uid >> INDEX_BITS for unit in taken if unit.rank == counters.admitted})
    _admit_rest_of_group(tx, taken[-1])
    counters.pending -= len(taken)
    counters.half_done -= sum(unit.rank < counters.admitted for unit in taken)
    counters.running += len(taken)
    counters.next_expiry_s = min(deadline_s, counters.next_expiry_s or deadline_s)
    counters.salvages += sum(unit.published > 0 for unit in taken)
    counters.salvaged_tokens += sum(unit.published for unit in taken)
    fence = f"{counters.store_epoch}.{counters.fence}"
    entries = [(unit_id(unit.name, unit.uid), fence, unit.attempt, unit.published) for unit in taken]
    tx.record(EventKind.LEASED, entries, keys=("fence", "attempt", "progress"), worker=row.name)
    for unit in taken:
        # Whoever leases will name this group again, in heartbeats and in the commit.
        tx.cache.note_gid(unit.name, unit.uid >> INDEX_BITS)
    return tuple(replace(unit, journal=read_journal(tx, unit.uid)) if unit.published else unit for unit in taken)


def _take(tx: Transaction, wid: int, n: int, deadline_s: float) -> list[Taken]:
    # One token and one rank serve the whole call: a token orders the holders of one unit, and groups that are admitted
    # together keep the order they were put in, which is that of their row ids.
    counters = tx.counters
    counters.fence += 1
    counters.admitted += 1
    rows = tx.db.execute(
        f"UPDATE units SET state = {LEASED}, owner = ?, deadline_s = ?, store_epoch = ?, fence = ?,"
        " attempt = attempt + 1, rank = min(rank, ?) WHERE uid IN"
        f" (SELECT uid FROM units WHERE job = ? AND state = {PENDING} ORDER BY rank, uid LIMIT ?)"
        " RETURNING uid, rank, attempt, published, name, resume",
        (wid, deadline_s, counters.store_epoch, counters.fence, counters.admitted, tx.job, n),
    ).fetchall()
    return sorted((Taken(*row) for row in rows), key=lambda unit: (unit.rank, unit.uid))


def _admit(tx: Transaction, gids: Collection[int]) -> None:
    tx.db.executemany("UPDATE groups SET admitted = 1 WHERE gid = ?", [(gid,) for gid in gids])


def _admit_rest_of_group(tx: Transaction, last: Taken) -> None:
    """Only the last group of a call can have been admitted in part; its other units now go before fresh ones."""
    if last.rank == tx.counters.admitted:
        tx.counters.half_done += tx.db.execute(
            f"UPDATE units SET rank = ?1 WHERE uid > ?2 AND uid < ((?2 >> 20) + 1) << 20 AND rank = {FRESH}",
            (last.rank, last.uid),
        ).rowcount
