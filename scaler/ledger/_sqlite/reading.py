"""Readings: statistics, history, census, dead letters. None of them changes anything."""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import json
from collections.abc import Iterator
from typing import Any

from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.samples import read_samples
from scaler.ledger._sqlite.schema import BACKING_OFF, OPEN, READY, SEQ_BITS, TAKEN, UNIT_STATES
from scaler.ledger._sqlite.store import Store
from scaler.ledger._sqlite.transaction import Transaction, unit_id
from scaler.ledger.bodies import sample_fault
from scaler.ledger.contract import CensusEntry, DeadLetter, HeldSample, LedgerRefused
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent
from scaler.ledger.rules import admissible
from scaler.model.job import LedgerStats, Phase, TokenCounts, TrainerReport
from scaler.model.work import FencingToken

_CENSUS_PAGE = 5000
_SAMPLES_PAGE = 200
"""Groups."""


def stats(tx: Transaction) -> LedgerStats:
    """See `Ledger.stats`. What is not a counter is bounded by what is in flight."""
    counters, settings = tx.counters, tx.settings
    report, report_at_s = tx.db.execute("SELECT report, report_at_s FROM jobs WHERE job = ?", (tx.job,)).fetchone()
    return LedgerStats(
        at_s=tx.now_s,
        store_epoch=counters.store_epoch,
        pending=counters.pending,
        backing_off=_backing_off(tx),
        running=counters.running,
        buffered=counters.buffered,
        ready_groups=counters.ready_groups,
        admissible=admissible(settings, counters.running, counters.buffered),
        consumed=counters.taken,
        accepted=counters.accepted,
        dead_lettered=counters.dead_lettered,
        dropped=_drops(tx),
        tokens=TokenCounts(
            committed=counters.committed_tokens,
            salvaged=counters.salvaged_tokens,
            discarded=counters.discarded_tokens,
        ),
        interruptions_salvaged=counters.salvages,
        oldest_ready_age_s=_oldest_ready_age_s(tx),
        version=counters.version,
        trainer_epoch=counters.trainer_epoch,
        trainer=None if report is None else _report(report),
        trainer_at_s=report_at_s,
        settings=settings,
    )


def history(tx: Transaction, after_seq: int, limit: int) -> list[HistoryEvent]:
    """See `Ledger.history`."""
    first = tx.job << SEQ_BITS
    rows = tx.db.execute(
        "SELECT hid, at_s, kind, worker, body FROM history WHERE hid > ? AND hid < ? ORDER BY hid LIMIT ?",
        (first | after_seq, (tx.job + 1) << SEQ_BITS, limit),
    )
    return [_event(*row) for row in rows]


def dead_letters(tx: Transaction) -> tuple[DeadLetter, ...]:
    """See `Ledger.dead_letters`."""
    rows = tx.db.execute("SELECT unit_id, failures, error FROM dead_letters WHERE job = ? ORDER BY rowid", (tx.job,))
    return tuple(DeadLetter(unit_id=unit_id, failures=failures, error=error) for unit_id, failures, error in rows)


def census(store: Store) -> Iterator[CensusEntry]:
    """See `Ledger.census`. Read in pages, so that a long census does not keep the log from being folded back."""
    after, page = _census_page(store, -1)
    while page:
        yield from page
        after, page = _census_page(store, after)


def _census_page(store: Store, after: int) -> tuple[int, list[CensusEntry]]:
    """The last row read, and its units."""
    with store.read() as tx:
        rows = tx.db.execute(
            "SELECT uid, name, state, store_epoch, fence, attempt FROM units WHERE uid > ? AND job = ? ORDER BY uid LIMIT ?",
            (after, tx.job, _CENSUS_PAGE),
        ).fetchall()
        return rows[-1][0] if rows else after, [_census_entry(*row) for row in rows]


