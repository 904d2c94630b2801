"""The trainer's side: batches that come again until acknowledged, versions, reports.

At most one batch is open: an unacknowledged one comes again before there is a new one. `counters.taken` counts samples
in batches, acknowledged or not, and not rejected since.
"""

# ruff: noqa: S608 - what is put into these statements are numbers and column names of our own

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

from scaler.ledger._sqlite.groups import drop_as_stale, drop_groups, sweep_stale, unit_range
from scaler.ledger._sqlite.objects import UnitObjects
from scaler.ledger._sqlite.samples import read_samples
from scaler.ledger._sqlite.schema import CONSUMED, DONE, READY, TAKEN
from scaler.ledger._sqlite.specs import prompt_of, read_specs, unit_of
from scaler.ledger._sqlite.transaction import Transaction
from scaler.ledger.bodies import decode_sample, unpack
from scaler.ledger.flat import flat
from scaler.ledger.history import EventKind, Scalar
from scaler.model.job import TrainerReport
from scaler.model.work import Batch, DropReason, GroupSamples, PolicyVersion


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch not yet acknowledged."""

    batch: int
    wanted: int
    trainer_version: int
    max_staleness: int


def attach(tx: Transaction, owner: str) -> int:
    """See `Ledger.attach_trainer`."""
    tx.counters.trainer_epoch += 1
    facts: dict[str, Scalar] = {"trainer_epoch": tx.counters.trainer_epoch, "owner": owner}
    tx.record(EventKind.TRAINER_ATTACHED, data=facts)
    return tx.counters.trainer_epoch


def take(
    tx: Transaction, trainer_epoch: int, groups: int, trainer_version: int, max_staleness: int
) -> tuple[int, bool] | None:
    """See `Ledger.take_batch`; returns the batch's number and whether it comes again."""
    if groups < 1:
        raise ValueError(f"a batch of {groups} groups")
    tx.check_trainer(trainer_epoch)
    row = tx.db.execute("SELECT batch FROM batches WHERE job = ? AND acked = 0 ORDER BY batch LIMIT 1", (tx.job,))
    again = row.fetchone()
    if again is not None:
        return again[0], True
    if not tx.counters.configured:
        return None  # its trainer came first
    _drop_stale_ready(tx, trainer_version - min(max_staleness, tx.settings.max_staleness))
    if tx.counters.ready_groups < groups:
        return None
    tx.counters.batch += 1
    batch = OpenBatch(tx.counters.batch, groups, trainer_version, max_staleness)
    tx.db.execute(
        "INSERT INTO batches (job, batch, wanted, trainer_version, max_staleness, acked) VALUES (?, ?, ?, ?, ?, 0)",
        (tx.job, *dataclasses.astuple(batch)),
    )
    _fill(tx, batch, groups, first_place=0)
    _record_taken(tx, batch)
    return batch.batch, False


def take_more(tx: Transaction, trainer_epoch: int, batch_id: int, reject: Sequence[str]) -> bool:
    """See `Ledger.take_more`. Whether the batch is full now; False for one that is not open."""
    tx.check_trainer(trainer_epoch)
    row = tx.db.execute(
        "SELECT batch, wanted, trainer_version, max_staleness FROM batches WHERE job = ? AND batch = ? AND acked = 0",
        (tx.job, batch_id),
    ).fetchone()
    if row is None:
        return False
    batch = OpenBatch(*row)
    members = _members(tx, batch_id)
    rejected = [gid for gid, name, _ in members if name.rpartition(".")[0] in set(reject)]
    drop_groups(tx, rejected, DropReason.FILTERED)
    _drop_stale_ready(tx, batch.trainer_version - min(batch.max_staleness, tx.settings.max_staleness))
    missing = batch.wanted - (len(members) - len(rejected))
    full = tx.counters.ready_groups >= missing
    if full and missing:
        _fill(tx, batch, missing, first_place=members[-1][2] + 1 if members else 0)
    if rejected or (full and missing):
        _record_taken(tx, batch)
    return full


def ack(tx: Transaction, trainer_epoch: int, batch_ids: Sequence[int]) -> int:
    """See `Ledger.ack_batch`."""
    tx.check_trainer(trainer_epoch)
    return sum(_ack_one(tx, batch_id) for batch_id in dict.fromkeys(batch_ids))


