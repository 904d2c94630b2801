"""Groups of samples -> tensors. One row a sample: prompt, then tokens, padded on the right."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scaler.model.work import GroupSamples, Sample, WorkUnit
from trainer.grpo import group_advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """[B, T] each but `advantages` [B, 1]. Place t of a row predicts `targets[t]`, the token at position t + 1."""

    tokens: Tensor
    positions: Tensor
    targets: Tensor
    behaviour: Tensor
    mask: Tensor
    """1.0 where the target was generated and is trained on."""
    advantages: Tensor

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def rows(self, chosen: Tensor) -> "TokenBatch":
        """The rows of these indices."""
        return TokenBatch(
            tokens=self.tokens[chosen],
            positions=self.positions[chosen],
            targets=self.targets[chosen],
            behaviour=self.behaviour[chosen],
            mask=self.mask[chosen],
            advantages=self.advantages[chosen],
        )


def collate(pairs: Sequence[tuple[WorkUnit, Sample]], advantages: Tensor) -> TokenBatch:
    """Tensors of these samples; `advantages` [B], one a sample."""
    width = max(len(unit.prompt) + len(sample.tokens) for unit, sample in pairs) - 1
    tokens, targets = torch.zeros(2, len(pairs), width, dtype=torch.int64)
    behaviour, mask = torch.zeros(2, len(pairs), width)
    for row, (unit, sample) in enumerate(pairs):
        line = torch.tensor(unit.prompt + sample.tokens)
        first, last = len(unit.prompt) - 1, len(line) - 1
        tokens[row, :last] = line[:-1]
        targets[row, :last] = line[1:]
        behaviour[row, first:last] = torch.tensor(sample.logprobs)
        mask[row, first:last] = 1.0 if sample.mask is None else torch.tensor(sample.mask, dtype=torch.float32)
    positions = torch.arange(width).expand(len(pairs), -1)
    return TokenBatch(
        tokens=tokens,
        positions=positions,
        targets=targets,
        behaviour=behaviour,
        mask=mask,
        advantages=advantages[:, None],
    )


def collate_groups(groups: Sequence[GroupSamples], rewards: Sequence[Sequence[float]]) -> TokenBatch:
    """Tensors of whole groups, with advantages normalised within each; `rewards` in the order of the samples."""
    pairs = [pair for group in groups for pair in zip(group.units, group.samples, strict=True)]
    return collate(pairs, group_advantages(torch.tensor(rewards)).flatten())
