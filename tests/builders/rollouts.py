"""Samples made in-process from the model itself: what workers do, without workers."""

from collections.abc import Sequence

import torch

from scaler.model.work import FinishReason, Sample, VersionSpan, WorkUnit
from trainer.moe import KVCache, TinyMoE


def generate(
    model: TinyMoE,
    units: Sequence[WorkUnit],
    generator: torch.Generator,
    *,
    version: int,
    resumed: Sequence[Sample | None] | None = None,
    stop_after: int | None = None,
) -> list[Sample]:
    """Samples of units whose prompts are equally long, continuing `resumed` prefixes (of one length) where given.

    `stop_after` cuts generation at that many tokens: the unfinished sample is a prefix to resume from.
    """
    resumed = resumed or [None] * len(units)
    rows = [unit.prompt + (old.tokens if old else ()) for unit, old in zip(units, resumed, strict=True)]
    prompt, start = len(units[0].prompt), len(rows[0])
    bounds = torch.tensor([prompt + min(unit.max_tokens, stop_after or unit.max_tokens) for unit in units])
    cache = KVCache.allocate(model.config, len(units), dtype=model.head.weight.dtype)
    lines = torch.zeros(len(units), int(bounds.max()), dtype=torch.int64)
    lines[:, :start] = torch.tensor(rows)
    logprobs = torch.zeros(lines.shape, dtype=torch.float64)
    ends = torch.full((len(units),), start)
    fed = 0
    with torch.no_grad():
        alive = torch.nonzero(ends < bounds)[:, 0]
        while len(alive):
            at = int(ends[alive[0]])
            window = torch.arange(fed, at).expand(len(alive), -1)
            logits = model(lines[alive, fed:at], window, cache.at(alive))[:, -1].double()
            drawn = torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)[:, 0]
            lines[alive, at] = drawn
            logprobs[alive, at] = torch.log_softmax(logits, -1).gather(1, drawn[:, None])[:, 0]
            ends[alive], fed = at + 1, at
            alive = alive[(drawn != model.config.end_token) & (ends[alive] < bounds[alive])]
    return [
        _sample(
            units[i], resumed[i], lines[i, prompt : ends[i]].tolist(), logprobs[i, start : ends[i]].tolist(), version
        )
        for i in range(len(units))
    ]


def _sample(unit: WorkUnit, old: Sample | None, tokens: list[int], logprobs: list[float], version: int) -> Sample:
    kept = len(old.tokens) if old else 0
    return Sample(
        unit_id=unit.unit_id,
        tokens=tuple(tokens),
        logprobs=(old.logprobs if old else ()) + tuple(logprobs),
        spans=(old.spans if old else ()) + (VersionSpan(kept, len(tokens), version),),
        finish_reason=FinishReason.STOP if tokens[-1] == 0 else FinishReason.TOKEN_BOUND,
    )
