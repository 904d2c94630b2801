"""Dispatch by the group's own all-to-all: gloo on CPUs, NCCL on GPUs. Exact: what is sent is what arrives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.expert_parallel.dispatch import Received
from trainer.expert_parallel.mesh import Mesh


@dataclass(frozen=True, slots=True)
class _Route:
    """Rows sent to each rank and got from each; `rows` says which token each sent row is."""

    sent: tuple[int, ...]
    got: tuple[int, ...]
    rows: Tensor
    tokens: int


@dataclass(frozen=True, slots=True)
class AllToAll:
    """See the module's docstring. Experts are held in equal, consecutive shares."""

    mesh: Mesh
    experts_per_rank: int

    def dispatch(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Received:
        """See `Dispatcher.dispatch`."""
        home = chosen // self.experts_per_rank
        wanted = (home[:, :, None] == torch.arange(self.mesh.world, device=x.device)).any(dim=1)
        rank, rows = wanted.T.nonzero(as_tuple=True)
        route = self._route(wanted.sum(dim=0), rows, len(x))
        local = torch.where(home[rows] == rank[:, None], chosen[rows] % self.experts_per_rank, -1)
        # weights ride with the tokens: one exchange carries both gradients, so that no two ranks can order them differently
        both = self._swap(torch.cat([x[rows], weights[rows].to(x.dtype)], dim=1), route.sent, route.got)
        expert = _exchange(local, route.sent, route.got, self.mesh.tokens)
        return Received(x=both[:, : x.shape[1]], expert=expert, weight=both[:, x.shape[1] :], handle=route)

    def combine(self, y: Tensor, handle: _Route) -> Tensor:
        """See `Dispatcher.combine`."""
        back = self._swap(y, handle.got, handle.sent)
        return back.new_zeros(handle.tokens, y.shape[1]).index_add(0, handle.rows, back)

    def close(self) -> None:
        """The group is the mesh's."""

    def _route(self, counts: Tensor, rows: Tensor, tokens: int) -> _Route:
        got = torch.empty_like(counts)
        dist.all_to_all_single(got, counts, group=self.mesh.tokens)
        return _Route(sent=tuple(counts.tolist()), got=tuple(got.tolist()), rows=rows, tokens=tokens)

    def _swap(self, rows: Tensor, sent: Sequence[int], got: Sequence[int]) -> Tensor:
        swapped: Tensor = _Swap.apply(rows, sent, got, self.mesh.tokens)
        return swapped


class _Swap(torch.autograd.Function):
    """All-to-all of rows; the gradient goes the same way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: Sequence[int], got: Sequence[int], group: dist.ProcessGroup) -> Tensor:
        """[sum(sent), width] -> [sum(got), width]."""
        ctx.back = got, sent, group
        return _exchange(rows, sent, got, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Each row's gradient to who sent it."""
        sent, got, group = ctx.back
        return _exchange(gradients[0], sent, got, group), None, None, None


def _exchange(rows: Tensor, sent: Sequence[int], got: Sequence[int], group: dist.ProcessGroup) -> Tensor:
    out = rows.new_empty(sum(got), *rows.shape[1:])
    dist.all_to_all_single(out, rows.contiguous(), list(got), list(sent), group=group)
    return out
