"""A layer's experts, this rank's share of them: the router is everywhere, tokens travel to the experts they chose.

Names and order of parameters are those of `trainer.moe.Experts`, so that a state of one process and one of a crew are
the same mapping; `share` and `whole` go from one to the other.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from trainer.expert_parallel.dispatch import Dispatcher, Received
from trainer.expert_parallel.mesh import CrewRefused, Mesh
from trainer.moe import Experts, MoEConfig, TinyMoE

_DIVIDED = (".w_in", ".w_out")


class ShardedExperts(Experts):
    """Experts [first, first + share) of a layer."""

    def __init__(self, whole: Experts, mesh: Mesh, dispatcher: Dispatcher) -> None:
        nn.Module.__init__(self)
        self.top_k = whole.top_k
        self.router = whole.router
        self.w_in = nn.Parameter(_share(whole.w_in.detach(), mesh).clone())
        self.w_out = nn.Parameter(_share(whole.w_out.detach(), mesh).clone())
        self._dispatcher = dispatcher

    def forward(self, x: Tensor) -> Tensor:
        """[N, dim] -> [N, dim]."""
        weights, chosen = self.route(x)
        received = self._dispatcher.dispatch(x, chosen, weights)
        return self._dispatcher.combine(self._sums(received, x.dtype), received.handle).to(x.dtype)

    def _sums(self, received: Received, dtype: torch.dtype) -> Tensor:
        """What this rank's experts say of each row, weighted and added up: [M, dim]."""
        x = received.x.to(dtype)
        row, choice = (received.expert >= 0).nonzero(as_tuple=True)
        said = self.through(x[row], received.expert[row, choice])
        weighted = said * received.weight[row, choice, None].to(dtype)
        return torch.zeros_like(x).index_add(0, row, weighted)


def shard(model: TinyMoE, mesh: Mesh, dispatcher: Dispatcher) -> TinyMoE:
    """The model with this rank's experts only, on the mesh's device."""
    for block in model.blocks:
        if isinstance(block.experts, Experts):
            block.experts = ShardedExperts(block.experts, mesh, dispatcher)
    return model.to(mesh.device)


def experts_per_rank(config: MoEConfig, mesh: Mesh) -> int:
    """How many experts of a layer a rank holds; `CrewRefused` where they cannot be divided."""
    if config.experts % mesh.world:
        raise CrewRefused(f"{config.experts} experts cannot be divided among {mesh.world} ranks")
    return config.experts // mesh.world


def is_divided(name: str) -> bool:
    """Whether a parameter of this name is held in shares."""
    return name.endswith(_DIVIDED)


def share(state: Mapping[str, Tensor], mesh: Mesh) -> dict[str, Tensor]:
    """This rank's part of a whole state."""
    return {name: _share(value, mesh) if is_divided(name) else value for name, value in state.items()}


def whole(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The whole state from every rank's part; what is not divided is the lead's."""
    return {
        name: torch.cat([state[name] for state in states]) if is_divided(name) else value
        for name, value in states[0].items()
    }


def _share(value: Tensor, mesh: Mesh) -> Tensor:
    return value.chunk(mesh.world)[mesh.rank]
