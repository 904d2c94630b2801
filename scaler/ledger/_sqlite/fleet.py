"""Workers: registered, told to leave, gone; and what every reply tells them."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from scaler.ledger._sqlite.returning import give_back_all
from scaler.ledger._sqlite.schema import DROPPED, WORKER_BITS
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import leases_by_owner, units_where
from scaler.ledger.contract import Control
from scaler.ledger.flat import flat
from scaler.ledger.history import EventKind
from scaler.model.job import DrainMark, WorkerIdentity, WorkerRecord, WorkerStatus
from scaler.model.work import ReleaseReason

GONE_SHOWN_S = 3600.0
_NOT_READY = WorkerStatus(ready=False)


class WorkerRow(NamedTuple):
    """What every call of a worker needs to know of it."""

    wid: int
    name: str
    gone: int
    drain_deadline_s: float | None
    drain_reason: str | None
    drain_epoch: int | None

    @property
    def may_lease(self) -> bool:
        """Neither draining nor gone."""
        return not self.gone and self.drain_deadline_s is None


def find_worker(tx: Transaction, worker: str) -> WorkerRow | None:
    """A worker that was ever registered and not forgotten since."""
    wid = tx.cache.wids.get(worker)
    row = None if wid is None else _hot_row(tx, wid)
    if row is None:
        # Unknown here, or forgotten when it had gone and registered anew since.
        found = tx.db.execute("SELECT wid FROM workers WHERE job = ? AND name = ?", (tx.job, worker)).fetchone()
        if found is None:
            return None
        wid = tx.cache.wids[worker] = int(found[0])
        row = _hot_row(tx, wid)
    return None if wid is None or row is None else WorkerRow(wid, worker, *row)


def _hot_row(tx: Transaction, wid: int) -> tuple[Any, ...] | None:
    query = "SELECT gone, drain_deadline_s, drain_reason, drain_epoch FROM counters WHERE id = ?"
    row: tuple[Any, ...] | None = tx.db.execute(query, (_row_id(tx, wid),)).fetchone()
    return row


def _row_id(tx: Transaction, wid: int) -> int:
    return tx.job << WORKER_BITS | wid


def note_heartbeat(tx: Transaction, worker: str, status: WorkerStatus) -> WorkerRow | None:
    """Keep what a worker says of itself."""
    row = find_worker(tx, worker)
    if row is not None:
        text = json.dumps(flat(status))
        tx.db.execute("UPDATE workers SET seen_at_s = ?, status = ? WHERE wid = ?", (tx.now_s, text, row.wid))
    return row


def note_commits(tx: Transaction, worker: str, samples: int) -> None:
    """Count a worker's samples; those of one that nobody registered count nowhere."""
    query = "UPDATE counters SET samples = samples + ? WHERE id = ?"
    wid = tx.cache.wids.get(worker)
    if wid is not None and tx.db.execute(query, (samples, _row_id(tx, wid))).rowcount:
        return
    row = find_worker(tx, worker)
    if row is not None:
        tx.db.execute(query, (samples, _row_id(tx, row.wid)))


Orders = tuple[float, float | None, str | None, tuple[str, ...], int | None]
"""Of `Control`, what the job and the worker's row say: store_now_s, drain_deadline_s, drain_reason, abandon, version."""


def orders_of(tx: Transaction, row: WorkerRow | None, abandon: Iterable[str] = ()) -> Orders:
    """What a reply carries; `abandon` besides the units that the worker holds of groups dropped meanwhile."""
    told = tuple(abandon)
    if row is None:
        return tx.now_s, None, None, told, tx.counters.version
    if tx.counters.in_vain:
        told = tuple(dict.fromkeys((*told, *_held_in_vain(tx, row.wid))))
    return tx.now_s, row.drain_deadline_s, row.drain_reason, told, tx.counters.version


def control_of(orders: Orders, lost: Iterable[str] = ()) -> Control:
    """The same as a reply has it."""
    now_s, deadline_s, reason, abandon, version = orders
    return Control(
        store_now_s=now_s,
        drain_deadline_s=deadline_s,
        drain_reason=reason,
        abandon=abandon,
        lost=tuple(lost),
        version=version,
    )


