"""The figures of a run, each from the record of the part that knows it best.

Updates and rewards come from the trainer's record, interruptions from the cloud's, tokens generated from the counters
that survive a killed worker, the rest from the ledger and its audit.

tokens_wasted = generated - in committed samples - still held as progress. So it counts what a kill lost, what was
generated twice, and what was given up with a unit; samples that were committed and then dropped are told apart, by length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scaler.demo.moments import Moment, Run
from scaler.ledger.audit_report import LOST, AuditReport, Fault
from scaler.ledger.history import EventKind, HistoryEvent
from scaler.model.job import LedgerStats

EDGE_UPDATES = 5
"""Rewards first and last are means over this many updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a demo came to. Ratios are 0 to 1."""

    duration_s: float
    policy_updates: int
    reward_first: float
    reward_last: float
    interruptions_noticed: int
    interruptions_unnoticed: int
    units_committed: int
    units_lost: int
    samples_doubled: int
    tokens_generated: int
    tokens_salvaged: int
    tokens_wasted: int
    replicas_min: int
    replicas_max: int
    trainer_wait_ratio: float
    audit_ok: bool
    tokens_committed: int
    tokens_in_progress: int
    salvages: int
    """Hand-overs that carried at least one token."""
    samples_dropped: Mapping[str, Mapping[str, int]]
    """By reason, then by length bucket (upper bound in tokens)."""
    phase_s: Mapping[str, float]
    """Mean seconds an update spent in each phase."""
    task: str
    seed: int
    progress_published: bool

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing doubled."""
        return self.audit_ok and self.units_lost == 0 and self.samples_doubled == 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What the run was asked to be."""

    task: str
    seed: int
    progress_published: bool


def summarise(
    run: Run, stats: LedgerStats, report: AuditReport, generated: int, in_progress: int, labels: Labels
) -> Summary:
    """Sum a run up."""
    rewards = [update.reward for update in run.updates]
    low, high = replica_range(run.moments)
    return Summary(
        duration_s=round(run.moments[-1].at_s if run.moments else 0.0, 1),
        policy_updates=len({update.step for update in run.updates}),
        reward_first=_mean(rewards[:EDGE_UPDATES]),
        reward_last=_mean(rewards[-EDGE_UPDATES:]),
        interruptions_noticed=sum(loss.noticed for loss in run.interruptions),
        interruptions_unnoticed=sum(not loss.noticed for loss in run.interruptions),
        units_committed=stats.buffered + stats.accepted + sum(sum(b.values()) for b in stats.dropped.values()),
        units_lost=report.count(*LOST),
        samples_doubled=report.count(Fault.SAMPLE_DOUBLED, Fault.UNIT_PUT_TWICE),
        tokens_generated=generated,
        tokens_salvaged=stats.tokens.salvaged,
        tokens_wasted=max(0, generated - stats.tokens.committed - in_progress),
        replicas_min=low,
        replicas_max=high,
        trainer_wait_ratio=round((stats.trainer.wait_ratio or 0.0) if stats.trainer else 0.0, 4),
        audit_ok=report.ok,
        tokens_committed=stats.tokens.committed,
        tokens_in_progress=in_progress,
        salvages=stats.interruptions_salvaged,
        samples_dropped={reason: dict(buckets) for reason, buckets in stats.dropped.items()},
        phase_s=mean_phases(run),
        task=labels.task,
        seed=labels.seed,
        progress_published=labels.progress_published,
    )


def replica_range(moments: Sequence[Moment]) -> tuple[int, int]:
    """Fewest and most replicas held (ready or starting) since the first was ready: before it, fewest would always be 0."""
    first = next((index for index, moment in enumerate(moments) if moment.ready), len(moments))
    held = [moment.held for moment in moments[first:]]
    return (min(held), max(held)) if held else (0, 0)


def mean_phases(run: Run) -> dict[str, float]:
    """Mean seconds of each phase over the updates that report it."""
    names = sorted({name for update in run.updates for name in update.phase_s})
    return {name: _mean([update.phase_s[name] for update in run.updates if name in update.phase_s]) for name in names}


def tokens_in_progress(events: Sequence[HistoryEvent]) -> int:
    """Tokens kept for units that are pending at the end of a history, by the last event of each."""
    kept: dict[str, int] = {}
    for event in events:
        for entry in event.entries:
            if event.kind is EventKind.RELEASED:
                kept[entry.subject] = int(entry.data["progress"] or 0)
            elif event.kind in (EventKind.LEASED, EventKind.COMMITTED, EventKind.DEAD_LETTERED):
                kept.pop(entry.subject, None)
            elif event.kind is EventKind.GROUP_DROPPED:
                _forget_group(kept, entry.subject)
    return sum(kept.values())


def _forget_group(kept: dict[str, int], group: str) -> None:
    for unit in [unit for unit in kept if unit.rpartition("/")[0] == group]:
        del kept[unit]


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
