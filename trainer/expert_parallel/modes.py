"""The modes of expert parallelism: declared by name, one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainer.expert_parallel.all_to_all import AllToAll
from trainer.expert_parallel.deepep import DeepEP
from trainer.expert_parallel.dispatch import Dispatcher
from trainer.expert_parallel.experts import experts_per_rank
from trainer.expert_parallel.mesh import Mesh
from trainer.moe import MoEConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The backend of the tokens' group, and how tokens are dispatched over it."""

    backend: str
    dispatcher: Callable[[Mesh, MoEConfig], Dispatcher]


def _all_to_all(mesh: Mesh, config: MoEConfig) -> Dispatcher:
    return AllToAll(mesh, experts_per_rank(config, mesh))


def _deepep(mesh: Mesh, config: MoEConfig) -> Dispatcher:
    experts_per_rank(config, mesh)
    return DeepEP(mesh, config.experts, config.dim)


MODES: Mapping[str, Mode] = {
    "gloo": Mode(backend="gloo", dispatcher=_all_to_all),
    "nccl": Mode(backend="nccl", dispatcher=_all_to_all),
    "deepep": Mode(backend="nccl", dispatcher=_deepep),
}