def register(tx: Transaction, identity: WorkerIdentity) -> int:
    """See `Ledger.register`."""
    before = find_worker(tx, identity.worker)
    if before is not None:
        give_back_all(tx, before.wid, identity.worker, ReleaseReason.SUPERSEDED)
    wid, incarnation = tx.db.execute(
        "INSERT INTO workers (job, name, identity, incarnation, registered_at_s, seen_at_s, status)"
        " VALUES (?1, ?2, ?3, 1, ?4, ?4, ?5) ON CONFLICT (job, name) DO UPDATE SET"
        " identity = excluded.identity, incarnation = incarnation + 1, registered_at_s = excluded.registered_at_s,"
        " seen_at_s = excluded.seen_at_s, status = excluded.status RETURNING wid, incarnation",
        (
            tx.job,
            identity.worker,
            json.dumps(flat(identity)),
            tx.now_s,
            json.dumps(flat(_NOT_READY)),
        ),
    ).fetchone()
    tx.db.execute("INSERT OR REPLACE INTO counters (id, samples, gone) VALUES (?, 0, 0)", (_row_id(tx, wid),))
    tx.record(EventKind.WORKER_REGISTERED, worker=identity.worker, data={"incarnation": incarnation})
    return int(incarnation)


def drain(tx: Transaction, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
    """See `Ledger.drain`."""
    tx.check_controller(epoch)
    row = find_worker(tx, worker)
    if row is None or row.gone:
        return False
    if row.drain_deadline_s is None or deadline_s < row.drain_deadline_s:
        _mark(tx, row, deadline_s, reason, epoch)
    return True


def undrain(tx: Transaction, worker: str, epoch: int) -> bool:
    """See `Ledger.undrain`."""
    tx.check_controller(epoch)
    row = find_worker(tx, worker)
    if row is None or row.drain_deadline_s is None:
        return False
    _mark(tx, row, None, None, epoch)
    return True


def _mark(tx: Transaction, row: WorkerRow, deadline_s: float | None, reason: str | None, epoch: int) -> None:
    tx.db.execute(
        "UPDATE counters SET drain_deadline_s = ?, drain_reason = ?, drain_epoch = ? WHERE id = ?",
        (deadline_s, reason, None if deadline_s is None else epoch, _row_id(tx, row.wid)),
    )
    facts = {"deadline_s": deadline_s, "reason": reason, "epoch": epoch}
    tx.record(EventKind.WORKER_DRAINED, worker=row.name, data=facts)


def release_worker(tx: Transaction, worker: str, reason: ReleaseReason, epoch: int | None) -> int:
    """See `Ledger.release_worker`."""
    if epoch is not None:
        tx.check_controller(epoch)
    row = find_worker(tx, worker)
    if row is None or row.gone:
        return 0
    released = give_back_all(tx, row.wid, worker, reason)
    tx.db.execute("UPDATE counters SET gone = 1 WHERE id = ?", (_row_id(tx, row.wid),))
    tx.db.execute("UPDATE workers SET seen_at_s = ? WHERE wid = ?", (tx.now_s, row.wid))
    tx.record(EventKind.WORKER_GONE, worker=worker, data={"reason": reason.value})
    return released


def forget_gone(tx: Transaction) -> None:
    """Forget workers that nobody is shown any more."""
    gone = tx.db.execute(
        "SELECT wid FROM workers JOIN counters ON id = ? | wid WHERE job = ? AND gone AND seen_at_s < ?",
        (_row_id(tx, 0), tx.job, tx.now_s - GONE_SHOWN_S),
    ).fetchall()
    tx.db.executemany("DELETE FROM counters WHERE id = ?", [(_row_id(tx, wid),) for (wid,) in gone])
    tx.db.executemany("DELETE FROM workers WHERE wid = ?", gone)


def records(tx: Transaction) -> tuple[WorkerRecord, ...]:
    """See `Ledger.workers`."""
    rows = tx.db.execute(
        "SELECT wid, identity, incarnation, registered_at_s, seen_at_s, status, drain_deadline_s, drain_reason,"
        " drain_epoch, samples, gone FROM workers JOIN counters ON id = ? | wid"
        " WHERE job = ? AND (NOT gone OR seen_at_s >= ?) ORDER BY wid",
        (_row_id(tx, 0), tx.job, tx.now_s - GONE_SHOWN_S),
    ).fetchall()
    leases = leases_by_owner(tx)
    return tuple(_record(row, leases.get(row[0], 0)) for row in rows)


def _record(row: tuple[Any, ...], leases: int) -> WorkerRecord:
    _, identity, incarnation, registered_at_s, seen_at_s, status, deadline_s, reason, epoch, samples, gone = row
    return WorkerRecord(
        identity=WorkerIdentity(**json.loads(identity)),
        incarnation=incarnation,
        registered_at_s=registered_at_s,
        last_seen_at_s=seen_at_s,
        status=WorkerStatus(**json.loads(status)),
        drain=None if deadline_s is None else DrainMark(deadline_s=deadline_s, reason=reason, epoch=epoch),
        leases=leases,
        committed_samples=samples,
        gone=bool(gone),
    )


def _held_in_vain(tx: Transaction, wid: int) -> list[str]:
    rows = units_where(tx, f"u.job = ? AND u.owner = ? AND u.state = {DROPPED}", tx.job, wid)
    return [row.unit_id for row in rows]
