"""The loss against values worked out by hand, and what its gradient must and must not see."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer.grpo import (
    LossParts,
    LossSettings,
    decoupled_ppo_loss,
    group_advantages,
    masked_mean,
    token_entropy,
    token_logprobs,
)

PLAIN = LossSettings(clip=0.2, weight_cap=2.0, entropy_bonus=0.0)


def logits_of(*probabilities: float) -> Tensor:
    """One row; each place gives token 1 this probability, of two tokens."""
    return torch.tensor([[[math.log(1 - p), math.log(p)] for p in probabilities]], requires_grad=True)


def loss_of(
    logits: Tensor,
    *,
    proximal: list[float],
    behaviour: list[float],
    advantage: float = 1.0,
    mask: list[float] | None = None,
    settings: LossSettings = PLAIN,
) -> LossParts:
    """The loss of one row whose targets are all token 1; probabilities, not logarithms."""
    return decoupled_ppo_loss(
        logits,
        torch.ones(logits.shape[:2], dtype=torch.int64),
        proximal=torch.tensor([proximal]).log(),
        behaviour=torch.tensor([behaviour]).log(),
        advantages=torch.tensor([[advantage]]),
        mask=torch.tensor([mask or [1.0] * logits.shape[1]]),
        settings=settings,
    )


def gradient(parts: LossParts, logits: Tensor) -> Tensor:
    return torch.autograd.grad(parts.loss, logits)[0]


def test_advantages_are_normalised_within_each_group() -> None:
    advantages = group_advantages(torch.tensor([[0.0, 1.0], [0.2, 0.6], [0.5, 0.5]]))
    torch.testing.assert_close(advantages, torch.tensor([[-1.0, 1.0], [-1.0, 1.0], [0.0, 0.0]]), atol=1e-4, rtol=0)


def test_log_probabilities_and_entropy_by_hand() -> None:
    logits = logits_of(0.25)
    assert token_logprobs(logits, torch.tensor([[1]])).item() == pytest.approx(math.log(0.25))
    assert token_entropy(logits).item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))


@pytest.mark.parametrize(
    ("current", "proximal", "behaviour", "advantage", "loss"),
    [
        pytest.param(0.5, 0.5, 0.5, 1.0, -1.0, id="on policy: minus the advantage"),
        pytest.param(0.55, 0.5, 0.5, 2.0, -2.2, id="within the clip: the ratio counts"),
        pytest.param(0.8, 0.5, 0.5, 1.0, -1.2, id="a gain beyond the clip is cut off"),
        pytest.param(0.8, 0.5, 0.5, -1.0, 1.6, id="a loss beyond the clip is not"),
        pytest.param(0.2, 0.5, 0.5, -1.0, 0.8, id="a gain of a bad token's decline is cut off too"),
        pytest.param(0.5, 0.5, 0.4, 1.0, -1.25, id="stale: weighted by proximal over behaviour"),
        pytest.param(0.55, 0.5, 0.4, 1.0, -1.375, id="stale: clipped around the proximal policy, not behaviour"),
        pytest.param(0.5, 0.5, 0.1, 1.0, -2.0, id="stale: the weight is cut off at its cap"),
    ],
)
def test_the_loss_of_one_token_by_hand(
    current: float, proximal: float, behaviour: float, advantage: float, loss: float
) -> None:
    parts = loss_of(logits_of(current), proximal=[proximal], behaviour=[behaviour], advantage=advantage)
    assert parts.loss.item() == pytest.approx(loss, rel=1e-5)


def test_every_token_weighs_the_same_and_masked_ones_nothing() -> None:
    parts = loss_of(
        logits_of(0.5, 0.55, 0.9), proximal=[0.5, 0.5, 0.1], behaviour=[0.5, 0.5, 0.1], mask=[1.0, 1.0, 0.0]
    )
    assert parts.loss.item() == pytest.approx(-(1.0 + 1.1) / 2, rel=1e-5)


def test_on_policy_the_gradient_is_the_plain_policy_gradient() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 7, requires_grad=True)
    targets = torch.randint(7, (3, 5))
    advantages, mask = torch.randn(3, 1), (torch.rand(3, 5) > 0.3).float()
    old = token_logprobs(logits, targets).detach()
    parts = decoupled_ppo_loss(
        logits, targets, proximal=old, behaviour=old, advantages=advantages, mask=mask, settings=PLAIN
    )
    plain = -masked_mean(advantages * token_logprobs(logits, targets), mask)
    torch.testing.assert_close(gradient(parts, logits), torch.autograd.grad(plain, logits)[0])


def test_masked_places_get_no_gradient_whatever_stands_there() -> None:
    logits = logits_of(0.5, 0.5, 0.5)
    parts = decoupled_ppo_loss(
        logits,
        torch.ones(1, 3, dtype=torch.int64),
        proximal=torch.tensor([[math.log(0.5), float("nan"), 0.0]]),
        behaviour=torch.tensor([[math.log(0.5), 0.0, float("-inf")]]),
        advantages=torch.tensor([[1.0]]),
        mask=torch.tensor([[1.0, 0.0, 0.0]]),
        settings=LossSettings(entropy_bonus=0.1),
    )
    seen = gradient(parts, logits)
    assert seen[0, 0].abs().sum() > 0
    assert seen[0, 1:].abs().sum() == 0


@pytest.mark.parametrize(("advantage", "current"), [(1.0, 0.7), (-1.0, 0.3)])
def test_beyond_the_clip_nothing_is_gained_by_going_on(advantage: float, current: float) -> None:
    logits = logits_of(current)
    parts = loss_of(logits, proximal=[0.5], behaviour=[0.5], advantage=advantage)
    assert gradient(parts, logits).abs().sum() == 0
    assert parts.clipped_ratio == 1.0


def test_a_stale_token_keeps_its_gradient_though_it_is_far_from_its_behaviour_policy() -> None:
    """Ordinary PPO would clip it: current / behaviour is 1.6. Decoupled PPO asks how far the update itself has gone."""
    logits = logits_of(0.8)
    parts = loss_of(logits, proximal=[0.8], behaviour=[0.5])
    assert gradient(parts, logits).abs().sum() > 0
    assert parts.weight_mean == pytest.approx(1.6)


def test_neither_proximal_nor_behaviour_take_a_gradient() -> None:
    logits = logits_of(0.5)
    proximal = torch.tensor([[-0.7]], requires_grad=True)
    behaviour = torch.tensor([[-0.9]], requires_grad=True)
    parts = decoupled_ppo_loss(
        logits,
        torch.ones(1, 1, dtype=torch.int64),
        proximal=proximal,
        behaviour=behaviour,
        advantages=torch.ones(1, 1),
        mask=torch.ones(1, 1),
        settings=PLAIN,
    )
    grads = torch.autograd.grad(parts.loss, [logits, proximal, behaviour], allow_unused=True)
    assert [grad is None for grad in grads] == [False, True, True]


def test_the_entropy_bonus_pushes_towards_the_uniform_policy() -> None:
    logits = logits_of(0.9)
    parts = loss_of(logits, proximal=[0.9], behaviour=[0.9], advantage=0.0, settings=LossSettings(entropy_bonus=1.0))
    towards_token_0, towards_token_1 = (-gradient(parts, logits))[0, 0].tolist()
    assert towards_token_0 > 0 > towards_token_1


@settings(max_examples=30)
@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=5), st.integers(0, 4), st.floats(-3, 3))
def test_padding_changes_no_loss(current: list[float], padding: int, advantage: float) -> None:
    half = [0.5] * (len(current) + padding)
    mask = [1.0] * len(current) + [0.0] * padding
    bare = loss_of(
        logits_of(*current), proximal=half[: len(current)], behaviour=half[: len(current)], advantage=advantage
    )
    padded = loss_of(
        logits_of(*current, *[0.99] * padding), proximal=half, behaviour=half, advantage=advantage, mask=mask
    )
    assert padded.loss.item() == pytest.approx(bare.loss.item(), rel=1e-5, abs=1e-6)


def test_a_batch_without_any_token_has_a_loss_of_zero() -> None:
    parts = loss_of(logits_of(0.5), proximal=[0.5], behaviour=[0.5], mask=[0.0])
    assert parts.loss.item() == 0.0
