"""Dispatch by DeepEP's kernels: NVLink within a node, RDMA (InfiniBand, or EFA in a build for it) between nodes.

Its first interface, `Buffer`: the one that has wheels for Hopper, that AWS builds for EFA, and that UCCL-EP offers too.
Releases from 2.5 on lack it and are refused. Tokens travel in bfloat16, sums too; routing weights in float32. The
buffer is released by hand, since DeepEP warns that a destructor may hang an exception's way up.

Source: research/deepep-efa.md sections 1.2 and 5 (shapes, limits, gradient rules).
"""

import importlib
from typing import Any

import torch
from torch import Tensor

from trainer.expert_parallel.dispatch import Received
from trainer.expert_parallel.mesh import CrewRefused, Mesh

_RANKS_A_NODE = 8
_BYTES = 2
"""Of a bfloat16."""
_ALIGNED_BYTES = 16


class DeepEP:
    """See the module's docstring."""

    def __init__(self, mesh: Mesh, experts: int, dim: int) -> None:
        if dim * _BYTES % _ALIGNED_BYTES:
            raise CrewRefused(
                f"DeepEP moves rows of a multiple of {_ALIGNED_BYTES} bytes, and dim {dim} is {dim * _BYTES}"
            )
        self._experts = experts
        self._buffer = _buffer(mesh, dim)

    def dispatch(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Received:
        """See `Dispatcher.dispatch`."""
        sent = x.to(torch.bfloat16), chosen, weights.to(torch.float32)
        received, expert, weight, handle = _Dispatch.apply(*sent, self._buffer, self._experts)
        return Received(x=received, expert=expert.to(torch.int64), weight=weight, handle=handle)

    def combine(self, y: Tensor, handle: Any) -> Tensor:
        """See `Dispatcher.combine`."""
        combined: Tensor = _Combine.apply(y.to(torch.bfloat16), handle, self._buffer)
        return combined

    def close(self) -> None:
        """Every rank of the group has to call it."""
        self._buffer.destroy()


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, chosen: Tensor, weights: Tensor, buffer: Any, experts: int
    ) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Rows, local experts, weights, handle."""
        to_rank, to_node, to_expert, is_in_rank, _ = buffer.get_dispatch_layout(chosen, experts)
        received, expert, weight, _, handle, _ = buffer.dispatch(
            x.contiguous(),
            topk_idx=chosen,
            topk_weights=weights.contiguous(),
            num_tokens_per_rank=to_rank,
            num_tokens_per_rdma_rank=to_node,
            is_token_in_rank=is_in_rank,
            num_tokens_per_expert=to_expert,
        )
        ctx.buffer, ctx.handle = buffer, handle
        ctx.mark_non_differentiable(expert)
        return received, expert, weight, handle

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, Tensor, None, None]:
        """Combine, and the weights' gradients with it."""
        of_rows, _, of_weights, _ = gradients
        rows, weights, _ = ctx.buffer.combine(
            of_rows.contiguous(), ctx.handle, topk_weights=of_weights.to(torch.float32).contiguous()
        )
        return rows, None, weights, None, None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, handle: Any, buffer: Any) -> Tensor:
        """Sums over ranks, by token."""
        combined, _, _ = buffer.combine(y.contiguous(), handle)
        ctx.buffer, ctx.handle = buffer, handle
        result: Tensor = combined
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Dispatch along the same routes."""
        rows = ctx.buffer.dispatch(gradients[0].to(torch.bfloat16).contiguous(), handle=ctx.handle)[0]
        return rows, None, None


def _buffer(mesh: Mesh, dim: int) -> Any:
    """A buffer for rows of `dim`; `CrewRefused` where there is no DeepEP, or none with this interface."""
    try:
        deep_ep = importlib.import_module("deep_ep")
    except (ImportError, OSError, AssertionError) as error:
        raise CrewRefused(f"DeepEP was declared and cannot be imported: {error}") from error
    buffer = getattr(deep_ep, "Buffer", None)
    if buffer is None:
        raise CrewRefused(f"DeepEP {getattr(deep_ep, '__version__', '')} has no Buffer: use a release before 2.5")
    configs = buffer.get_dispatch_config(mesh.world), buffer.get_combine_config(mesh.world)
    row_bytes = dim * _BYTES
    nvlink = max(config.get_nvl_buffer_size_hint(row_bytes, mesh.world) for config in configs)
    between = mesh.world > _RANKS_A_NODE
    rdma = max(config.get_rdma_buffer_size_hint(row_bytes, mesh.world) for config in configs) if between else 0
    return buffer(mesh.tokens, nvlink, rdma, explicitly_destroy=True)
