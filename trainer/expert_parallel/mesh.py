"""Who takes part: ranks as torchrun's environment names them, a group for orders and one for tokens.

Orders and whole states go over gloo in every mode: small, on the host, and independent of the transport under test.
A rank that dies closes its connections, which ends the others' calls at once; one that hangs ends them after
`TIMEOUT_S`. So the lead has to be heard from more often than that.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

TIMEOUT_S = 300.0
"""Above DeepEP's own 100 s, so that its kernels speak first (research/deepep-efa.md section 4.1)."""


class CrewRefused(Exception):
    """The crew may not start: wrong environment, a wrong build, an undeclared transport. The text is the line that proves it."""


class CrewLost(Exception):
    """A rank failed or was lost after the start; the others end too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank's place, as torchrun's environment names it."""

    rank: int
    world: int
    local_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """A rank and its two groups. `device` is where the model is."""

    place: Place
    device: torch.device
    orders: dist.ProcessGroup
    tokens: dist.ProcessGroup

    @property
    def rank(self) -> int:
        """This process; 0 leads."""
        return self.place.rank

    @property
    def world(self) -> int:
        """How many there are."""
        return self.place.world


def place_of(environment: Mapping[str, str]) -> Place:
    """RANK, WORLD_SIZE and LOCAL_RANK; `CrewRefused` where one is missing or no number."""
    try:
        rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        return Place(rank=rank, world=world, local_rank=int(environment.get("LOCAL_RANK", rank)))
    except (KeyError, ValueError) as error:
        raise CrewRefused(f"no place in a crew: {error}; start the ranks with torchrun") from error


@contextmanager
def open_mesh(place: Place, backend: str) -> Iterator[Mesh]:
    """Meet the others. `backend`: of the tokens' group, gloo or nccl.

    Left in good order the groups are taken down together; left by an error they go with the process, since taking down
    NCCL waits for ranks that may be gone.
    """
    device = torch.device("cuda", place.local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        _take_device(device)
    dist.init_process_group("gloo", rank=place.rank, world_size=place.world, timeout=timedelta(seconds=TIMEOUT_S))
    yield Mesh(place=place, device=device, orders=_group("gloo"), tokens=_group(backend))
    dist.destroy_process_group()


def _group(backend: str) -> dist.ProcessGroup:
    """A group of all ranks, connections of its own."""
    group = dist.new_group(backend=backend, timeout=timedelta(seconds=TIMEOUT_S))
    if not isinstance(group, dist.ProcessGroup):
        raise CrewRefused(f"this rank is not a member of the {backend} group")
    return group


def _take_device(device: torch.device) -> None:
    if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        raise CrewRefused(f"{device} was declared, and torch sees {torch.cuda.device_count()} CUDA devices")
    torch.cuda.set_device(device)
