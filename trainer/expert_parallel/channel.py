"""Named tensors among the crew: from the lead to all, and from all to the lead. Safetensors on the wire, never pickle.

Every rank calls the same method in the same order; a call returns when this rank's part is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from trainer.expert_parallel.mesh import Mesh


class Order(IntEnum):
    """What the lead asks for."""

    IDLE = 0
    RESTORE = 1
    UPDATE = 2
    COLLECT_MODEL = 3
    COLLECT_OPTIMISER = 4
    END = 5
    BEGIN = 6


@dataclass(frozen=True, slots=True)
class Channel:
    """See the module's docstring. Tensors are copied through the host."""

    mesh: Mesh

    def tell(self, order: Order, tensors: Mapping[str, Tensor] | None = None) -> None:
        """The lead's side of `hear`."""
        data = _pack(tensors or {})
        dist.broadcast(torch.tensor([order, len(data)]), 0, self.mesh.orders)
        dist.broadcast(data, 0, self.mesh.orders)

    def hear(self) -> tuple[Order, dict[str, Tensor]]:
        """Wait for the lead's next order. Raises what torch raises where the lead is gone."""
        head = torch.zeros(2, dtype=torch.int64)
        dist.broadcast(head, 0, self.mesh.orders)
        data = torch.empty(int(head[1]), dtype=torch.uint8)
        dist.broadcast(data, 0, self.mesh.orders)
        return Order(int(head[0])), _unpack(data)

    def collect(self, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Everybody's tensors by rank at the lead; nothing elsewhere."""
        data = _pack(tensors)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.mesh.world)]
        dist.all_gather(sizes, torch.tensor([len(data)]), self.mesh.orders)
        longest = max(int(size) for size in sizes)
        padded = torch.cat([data, torch.zeros(longest - len(data), dtype=torch.uint8)])
        if self.mesh.rank:
            dist.gather(padded, None, 0, self.mesh.orders)
            return []
        parts = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
        dist.gather(padded, parts, 0, self.mesh.orders)
        return [_unpack(part[: int(size)]) for part, size in zip(parts, sizes, strict=True)]


def _pack(tensors: Mapping[str, Tensor]) -> Tensor:
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return torch.frombuffer(bytearray(save(plain)), dtype=torch.uint8)


def _unpack(data: Tensor) -> dict[str, Tensor]:
    return load(data.numpy().tobytes())
