"""Gradient steps of a crew: each rank takes its rows of a minibatch, and the sum over the ranks is one process's step.

A rank's loss is a mean over its own tokens; times its share of all tokens it is its part of the mean over all. Gradients
of what every rank holds are added up; those of an expert came to its rank through the dispatch, from every rank's tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.batching import TokenBatch
from trainer.expert_parallel.experts import is_divided
from trainer.expert_parallel.mesh import Mesh
from trainer.grpo import LossParts
from trainer.moe import TinyMoE
from trainer.update import UpdateSettings, loss_of, proximal_logprobs


def update_in_crew(
    model: TinyMoE,
    optimiser: torch.optim.Optimizer,
    batch: TokenBatch,
    settings: UpdateSettings,
    minibatches: Sequence[Tensor],
    mesh: Mesh,
) -> list[LossParts]:
    """`trainer.update.update_policy`, by all ranks together; every rank gets every step's parts.

    `batch` is whole and on the mesh's device at every rank, and so are `minibatches`.
    """
    proximal = _proximal(model, batch, mesh)
    return [_step(model, optimiser, batch, proximal, settings, chosen, mesh) for chosen in minibatches]


def _proximal(model: TinyMoE, batch: TokenBatch, mesh: Mesh) -> Tensor:
    """Each rank's rows, added into what is zero elsewhere."""
    rows = torch.arange(mesh.rank, len(batch), mesh.world, device=mesh.device)
    mine, _ = _my_rows(batch, torch.arange(len(batch), device=mesh.device), mesh)
    found = proximal_logprobs(model, mine)
    everyones = torch.zeros_like(batch.behaviour)
    everyones[rows] = found[: len(rows)]
    dist.all_reduce(everyones, group=mesh.tokens)
    return everyones


def _my_rows(batch: TokenBatch, chosen: Tensor, mesh: Mesh) -> tuple[TokenBatch, Tensor]:
    """This rank's part of these rows, and their indices; where there is none for it, one that does not count."""
    rows = chosen[mesh.rank :: mesh.world]
    if len(rows):
        return batch.rows(rows), rows
    spare = batch.rows(chosen[:1])
    return replace(spare, mask=torch.zeros_like(spare.mask)), chosen[:1]


def _step(
    model: TinyMoE,
    optimiser: torch.optim.Optimizer,
    batch: TokenBatch,
    proximal: Tensor,
    settings: UpdateSettings,
    chosen: Tensor,
    mesh: Mesh,
) -> LossParts:
    mine, rows = _my_rows(batch, chosen, mesh)
    tokens = batch.mask[chosen].sum().clamp(min=1.0)
    parts = loss_of(model, mine, proximal[rows], settings)
    share = mine.mask.sum() / tokens
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(parts.loss * share)
    _add_up_shared(model, mesh)
    _clip(model, settings.max_grad_norm, mesh)
    optimiser.step()
    return _everyones(parts, float(share), mesh)


def _add_up_shared(model: TinyMoE, mesh: Mesh) -> None:
    """Sum the gradients of what every rank holds, in one call."""
    gradients = [p.grad for name, p in model.named_parameters() if not is_divided(name) and p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=mesh.tokens)
    for gradient, summed in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))


def _clip(model: TinyMoE, most: float, mesh: Mesh) -> None:
    """Clip by the norm of the whole gradient: shared parts once, every rank's experts."""
    squares = {True: torch.zeros((), device=mesh.device), False: torch.zeros((), device=mesh.device)}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            squares[is_divided(name)] += parameter.grad.square().sum()
    dist.all_reduce(squares[True], group=mesh.tokens)
    nn.utils.clip_grads_with_norm_(model.parameters(), most, (squares[True] + squares[False]).sqrt())


def _everyones(parts: LossParts, share: float, mesh: Mesh) -> LossParts:
    """The parts of the whole minibatch: each rank's, by its share of the tokens."""
    figures = (float(parts.loss.detach()), parts.clipped_ratio, parts.capped_ratio, parts.weight_mean, parts.entropy)
    summed = torch.tensor(figures, dtype=torch.float64) * share
    dist.all_reduce(summed, group=mesh.orders)
    loss, clipped, capped, weight, entropy = summed.tolist()
    return LossParts(
        loss=torch.tensor(loss), clipped_ratio=clipped, capped_ratio=capped, weight_mean=weight, entropy=entropy
    )
