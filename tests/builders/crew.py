"""Ranks of a crew as threads would be, in processes: a function run at every rank over gloo, and what each returned."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

from trainer.expert_parallel.mesh import Mesh, Place, open_mesh

AtRank = Callable[[Mesh], Any]
WITHIN_S = 300.0


def at_every_rank(world: int, function: AtRank) -> list[Any]:
    """Run it at each rank; the answers by rank. Fails with the first rank's error. `function` is one of a module's."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "trainer.expert_parallel.start"])
    port = free_port()
    with context.Pool(world) as pool:
        answers = [pool.apply_async(_be, (rank, world, port, function)) for rank in range(world)]
        return [answer.get(WITHIN_S) for answer in answers]


def free_port() -> int:
    """One that nobody listened on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def crew_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun would set."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _be(rank: int, world: int, port: int, function: AtRank) -> Any:
    import torch

    torch.set_num_threads(1)
    os.environ.update(crew_environment(rank, world, port))
    with open_mesh(Place(rank=rank, world=world, local_rank=rank), "gloo") as mesh:
        return function(mesh)
