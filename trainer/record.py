"""What is kept of an update: one JSON line in the metrics file."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from scaler.model.job import TrainerReport
from scaler.model.work import Sample
from trainer.grpo import LossParts
from trainer.intake import ScoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord:
    """One update. `staleness` counts samples by (version trained - 1 - oldest version of the sample)."""

    step: int
    at_s: float
    batch_id: int
    redelivered: bool
    reward_mean: float
    unblocked_samples_per_s: float
    wait_ratio: float
    phase_s: Mapping[str, float]
    staleness: Mapping[int, int]
    groups: int
    groups_filtered: int
    tokens: int
    """Generated tokens in the batch."""
    resumed_samples: int
    """Samples that more than one holder worked on."""
    mixed_samples: int
    """Samples whose tokens come from more than one policy version."""
    loss: float
    clipped_ratio: float
    capped_ratio: float
    weight_mean: float
    entropy: float

    def line(self) -> str:
        """The record's JSON, without a line end."""
        return json.dumps(asdict(self))


def record_update(report: TrainerReport, taken: ScoredBatch, parts: list[LossParts], at_s: float) -> UpdateRecord:
    """Put an update's figures together; those of the loss are means over its gradient steps."""
    groups = taken.batch.groups
    samples = [sample for group in groups for sample in group.samples]
    return UpdateRecord(
        step=report.step,
        at_s=at_s,
        batch_id=taken.batch.batch_id,
        redelivered=taken.batch.redelivered,
        reward_mean=sum(taken.seen_rewards) / len(taken.seen_rewards),
        unblocked_samples_per_s=report.unblocked_samples_per_s,
        wait_ratio=report.wait_ratio or 0.0,
        phase_s={phase.value: seconds for phase, seconds in report.phase_s.items()},
        staleness=_staleness(samples, report.step - 1),
        groups=len(groups),
        groups_filtered=taken.groups_filtered,
        tokens=sum(len(sample.tokens) for sample in samples),
        resumed_samples=sum(attempt > 1 for group in groups for attempt in group.attempts),
        mixed_samples=sum(len({span.version for span in sample.spans}) > 1 for sample in samples),
        loss=sum(float(part.loss.detach()) for part in parts) / len(parts),
        clipped_ratio=sum(part.clipped_ratio for part in parts) / len(parts),
        capped_ratio=sum(part.capped_ratio for part in parts) / len(parts),
        weight_mean=sum(part.weight_mean for part in parts) / len(parts),
        entropy=sum(part.entropy for part in parts) / len(parts),
    )


def append_line(path: Path, line: str) -> None:
    """Add one line in one write, so that readers that follow the file see whole lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _staleness(samples: list[Sample], version: int) -> dict[int, int]:
    """Samples by staleness; one without tokens has none."""
    return dict(sorted(Counter(version - sample.oldest_version for sample in samples if sample.spans).items()))
