"""One policy update on one batch: the proximal policy once, then minibatch steps of clipped gradient descent."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from trainer.batching import TokenBatch
from trainer.grpo import LossParts, LossSettings, decoupled_ppo_loss, token_logprobs
from trainer.moe import TinyMoE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """How a batch is learnt from."""

    learning_rate: float = 2.5e-3
    minibatches: int = 4
    epochs: int = 1
    max_grad_norm: float = 1.0
    loss: LossSettings = field(default_factory=LossSettings)


def make_optimiser(model: TinyMoE, settings: UpdateSettings) -> torch.optim.Optimizer:
    """AdamW without decay: RL moves weights little, and decay would move them for nothing."""
    return torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)


def proximal_logprobs(model: TinyMoE, batch: TokenBatch) -> Tensor:
    """Log-probabilities of the batch's targets under the policy as it is now, [B, T]."""
    with torch.no_grad():
        return token_logprobs(model(batch.tokens, batch.positions), batch.targets)


def draw_minibatches(rows: int, settings: UpdateSettings, generator: torch.Generator) -> list[Tensor]:
    """The rows of each gradient step, in an order that comes from `generator`; int64, one tensor a step."""
    orders = [torch.randperm(rows, generator=generator) for _ in range(settings.epochs)]
    return [chosen for order in orders for chosen in order.chunk(settings.minibatches)]


def update_policy(
    model: TinyMoE,
    optimiser: torch.optim.Optimizer,
    batch: TokenBatch,
    settings: UpdateSettings,
    minibatches: Sequence[Tensor],
) -> list[LossParts]:
    """Take one gradient step for each of `minibatches` (rows of `batch`). Returns each step's parts."""
    proximal = proximal_logprobs(model, batch)
    return [_step(model, optimiser, batch.rows(chosen), proximal[chosen], settings) for chosen in minibatches]


def loss_of(model: TinyMoE, batch: TokenBatch, proximal: Tensor, settings: UpdateSettings) -> LossParts:
    """The loss of these rows; `proximal` [B, T] as `proximal_logprobs` gave it."""
    return decoupled_ppo_loss(
        model(batch.tokens, batch.positions),
        batch.targets,
        proximal=proximal,
        behaviour=batch.behaviour,
        advantages=batch.advantages,
        mask=batch.mask,
        settings=settings.loss,
    )


def _step(
    model: TinyMoE,
    optimiser: torch.optim.Optimizer,
    batch: TokenBatch,
    proximal: Tensor,
    settings: UpdateSettings,
) -> LossParts:
    parts = loss_of(model, batch, proximal, settings)
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(parts.loss)
    nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    optimiser.step()
    return parts
