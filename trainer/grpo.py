"""GRPO's arithmetic: group-normalised advantages and the token-level, decoupled PPO loss. Pure functions of tensors.

Three policies are kept apart (AReaL, "decoupled PPO objective"): the *behaviour* policy that sampled a token (perhaps of
an older version, and another one for each span of a sample), the *proximal* policy, which is the trainer's own at the
start of the update, and the *current* one. The surrogate is clipped around the proximal policy, so that stale samples do
not drag the trust region back to an old policy, and each token is weighted by proximal / behaviour to undo who sampled it.

Shapes: B samples, T places; a place predicts the token after it. All masks are 1.0 where a place counts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The loss's own numbers."""

    clip: float = 0.2
    weight_cap: float = 2.0
    """Importance weights proximal / behaviour are cut off here: bounded variance for some bias (truncated IS)."""
    entropy_bonus: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """A loss and what it was made of. Ratios are shares of the places that count."""

    loss: Tensor
    clipped_ratio: float
    capped_ratio: float
    weight_mean: float
    entropy: float


def group_advantages(rewards: Tensor, *, eps: float = 1e-6) -> Tensor:
    """(reward - mean of its group) / (standard deviation of its group + eps); [groups, group_size] -> the same.

    Source: GRPO (DeepSeekMath, eq. of section 4.1.2), with the population's deviation.
    """
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return centred / (rewards.std(dim=1, keepdim=True, correction=0) + eps)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the places that count; 0 where none does. What stands elsewhere, even NaN, has no effect."""
    kept = torch.where(mask > 0, values, torch.zeros_like(values))
    return (kept * mask).sum() / mask.sum().clamp(min=1.0)


def token_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of each target: [B, T, vocab], [B, T] -> [B, T] (nats)."""
    return torch.log_softmax(logits, dim=-1).gather(-1, targets[..., None])[..., 0]


def token_entropy(logits: Tensor) -> Tensor:
    """Entropy of each place's distribution: [B, T, vocab] -> [B, T] (nats)."""
    logp = torch.log_softmax(logits, dim=-1)
    return -(logp.exp() * logp).sum(dim=-1)


def decoupled_ppo_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    proximal: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    mask: Tensor,
    settings: LossSettings,
) -> LossParts:
    """The loss to minimise: -mean over tokens of min(w, cap) * min(u A, clip(u, 1-c, 1+c) A), less the entropy bonus.

    w = proximal / behaviour and u = current / proximal, token by token. Every token weighs the same, whatever the
    length of its sample (DAPO's token-level loss), so long answers are not discounted.

    Args:
        logits: of the current policy, [B, T, vocab]; the only argument that takes a gradient.
        targets: int64 [B, T], the tokens sampled.
        proximal: their log-probabilities under the trainer's policy at the start of the update, [B, T].
        behaviour: the recorded ones, [B, T].
        advantages: [B, T] or [B, 1].
        mask: [B, T].
        settings: clip, cap and bonus.
    """
    current = token_logprobs(logits, targets)
    ratio = _ratio(current, proximal.detach(), mask)
    weight = _ratio(proximal, behaviour, mask).detach()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    entropy = masked_mean(token_entropy(logits), mask)
    gain = masked_mean(weight.clamp(max=settings.weight_cap) * surrogate, mask)
    return LossParts(
        loss=-gain - settings.entropy_bonus * entropy,
        clipped_ratio=float(masked_mean((clipped * advantages < ratio * advantages).float(), mask)),
        capped_ratio=float(masked_mean((weight > settings.weight_cap).float(), mask)),
        weight_mean=float(masked_mean(weight, mask)),
        entropy=float(entropy.detach()),
    )


def _ratio(log_upper: Tensor, log_lower: Tensor, mask: Tensor) -> Tensor:
    """exp(upper - lower), and 1 where nothing counts, so that padding can neither overflow nor poison a gradient."""
    difference = log_upper - log_lower
    return torch.where(mask > 0, difference, torch.zeros_like(difference)).clamp(-20.0, 20.0).exp()
