"""Handing out leases: what is decided in the transaction, and the leases made of it once the lock is free."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaler.ledger._sqlite.fleet import WorkerRow, control_of, find_worker
from scaler.ledger._sqlite.returning import end_back_offs, expire
from scaler.ledger._sqlite.schema import FRESH, INDEX_BITS, LEASED, PENDING
from scaler.ledger._sqlite.specs import SPEC_COLUMNS, SPEC_TABLES, unit_of
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import JournalRows, decode_journal, read_journal
from scaler.ledger.bodies import ObjectStore
from scaler.ledger.contract import Control, LeaseReply
from scaler.ledger.history import EventKind
from scaler.ledger.rules import admissible
from scaler.model.work import FencingToken, Lease

Taken = tuple[int, int, int, int]
"""uid, rank, attempt, published"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedUnit:
    """One unit of a grant; its bodies are still bytes."""

    attempt: int
    spec: tuple[Any, ...]
    """`SPEC_COLUMNS`."""
    journal: JournalRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a lease call decided."""

    worker: str
    token: FencingToken
    deadline_s: float
    units: tuple[GrantedUnit, ...]
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


def reply(grant: Grant, objects: ObjectStore) -> LeaseReply:
    """The leases of a grant."""
    leases = []
    for granted in grant.units:
        unit = unit_of(objects, granted.spec)
        lease = Lease(
            unit=unit,
            owner=grant.worker,
            fencing_token=grant.token,
            attempt=granted.attempt,
            deadline_s=grant.deadline_s,
            progress=decode_journal(objects, unit.unit_id, granted.journal),
        )
        leases.append(lease)
    return LeaseReply(leases=tuple(leases), control=grant.control)


def _room(tx: Transaction, n: int) -> int:
    """How many units the call may take: half-done groups first, then what admission leaves for fresh ones.

    A group that was admitted keeps the places of all its units while they wait. Without that, fresh groups would take
    the place of a unit that backs off, and once the bound is full of groups that each lack a unit, nothing moves again.
    """
    counters = tx.counters
    in_hand = min(counters.half_done, n)
    kept = counters.buffered + counters.half_done + counters.backing_off
    fresh = min(n - in_hand, admissible(tx.settings, counters.running, kept))
    return min(in_hand + fresh, tx.settings.max_concurrent - counters.running)


def _hand_out(tx: Transaction, row: WorkerRow, n: int, deadline_s: float) -> tuple[GrantedUnit, ...]:
    taken = _take(tx, row.wid, n, deadline_s)
    if not taken:
        return ()
    _admit_rest_of_group(tx, *taken[-1][:2])
    counters = tx.counters
    counters.pending -= len(taken)
    counters.half_done -= sum(rank < counters.admitted for _, rank, _, _ in taken)
    counters.running += len(taken)
    counters.next_expiry_s = min(deadline_s, counters.next_expiry_s or deadline_s)
    counters.salvages += sum(published > 0 for _, _, _, published in taken)
    counters.salvaged_tokens += sum(published for _, _, _, published in taken)
    specs = _specs(tx, [uid for uid, _, _, _ in taken])
    fence = f"{counters.store_epoch}.{counters.fence}"
    entries = [(tx.unit_id(specs[uid][1], uid), fence, attempt, published) for uid, _, attempt, published in taken]
    tx.record(EventKind.LEASED, entries, keys=("fence", "attempt", "progress"), worker=row.name)
    return tuple(
        GrantedUnit(attempt=attempt, spec=specs[uid], journal=read_journal(tx, uid) if published else ())
        for uid, _, attempt, published in taken
    )


def _take(tx: Transaction, wid: int, n: int, deadline_s: float) -> list[Taken]:
    # One token and one rank serve the whole call: a token orders the holders of one unit, and groups that are admitted
    # together keep the order they were put in, which is that of their row ids.
    counters = tx.counters
    counters.fence += 1
    counters.admitted += 1
    taken: list[Taken] = tx.db.execute(
        f"UPDATE units SET state = {LEASED}, owner = ?, deadline_s = ?, store_epoch = ?, fence = ?,"
        " attempt = attempt + 1, rank = min(rank, ?) WHERE uid IN"
        f" (SELECT uid FROM units WHERE job = ? AND state = {PENDING} ORDER BY rank, uid LIMIT ?)"
        " RETURNING uid, rank, attempt, published",
        (wid, deadline_s, counters.store_epoch, counters.fence, counters.admitted, tx.job, n),
    ).fetchall()
    return sorted(taken, key=lambda unit: (unit[1], unit[0]))


def _admit_rest_of_group(tx: Transaction, last_uid: int, rank: int) -> None:
    """Only the last group of a call can have been admitted in part; its other units now go before fresh ones."""
    if rank == tx.counters.admitted:
        tx.counters.half_done += tx.db.execute(
            f"UPDATE units SET rank = ?1 WHERE uid > ?2 AND uid < ((?2 >> 20) + 1) << 20 AND rank = {FRESH}",
            (rank, last_uid),
        ).rowcount


def _specs(tx: Transaction, uids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    query = f"SELECT {SPEC_COLUMNS} FROM {SPEC_TABLES} WHERE u.uid "
    if len(uids) == 1:
        rows = tx.db.execute(query + "= ?", (uids[0],))
    else:
        rows = tx.db.execute(query + "IN (SELECT value FROM json_each(?))", (str(uids),))
    specs = {row[0]: row for row in rows}
    for uid, row in specs.items():
        # Whoever leases will name these groups again, in heartbeats and in the commit.
        tx.cache.note_gid(row[1], uid >> INDEX_BITS)
    return specs
