"""How a lease ends without a sample: given back, run out, void; and what follows for the unit and its group."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

from collections.abc import Mapping, Sequence

from scaler.ledger._sqlite.groups import drop_groups
from scaler.ledger._sqlite.objects import forget_bodies
from scaler.ledger._sqlite.schema import BACKING_OFF, DEAD_LETTERED, LEASED, PENDING
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import RESUMES, UnitRow, entry, first_deadline_s, held_units, renew_oldest, units_where
from scaler.ledger.history import EventKind, Scalar
from scaler.ledger.rules import backoff_s, kept_tokens
from scaler.model.work import DropReason, ReleaseReason

_BACKS_OFF = frozenset({ReleaseReason.INFRASTRUCTURE, ReleaseReason.UNIT_FAILURE})
_RELEASED_KEYS = ("fence", "reason", "progress", "published")


def expire(tx: Transaction) -> int:
    """Give back what has run out; returns how many leases. Costs a comparison while nothing can have run out."""
    counters = tx.counters
    if counters.next_expiry_s is None or counters.next_expiry_s > tx.now_s:
        return 0
    expired = give_back(tx, held_units(tx, "u.deadline_s <= ?", tx.now_s), ReleaseReason.EXPIRED)
    counters.next_expiry_s = first_deadline_s(tx)
    return expired


def end_back_offs(tx: Transaction) -> None:
    """Let units whose back-off is over be leased again."""
    counters = tx.counters
    if counters.next_due_s is None or counters.next_due_s > tx.now_s:
        return
    over = tx.db.execute(
        f"UPDATE units SET state = {PENDING} WHERE job = ? AND state = {BACKING_OFF} AND due_s <= ?",
        (tx.job, tx.now_s),
    ).rowcount
    counters.backing_off -= over
    counters.half_done += over
    (counters.next_due_s,) = tx.db.execute(
        f"SELECT min(due_s) FROM units WHERE job = ? AND state = {BACKING_OFF}", (tx.job,)
    ).fetchone()


def void_leases(tx: Transaction) -> None:
    """End every lease of the job, because its token may have been handed out twice."""
    give_back(tx, held_units(tx), ReleaseReason.SUPERSEDED)


def let_go_of(tx: Transaction, first_uid: int, end_uid: int) -> None:
    """Forget the holders of units that were dropped while they were leased, before the rows themselves go."""
    _forget_owners(tx, units_where(tx, "uid >= ? AND uid < ? AND owner IS NOT NULL", first_uid, end_uid))


def give_back_all(tx: Transaction, wid: int, worker: str, reason: ReleaseReason) -> int:
    """End every lease of one worker; returns how many."""
    return give_back(tx, held_units(tx, "u.owner = ?", wid), reason, worker=worker)


def give_back(
    tx: Transaction,
    rows: Sequence[UnitRow],
    reason: ReleaseReason,
    *,
    worker: str | None = None,
    errors: Mapping[int, str] | None = None,
) -> int:
    """End leases, all for one reason; `errors` by row id. Units dropped meanwhile only lose their owner."""
    _forget_owners(tx, [row for row in rows if row.state != LEASED])
    leased = [row for row in rows if row.state == LEASED]
    if not leased:
        return 0
    entries = [_release(tx, row, reason) for row in leased]
    tx.db.executemany(
        "UPDATE units SET state = ?, owner = NULL, due_s = ?, published = ?, oldest = ?, failures = ?, returns = ?"
        " WHERE uid = ?",
        [(row.state, _due_s(tx, row), row.published, row.oldest, row.failures, row.returns, row.uid) for row in leased],
    )
    tx.counters.running -= len(leased)
    count_pending(tx, [row.state for row in leased], 1)
    tx.record(EventKind.RELEASED, entries, keys=_RELEASED_KEYS, worker=worker)
    if reason is ReleaseReason.UNIT_FAILURE:
        _dead_letter(tx, [row for row in leased if row.failures >= tx.settings.unit_failure_limit], errors or {})
    return len(leased)


def count_pending(tx: Transaction, states: Sequence[int], sign: int) -> None:
    """Count units that begin (1) or cease (-1) to wait in a group that was admitted, by their states."""
    backing_off = states.count(BACKING_OFF)
    tx.counters.pending += sign * len(states)
    tx.counters.backing_off += sign * backing_off
    tx.counters.half_done += sign * (len(states) - backing_off)


def _forget_owners(tx: Transaction, rows: Sequence[UnitRow]) -> None:
    let_go = [(row.uid,) for row in rows if row.owner is not None]
    if let_go:
        tx.db.executemany("UPDATE units SET owner = NULL WHERE uid = ?", let_go)
        tx.counters.in_vain -= len(let_go)


def _release(tx: Transaction, row: UnitRow, reason: ReleaseReason) -> tuple[Scalar, ...]:
    """Change `row`; returns its history entry."""
    published = row.published
    kept = kept_tokens(RESUMES[row.resume], published)
    if kept < published:
        _discard_progress(tx, row)
    row.state = PENDING
    row.failures += reason is ReleaseReason.UNIT_FAILURE
    row.returns = row.returns + 1 if reason in _BACKS_OFF else 0
    if row.returns:
        row.state = BACKING_OFF
    return entry(row, reason.value, kept, published)


def _discard_progress(tx: Transaction, row: UnitRow) -> None:
    tx.counters.discarded_tokens += row.published
    forget_bodies(tx, "progress", row.name, row.uid, row.uid + 1)
    row.published, row.oldest = 0, None
    tx.db.execute("UPDATE units SET oldest = NULL WHERE uid = ?", (row.uid,))
    renew_oldest(tx, row.gid)


def _due_s(tx: Transaction, row: UnitRow) -> float | None:
    if row.state != BACKING_OFF:
        return None
    due_s = tx.now_s + backoff_s(tx.settings, row.returns)
    tx.counters.next_due_s = min(due_s, tx.counters.next_due_s or due_s)
    return due_s


def _dead_letter(tx: Transaction, rows: Sequence[UnitRow], errors: Mapping[int, str]) -> None:
    if not rows:
        return
    tx.db.executemany(
        f"UPDATE units SET state = {DEAD_LETTERED}, published = 0, oldest = NULL WHERE uid = ?",
        [(row.uid,) for row in rows],
    )
    tx.db.executemany(
        "INSERT INTO dead_letters (job, unit_id, failures, error) VALUES (?, ?, ?, ?)",
        [(tx.job, row.unit_id, row.failures, errors.get(row.uid, "")) for row in rows],
    )
    count_pending(tx, [row.state for row in rows], -1)
    tx.counters.dead_lettered += len(rows)
    tx.counters.discarded_tokens += sum(row.published for row in rows)
    tx.record(EventKind.DEAD_LETTERED, [(row.unit_id, row.failures) for row in rows], keys=("failures",))
    for gid in sorted({row.gid for row in rows}):
        (redraws,) = tx.db.execute("SELECT redraws FROM groups WHERE gid = ?", (gid,)).fetchone()
        drop_groups(tx, [gid], DropReason.DEAD_LETTERED, redraw=redraws < tx.settings.group_redraw_limit)