def _census_entry(uid: int, name: str, state: int, store_epoch: int, fence: int, attempt: int) -> CensusEntry:
    token = FencingToken(store_epoch, fence) if attempt else None
    return CensusEntry(unit_id(name, uid), UNIT_STATES[state], token)


def check(store: Store) -> None:
    """See `Ledger.check`. SQLite's whole check: without the indexes it is hardly faster, most of it is reading the file."""
    with store.read() as tx:
        (found,) = tx.db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise LedgerRefused(f"SQLite finds the file damaged: {' '.join(str(found).split())}")


def samples(store: Store) -> Iterator[HeldSample]:
    """See `Ledger.samples`. Read in pages as `census`; objects are read after their page, so one may be gone by then."""
    before, (after, page) = -1, _samples_page(store, -1)
    while after > before:
        for whose, record in page:
            yield HeldSample(whose, sample_fault(UnitObjects(store.objects, whose), whose, record))
        before, (after, page) = after, _samples_page(store, after)


def _samples_page(store: Store, after: int) -> tuple[int, list[tuple[str, bytes]]]:
    """The last group read, and the records of some groups, by unit."""
    records: list[tuple[str, bytes]] = []
    with store.read() as tx:
        groups = tx.db.execute(
            f"SELECT gid, name FROM groups WHERE gid > ? AND job = ? AND state IN ({OPEN}, {READY}, {TAKEN})"
            " ORDER BY gid LIMIT ?",
            (after, tx.job, _SAMPLES_PAGE),
        ).fetchall()
        for gid, name in groups:
            records += [(unit_id(name, uid), record) for uid, record in read_samples(tx, gid).items()]
        return groups[-1][0] if groups else after, records


def _backing_off(tx: Transaction) -> int:
    query = f"SELECT count(*) FROM units WHERE job = ? AND state = {BACKING_OFF} AND due_s > ?"
    (count,) = tx.db.execute(query, (tx.job, tx.now_s)).fetchone()
    return int(count)


def _oldest_ready_age_s(tx: Transaction) -> float | None:
    query = f"SELECT ready_at_s FROM groups WHERE job = ? AND state = {READY} ORDER BY ready LIMIT 1"
    row = tx.db.execute(query, (tx.job,)).fetchone()
    return None if row is None else tx.now_s - float(row[0])


def _drops(tx: Transaction) -> dict[str, dict[str, int]]:
    drops: dict[str, dict[str, int]] = {}
    for reason, bucket, units in tx.db.execute(
        "SELECT reason, bucket, units FROM drops WHERE job = ? ORDER BY reason, CAST(bucket AS INTEGER)", (tx.job,)
    ):
        drops.setdefault(reason, {})[bucket] = units
    return drops


def _report(text: str) -> TrainerReport:
    raw = json.loads(text)
    phases = {Phase(phase): seconds for phase, seconds in raw["phase_s"].items()}
    return TrainerReport(**{**raw, "phase": Phase(raw["phase"]), "phase_s": phases})


def _event(hid: int, at_s: float, kind: str, worker: str | None, body: str) -> HistoryEvent:
    data, keys, entries = json.loads(body)
    return HistoryEvent(
        seq=hid & ((1 << SEQ_BITS) - 1),
        at_s=at_s,
        kind=EventKind(kind),
        worker=worker,
        data=data,
        entries=tuple(_entry(keys, entry) for entry in _unrolled(entries, len(keys))),
    )


def _unrolled(entries: list[list[Any]], keys: int) -> Iterator[list[Any]]:
    """Entries of one subject each; see `transaction.run_text`."""
    for entry in entries:
        if not isinstance(entry[-1], list):
            yield entry
            continue
        name, fence, numbers = entry
        for at in range(0, len(numbers), keys):
            index, *values = numbers[at : at + keys]
            yield [unit_id(name, index), fence, *values]


def _entry(keys: list[str], entry: list[Any]) -> HistoryEntry:
    subject, *values = entry
    return HistoryEntry(subject, {key: value for key, value in zip(keys, values, strict=True) if value is not None})
