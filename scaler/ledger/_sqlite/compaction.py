"""Forgetting: history beyond its bound, bodies of what is over, rows of units whose end nothing proves any more.

The names of groups stay in `watermarks` for ever, so that a unit put a second time is still known. Rows and bodies go in
small transactions, so that workers are not kept waiting; the history goes in one, with the event that says so. A kill
between two of them leaves work for the next time.
"""

from scaler.ledger._sqlite.fleet import forget_gone
from scaler.ledger._sqlite.groups import unit_range
from scaler.ledger._sqlite.objects import forget_bodies
from scaler.ledger._sqlite.returning import let_go_of
from scaler.ledger._sqlite.schema import SEQ_BITS
from scaler.ledger._sqlite.store import Store
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger.history import EventKind

_GROUPS_A_STEP = 200


def compact(store: Store) -> int:
    """See `Ledger.compact`; returns how many events were dropped."""
    with store.write() as tx:
        dropped = _drop_history(tx)
        forget_gone(tx)
        tx.db.execute("DELETE FROM batches WHERE job = ? AND acked = 1", (tx.job,))
    _strip(store)
    _forget_units(store)
    return dropped


def _drop_history(tx: Transaction) -> int:
    through = tx.counters.seq - tx.settings.history_events
    first = _first_kept(tx)
    if through < first:
        return 0
    base = tx.job << SEQ_BITS
    dropped = tx.db.execute("DELETE FROM history WHERE hid > ? AND hid <= ?", (base, base | through)).rowcount
    (units,) = tx.db.execute(
        "SELECT ifnull(sum(size), 0) FROM groups WHERE job = ? AND final_seq >= ? AND final_seq <= ?",
        (tx.job, first, through),
    ).fetchone()
    tx.record(EventKind.COMPACTED, data={"through_seq": through, "units_final": units})
    return dropped


def _first_kept(tx: Transaction) -> int:
    base = tx.job << SEQ_BITS
    (hid,) = tx.db.execute(
        "SELECT min(hid) FROM history WHERE hid > ? AND hid < ?", (base, (tx.job + 1) << SEQ_BITS)
    ).fetchone()
    return tx.counters.seq + 1 if hid is None else int(hid) - base


def _strip(store: Store) -> None:
    """Delete the bodies of groups that ended since the last time."""
    with store.write() as tx:
        (final_seq,) = tx.db.execute("SELECT bare_through FROM jobs WHERE job = ?", (tx.job,)).fetchone()
        through = tx.counters.seq
    last = (final_seq, (1 << 63) - 1)
    while True:
        with store.write() as tx:
            rows = tx.db.execute(
                "SELECT gid, name, final_seq FROM groups WHERE job = ? AND final_seq <= ?"
                " AND (final_seq, gid) > (?, ?) ORDER BY final_seq, gid LIMIT ?",
                (tx.job, through, *last, _GROUPS_A_STEP),
            ).fetchall()
            for gid, name, _ in rows:
                for table in ("specs", "samples", "progress"):
                    forget_bodies(tx, table, name, *unit_range(gid))
            if not rows:
                tx.db.execute("UPDATE jobs SET bare_through = ? WHERE job = ?", (through, tx.job))
                return
        last = (rows[-1][2], rows[-1][0])


def _forget_units(store: Store) -> None:
    """Delete the rows of groups whose end is in history that is gone."""
    while True:
        with store.write() as tx:
            gone = tx.db.execute(
                "SELECT gid, name FROM groups WHERE job = ? AND final_seq < ? ORDER BY final_seq LIMIT ?",
                (tx.job, _first_kept(tx), _GROUPS_A_STEP),
            ).fetchall()
            for gid, _ in gone:
                let_go_of(tx, *unit_range(gid))
            tx.db.executemany("INSERT OR IGNORE INTO watermarks VALUES (?, ?)", [(tx.job, name) for _, name in gone])
            tx.db.executemany("DELETE FROM units WHERE uid >= ? AND uid < ?", [unit_range(gid) for gid, _ in gone])
            tx.db.executemany("DELETE FROM groups WHERE gid = ?", [(gid,) for gid, _ in gone])
        if not gone:
            return
