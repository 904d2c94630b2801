"""What must hold of the ledger after every call (design section 4), whoever made it and whatever went wrong around it.

Two witnesses: what replies said, remembered here, and the history, judged by `scaler.ledger.audit` as it grows and
folded by `Tally`. The store's own counters must agree with the fold after every call, and its units at every census.
"""

from collections.abc import Callable
from typing import Any

from scaler.ledger.audit import Auditor
from scaler.ledger.contract import (
    Beat,
    Commit,
    CommitOutcome,
    Control,
    LeaseReply,
    Ledger,
    Release,
    StaleEpoch,
    UnitState,
)
from scaler.model.job import JobSettings, LedgerStats
from scaler.model.work import Batch, FencingToken, Lease, Resume, Sample
from tests.faults.cloud import TRAINER_WORKER
from tests.faults.model_text import expected_tokens
from tests.faults.tally import Tally
from tests.faults.training_record import TrainingRecord
from tests.faults.watch import Watch

READS = frozenset({"stats", "workers", "history", "census", "check", "samples", "dead_letters"})
_FENCED = frozenset({"take_batch", "take_more", "ack_batch", "publish", "report"})
_LED = frozenset({"drain", "undrain", "release_worker"})


class LedgerRules:
    """See the module's docstring. `called` hears every call that was performed, also where its answer got lost."""

    def __init__(self, watch: Watch, job: JobSettings, record: TrainingRecord) -> None:
        self._watch = watch
        self._job = job
        self._record = record
        self._auditor = Auditor()
        self._found = 0
        self._fences: dict[str, FencingToken] = {}
        self._published: dict[str, int] = {}
        """Unit -> tokens that the store has accepted of it."""
        self._samples: dict[str, Sample] = {}
        self._open: Batch | None = None
        self.leader_epoch = 0
        """The highest that the store has heard."""
        self._checks: dict[str, Callable[[tuple[Any, ...], Any], None]] = {
            "lease": self._leased,
            "heartbeat": self._beaten,
            "commit": self._committed,
            "release": self._released,
            "take_batch": self._taken,
            "take_more": self._taken_more,
            "ack_batch": self._acked,
            "publish": self._version_published,
        }
        self.tally = Tally()

    def called(self, ledger: Ledger, method: str, args: tuple[Any, ...], reply: Any) -> None:
        """The store did what was asked."""
        if method in READS:
            return
        if method in _LED:
            self._led(args)
            if args[0] == TRAINER_WORKER:
                self._broke("trainers untouchable", f"{method} names {args[0]}")
        if method in _FENCED and args[0] != self.tally.trainer_epoch:
            self._broke("trainer fence", f"{method} of epoch {args[0]} went through in {self.tally.trainer_epoch}")
        check = self._checks.get(method)
        if check is not None:
            check(args, reply)
        marked_s = self._marked_s(args[0]) if method == "drain" else None
        self._read_on(ledger)
        if marked_s is not None and self._marked_s(args[0]) != min(marked_s, args[1]):
            self._broke(
                "drain", f"{args[0]} was to leave by {marked_s}, then by {args[1]}: now {self._marked_s(args[0])}"
            )

    def refused(self, method: str, args: tuple[Any, ...], error: Exception) -> None:
        """The store refused a call."""
        if not isinstance(error, StaleEpoch):
            return
        if method in _FENCED and args[0] == self.tally.trainer_epoch:
            self._broke("trainer fence", f"{method}: the trainer that attached last was refused")
        if method in _LED and args[-1] >= self.leader_epoch:
            self._broke("leader fence", f"{method}: epoch {args[-1]} was refused, the highest is {self.leader_epoch}")

    def check_census(self, ledger: Ledger) -> None:
        """The units that the store holds are those of the history, each in the state that it tells."""
        census = {entry.unit_id: entry.state for entry in ledger.census()}
        told = {name: unit.state for name, unit in self.tally.units.items()}
        if census != told:
            wrong = sorted(name for name in census.keys() | told.keys() if census.get(name) != told.get(name))
            self._broke("census", f"{wrong[0]} is {census.get(wrong[0])}, the history says {told.get(wrong[0])}")

    def _broke(self, rule: str, detail: str) -> None:
        self._watch.broke(rule, detail)

    # --- the history ------------------------------------------------------------------------------------------------

    def _read_on(self, ledger: Ledger) -> None:
        events = ledger.history(self._auditor.last_seq)
        if not events:
            return
        self._auditor.feed(events)
        self.tally.feed(events)
        findings = self._auditor.findings
        for finding in findings[self._found :]:
            self._broke("audit", f"{finding.fault}: {finding.subject}: {finding.message}")
        self._found = len(findings)
        for fell in self.tally.epochs_fell:
            self._broke("leader fence", fell)
        self._compare(ledger.stats())

    def _compare(self, stats: LedgerStats) -> None:
        counts, taken = self.tally.counts, self.tally.taken_samples
        told = {
            "pending": counts[UnitState.PENDING],
            "running": counts[UnitState.LEASED],
            "buffered": counts[UnitState.COMMITTED],
            "accepted": counts[UnitState.CONSUMED],
            "consumed": counts[UnitState.CONSUMED] + taken,
            "dead_lettered": counts[UnitState.DEAD_LETTERED],
            "version": self.tally.version,
        }
        for name, value in told.items():
            if getattr(stats, name) != value:
                self._broke("counters", f"{name} is {getattr(stats, name)}, the history says {value}")
        bound = (self._job.max_staleness + 1) * self._job.batch_samples * self._job.batches_per_version
        if stats.running + stats.buffered > bound:
            self._broke("admission", f"{stats.running} running and {stats.buffered} buffered, bound {bound}")

    # --- workers ----------------------------------------------------------------------------------------------------

    def _leased(self, args: tuple[Any, ...], reply: LeaseReply) -> None:
        worker = self.tally.workers.get(args[0])
        if reply.leases and (worker is None or worker.gone or worker.drain_deadline_s is not None):
            self._broke("drain", f"{args[0]} is draining, gone or unknown and was given {len(reply.leases)} leases")
        self._heard_drain(args[0], reply.control)
        for lease in reply.leases:
            self._handed_over(lease)

    def _handed_over(self, lease: Lease) -> None:
        unit_id, last = lease.unit.unit_id, self._fences.get(lease.unit.unit_id)
        if last is not None and not last < lease.fencing_token:
            self._broke("fence", f"{unit_id} was leased under {lease.fencing_token} after {last}")
        self._fences[unit_id] = lease.fencing_token
        published = self._published.get(unit_id, 0) if lease.unit.resume is not Resume.RESTART else 0
        if len(lease.progress.tokens) != published:
            self._broke(
                "progress", f"{unit_id}: {published} tokens published, {len(lease.progress.tokens)} handed over"
            )
        if lease.progress.tokens != expected_tokens(lease.unit.seed, len(lease.progress.tokens)):
            self._broke("progress", f"{unit_id}: tokens were changed on their way")
        self._published[unit_id] = published

    def _marked_s(self, name: str) -> float | None:
        worker = self.tally.workers.get(name)
        return None if worker is None or worker.gone else worker.drain_deadline_s

    def _heard_drain(self, name: str, control: Control) -> None:
        worker = self.tally.workers.get(name)
        told = None if worker is None else worker.drain_deadline_s
        if control.drain_deadline_s != told:
            self._broke("drain", f"{name} hears the deadline {control.drain_deadline_s}, marked is {told}")

    def _beaten(self, args: tuple[Any, ...], control: Control) -> None:
        name, beats = args[0], args[1]
        beat: Beat
        for beat in beats:
            alive = beat.unit_id not in control.lost and beat.unit_id not in control.abandon
            if not alive:
                continue
            if self._fences.get(beat.unit_id) != beat.fencing_token:
                self._broke("fence", f"{beat.unit_id}: the heartbeat of an old holder, {name}, was accepted")
            if beat.progress is not None:
                self._publish(beat.unit_id, beat.progress.start + len(beat.progress.tokens))
        self._heard_drain(name, control)

    def _publish(self, unit_id: str, through: int) -> None:
        self._published[unit_id] = max(through, self._published.get(unit_id, 0))

    def _committed(self, args: tuple[Any, ...], outcomes: tuple[CommitOutcome, ...]) -> None:
        commit: Commit
        for commit, outcome in zip(args[1], outcomes, strict=True):
            known = self._samples.get(commit.unit_id)
            if outcome is CommitOutcome.REFUSED:
                continue
            if self._fences.get(commit.unit_id) != commit.fencing_token:
                self._broke(
                    "fence", f"{commit.unit_id}: {args[0]} committed under {commit.fencing_token}, an old fence"
                )
            if (outcome is CommitOutcome.ALREADY) != (known is not None):
                self._broke("commit", f"{commit.unit_id}: {outcome}, committed before: {known is not None}")
            self._samples.setdefault(commit.unit_id, commit.sample)

    def _released(self, args: tuple[Any, ...], accepted: tuple[bool, ...]) -> None:
        release: Release
        for release, done in zip(args[1], accepted, strict=True):
            if done and self._fences.get(release.unit_id) != release.fencing_token:
                self._broke("fence", f"{release.unit_id}: a release under an old fence was accepted")
            if done and release.progress is not None:
                self._publish(release.unit_id, release.progress.start + len(release.progress.tokens))

    # --- trainer ----------------------------------------------------------------------------------------------------

    def _taken(self, args: tuple[Any, ...], batch: Batch | None) -> None:
        before = self._open
        if before is not None and batch is None:
            self._broke("batch", f"batch {before.batch_id} is open and was not handed out again")
        if batch is None:
            return
        if before is not None and (batch.batch_id, batch.groups) != (before.batch_id, before.groups):
            self._broke("batch", f"batch {before.batch_id} is open, and what came is {batch.batch_id} or has changed")
        if batch.redelivered != (before is not None):
            self._broke("batch", f"batch {batch.batch_id}: redelivered is {batch.redelivered}")
        if before is None:
            self._check_batch(batch, version=args[2], max_staleness=args[3])
        self._open = batch

    def _taken_more(self, args: tuple[Any, ...], batch: Batch | None) -> None:
        before = self._open
        if before is None or before.batch_id != args[1]:
            return
        kept = tuple(group for group in before.groups if group.group_id not in set(args[2]))
        if batch is not None and batch.groups[: len(kept)] != kept:
            self._broke("batch", f"batch {before.batch_id}: groups that stay were changed")
        self._open = batch or Batch(batch_id=before.batch_id, groups=kept)

    def _check_batch(self, batch: Batch, version: int, max_staleness: int) -> None:
        for group in batch.groups:
            if len(group.samples) != self._job.group_size:
                self._broke("batch", f"group {group.group_id} came with {len(group.samples)} samples")
            for unit, sample in zip(group.units, group.samples, strict=True):
                if sample != self._samples.get(unit.unit_id):
                    self._broke("sample", f"{unit.unit_id} is not what was committed")
                if sample.tokens != expected_tokens(unit.seed, len(sample.tokens)):
                    self._broke("sample", f"{unit.unit_id}: tokens are lost, doubled or invented")
                if version - sample.oldest_version > max_staleness:
                    self._broke("staleness", f"{unit.unit_id} is {version - sample.oldest_version} versions old")

    def _acked(self, args: tuple[Any, ...], _: int) -> None:
        for batch_id in args[1]:
            if not self._record.is_checkpointed(batch_id):
                self._broke("acknowledged", f"batch {batch_id} is in no durable checkpoint")
            if self._open is not None and self._open.batch_id == batch_id:
                self._open = None

    def _version_published(self, args: tuple[Any, ...], _: None) -> None:
        if args[1].step > self._record.durable_step:
            self._broke("published", f"version {args[1].step}, the durable checkpoint is {self._record.durable_step}")

    # --- controllers ------------------------------------------------------------------------------------------------

    def _led(self, args: tuple[Any, ...]) -> None:
        epoch = args[-1]
        if not isinstance(epoch, int):
            return  # a worker's own goodbye
        if epoch < self.leader_epoch:
            self._broke("leader fence", f"a call of epoch {epoch} went through after one of {self.leader_epoch}")
        self.leader_epoch = max(epoch, self.leader_epoch)
