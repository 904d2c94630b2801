"""A ledger in memory that trainers can be run against: as much of the contract as trainer and in-process worker use.

It writes down every call, asks `before` first (which may raise, or look at the world), and never loses what it was told.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from scaler.ledger.contract import Commit, CommitOutcome, Control, LeaseReply, Ledger, StaleEpoch
from scaler.model.job import JobSettings, LedgerStats, TokenCounts, TrainerReport, WorkerIdentity, WorkerRecord
from scaler.model.work import (
    Batch,
    DropReason,
    FencingToken,
    GroupSamples,
    Lease,
    PolicyVersion,
    Sample,
    WorkUnit,
)


class MemoryLedger:
    """See the module's docstring. Use `as_ledger` where a `Ledger` is wanted."""

    def __init__(self, settings: JobSettings, before: Callable[[str], None] = lambda name: None) -> None:
        self.settings = settings
        self.before = before
        self.calls: list[str] = []
        self.units: dict[str, WorkUnit] = {}
        self.leased: set[str] = set()
        self.samples: dict[str, Sample] = {}
        self.dropped: dict[str, DropReason] = {}
        self.batches: dict[int, Batch] = {}
        self.handed_out: list[Batch] = []
        self.acked: list[int] = []
        self.versions: list[PolicyVersion] = []
        self.reports: list[TrainerReport] = []
        self.records: tuple[WorkerRecord, ...] = ()
        self.epoch = 0

    def as_ledger(self) -> Ledger:
        return cast("Ledger", self)

    def put_units(self, units: Sequence[WorkUnit]) -> int:
        self._enter("put_units")
        new = {unit.unit_id: unit for unit in units if unit.unit_id not in self.units}
        self.units |= new
        return len(new)

    def register(self, identity: WorkerIdentity) -> int:
        self._enter("register")
        return 1

    def lease(self, worker: str, n: int, ttl_s: float) -> LeaseReply:
        self._enter("lease")
        job = self.settings
        done = {u.unit_id for batch in self.batches.values() for group in batch.groups for u in group.units}
        buffered = len([unit for unit in self.samples if unit not in done and self._group(unit) not in self.dropped])
        room = (job.max_staleness + 1) * job.batch_samples - buffered - len(self.leased)
        chosen = [unit for unit in self.units.values() if self._pending(unit)][: max(0, min(n, room))]
        self.leased |= {unit.unit_id for unit in chosen}
        leases = [
            Lease(unit=unit, owner=worker, fencing_token=FencingToken(1, 1), attempt=1, deadline_s=ttl_s)
            for unit in chosen
        ]
        return LeaseReply(leases=tuple(leases), control=Control(store_now_s=0.0))

    def commit(self, worker: str, commits: Sequence[Commit]) -> tuple[CommitOutcome, ...]:
        self._enter("commit")
        self.samples |= {commit.unit_id: commit.sample for commit in commits}
        self.leased -= {commit.unit_id for commit in commits}
        return (CommitOutcome.COMMITTED,) * len(commits)

    def attach_trainer(self, owner: str) -> int:
        self._enter("attach_trainer")
        self.epoch += 1
        return self.epoch

    def take_batch(self, trainer_epoch: int, groups: int, trainer_version: int, max_staleness: int) -> Batch | None:
        self._enter("take_batch", trainer_epoch)
        for batch in self.batches.values():
            if batch.batch_id not in self.acked:
                return self._hand_out(replace(batch, redelivered=True))
        ready = self._ready(trainer_version - max_staleness)
        if len(ready) < groups:
            return None
        return self._hand_out(Batch(batch_id=len(self.batches) + 1, groups=tuple(ready[:groups])))

    def take_more(self, trainer_epoch: int, batch_id: int, reject: Sequence[str]) -> Batch | None:
        self._enter("take_more", trainer_epoch)
        self.dropped |= dict.fromkeys(reject, DropReason.FILTERED)
        batch = self.batches[batch_id]
        kept = tuple(group for group in batch.groups if group.group_id not in self.dropped)
        self.batches[batch_id] = replace(batch, groups=kept)
        ready = self._ready(0)
        missing = self.settings.batch_groups - len(kept)
        if len(ready) < missing:
            return None
        return self._hand_out(replace(batch, groups=(*kept, *ready[:missing])))

    def ack_batch(self, trainer_epoch: int, batch_ids: Sequence[int]) -> int:
        self._enter("ack_batch", trainer_epoch)
        new = [batch for batch in batch_ids if batch in self.batches and batch not in self.acked]
        self.acked += new
        return len(new)

    def publish(self, trainer_epoch: int, version: PolicyVersion) -> None:
        self._enter("publish", trainer_epoch)
        self.versions.append(version)

    def report(self, trainer_epoch: int, report: TrainerReport) -> None:
        self._enter("report", trainer_epoch)
        self.reports.append(report)

    def stats(self) -> LedgerStats:
        self._enter("stats")
        return LedgerStats(
            at_s=0.0,
            store_epoch=1,
            pending=sum(self._pending(unit) for unit in self.units.values()),
            backing_off=0,
            running=len(self.leased),
            buffered=0,
            ready_groups=0,
            admissible=0,
            consumed=0,
            accepted=0,
            dead_lettered=0,
            dropped={},
            tokens=TokenCounts(),
            interruptions_salvaged=0,
            oldest_ready_age_s=None,
            version=self.versions[-1].step if self.versions else None,
            trainer_epoch=self.epoch,
            trainer=None,
            trainer_at_s=None,
            settings=self.settings,
        )

    def workers(self) -> tuple[WorkerRecord, ...]:
        self._enter("workers")
        return self.records

    def _enter(self, name: str, epoch: int | None = None) -> None:
        self.before(name)
        if epoch is not None and epoch != self.epoch:
            raise StaleEpoch(f"epoch {epoch} was succeeded by {self.epoch}")
        self.calls.append(name)

    def _pending(self, unit: WorkUnit) -> bool:
        return unit.unit_id not in self.leased and unit.unit_id not in self.samples

    def _group(self, unit_id: str) -> str:
        return self.units[unit_id].group_id

    def _ready(self, oldest_version: int) -> list[GroupSamples]:
        """Complete groups in nobody's batch, oldest put first; the too stale ones are dropped."""
        taken = {group.group_id for batch in self.batches.values() for group in batch.groups}
        ready = []
        for name in dict.fromkeys(unit.group_id for unit in self.units.values()):
            units = tuple(unit for unit in self.units.values() if unit.group_id == name)
            if name in taken or name in self.dropped or any(unit.unit_id not in self.samples for unit in units):
                continue
            samples = tuple(self.samples[unit.unit_id] for unit in units)
            if min(sample.oldest_version for sample in samples) < oldest_version:
                self.dropped[name] = DropReason.STALE
                continue
            ready.append(
                GroupSamples(group_id=name, group_epoch=0, units=units, samples=samples, attempts=(1,) * len(units))
            )
        return ready

    def _hand_out(self, batch: Batch) -> Batch:
        self.batches[batch.batch_id] = replace(batch, redelivered=False)
        self.handed_out.append(batch)
        return batch