def publish(tx: Transaction, trainer_epoch: int, version: PolicyVersion) -> None:
    """See `Ledger.publish`. Groups in flight that are too stale from now on are dropped at once."""
    tx.check_trainer(trainer_epoch)
    counters = tx.counters
    (digest,) = tx.db.execute("SELECT digest FROM jobs WHERE job = ?", (tx.job,)).fetchone()
    if counters.version is not None and counters.version_epoch == trainer_epoch:
        if version.step < counters.version:
            raise ValueError(f"version {version.step} after {counters.version} in the same trainer epoch")
        if (version.step, version.digest) == (counters.version, digest):
            return
    counters.version, counters.version_epoch = version.step, trainer_epoch
    tx.db.execute("UPDATE jobs SET digest = ? WHERE job = ?", (version.digest, tx.job))
    facts: dict[str, Scalar] = {"step": version.step, "digest": version.digest, "trainer_epoch": trainer_epoch}
    tx.record(EventKind.PUBLISHED, data=facts)
    sweep_stale(tx)


def report(tx: Transaction, trainer_epoch: int, news: TrainerReport) -> None:
    """See `Ledger.report`."""
    tx.check_trainer(trainer_epoch)
    text = json.dumps(flat(news))
    tx.db.execute("UPDATE jobs SET report = ?, report_at_s = ? WHERE job = ?", (text, tx.now_s, tx.job))


def read(tx: Transaction, batch_id: int, *, redelivered: bool) -> Batch:
    """A batch with its bodies."""
    groups = tuple(_read_group(tx, gid) for gid, _, _ in _members(tx, batch_id))
    return Batch(batch_id=batch_id, groups=groups, redelivered=redelivered)


def _members(tx: Transaction, batch_id: int) -> list[tuple[int, str, int]]:
    query = f"SELECT gid, name, place FROM groups WHERE job = ? AND batch = ? AND state = {TAKEN} ORDER BY place"
    return tx.db.execute(query, (tx.job, batch_id)).fetchall()


def _drop_stale_ready(tx: Transaction, oldest_usable: int) -> None:
    query = f"SELECT gid, oldest FROM groups WHERE job = ? AND state = {READY} ORDER BY ready"
    rows = tx.db.execute(query, (tx.job,)).fetchall()
    drop_as_stale(tx, [gid for gid, oldest in rows if oldest < oldest_usable])


def _fill(tx: Transaction, batch: OpenBatch, count: int, first_place: int) -> None:
    query = f"SELECT gid, size FROM groups WHERE job = ? AND state = {READY} ORDER BY ready LIMIT ?"
    chosen = tx.db.execute(query, (tx.job, count)).fetchall()
    tx.db.executemany(
        f"UPDATE groups SET state = {TAKEN}, batch = ?, place = ? WHERE gid = ?",
        [(batch.batch, place, gid) for place, (gid, _) in enumerate(chosen, first_place)],
    )
    tx.counters.ready_groups -= len(chosen)
    tx.counters.taken += sum(size for _, size in chosen)


def _record_taken(tx: Transaction, batch: OpenBatch) -> None:
    facts = {
        "batch": batch.batch,
        "trainer_epoch": tx.counters.trainer_epoch,
        "trainer_version": batch.trainer_version,
    }
    tx.record(EventKind.BATCH_TAKEN, [(name,) for _, name, _ in _members(tx, batch.batch)], data=facts)


def _ack_one(tx: Transaction, batch_id: int) -> bool:
    changed = tx.db.execute(
        "UPDATE batches SET acked = 1 WHERE job = ? AND batch = ? AND acked = 0", (tx.job, batch_id)
    ).rowcount
    if not changed:
        return False
    members = _members(tx, batch_id)
    facts = {"batch": batch_id, "trainer_epoch": tx.counters.trainer_epoch}
    seq = tx.record(EventKind.BATCH_ACKED, [(name,) for _, name, _ in members], data=facts)
    for gid, _, _ in members:
        units = tx.db.execute(
            f"UPDATE units SET state = {CONSUMED} WHERE uid >= ? AND uid < ?", unit_range(gid)
        ).rowcount
        tx.db.execute(f"UPDATE groups SET state = {DONE}, final_seq = ? WHERE gid = ?", (seq, gid))
        tx.counters.buffered -= units
        tx.counters.accepted += units
    return True


def _read_group(tx: Transaction, gid: int) -> GroupSamples:
    rows = tx.db.execute(
        "SELECT uid, name, resume, attempt FROM units WHERE uid >= ? AND uid < ? ORDER BY uid", unit_range(gid)
    ).fetchall()
    specs, samples = read_specs(tx.db, [uid for uid, *_ in rows]), read_samples(tx, gid)
    units = tuple(
        unit_of(uid, name, resume, spec, prompt_of(tx.objects, name, spec))
        for (uid, name, resume, _), spec in zip(rows, specs, strict=True)
    )
    return GroupSamples(
        group_id=units[0].group_id,
        group_epoch=units[0].group_epoch,
        units=units,
        samples=tuple(
            decode_sample(unit.unit_id, unpack(UnitObjects(tx.objects, unit.unit_id), samples[uid]))
            for unit, (uid, *_) in zip(units, rows, strict=True)
        ),
        attempts=tuple(attempt for *_, attempt in rows),
    )
