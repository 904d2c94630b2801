"""Are a sample's recorded log-probabilities those of the policies that its spans name?

The proof that joined samples (interrupted, continued elsewhere, perhaps under newer weights) have the distribution they
claim: each span is recomputed under its own version, with everything before it as given. Where they agree, decoupled
PPO's importance weights are right.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from scaler.model.work import Sample, WorkUnit
from trainer.grpo import token_logprobs
from trainer.moe import TinyMoE


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far recorded and recomputed log-probabilities are apart (nats)."""

    recomputed: tuple[float, ...]
    max_error: float
    versions: tuple[int, ...]
    """Versions of the sample's spans, in order."""


def recompute_logprobs(unit: WorkUnit, sample: Sample, models: Mapping[int, TinyMoE]) -> tuple[float, ...]:
    """Log-probability of each token under the version of its span; `KeyError` where a version's weights are missing."""
    line = torch.tensor([unit.prompt + sample.tokens])
    positions = torch.arange(line.shape[1] - 1)[None]
    first = len(unit.prompt) - 1
    result: list[float] = []
    for span in sample.spans:
        with torch.no_grad():
            logits = models[span.version](line[:, :-1], positions)
        every = token_logprobs(logits, line[:, 1:])[0, first:]
        result.extend(every[span.start : span.end].tolist())
    return tuple(result)


def verify_sample(unit: WorkUnit, sample: Sample, models: Mapping[int, TinyMoE]) -> Agreement:
    """Compare a sample's record with its recomputation."""
    recomputed = recompute_logprobs(unit, sample, models)
    errors = [abs(a - b) for a, b in zip(recomputed, sample.logprobs, strict=True)]
    return Agreement(
        recomputed=recomputed,
        max_error=max(errors, default=0.0),
        versions=tuple(span.version for span in sample.spans),
    )
