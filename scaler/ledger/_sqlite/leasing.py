"""A lease's life: kept alive, given back."""

from collections.abc import Sequence

from scaler.ledger._sqlite.fleet import control_of, note_heartbeat, orders_of
from scaler.ledger._sqlite.groups import drop_stale
from scaler.ledger._sqlite.returning import give_back
from scaler.ledger._sqlite.schema import (
    DROPPED,
    LEASED,
)
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger._sqlite.units import UnitRow, append_progress, find_units, note_oldest
from scaler.ledger.contract import Beat, Control, Release
from scaler.model.job import WorkerStatus
from scaler.model.work import ReleaseReason

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
    return control_of(orders_of(tx, row, dict.fromkeys(abandon)), lost)


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
