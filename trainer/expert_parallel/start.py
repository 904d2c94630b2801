"""Starting a crew: meet, exchange once, prove the transport, compare builds; only then may there be a step 0.

Every rank says what it saw to the lead; the lead judges, and every rank ends with the same line where it may not start.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from trainer.checkpoint import json_tensor, tensor_json
from trainer.expert_parallel.channel import Channel, Order
from trainer.expert_parallel.crew import Beginning, CrewLearner, Shard, follow
from trainer.expert_parallel.dispatch import Dispatcher
from trainer.expert_parallel.manifest import differences, own_manifest
from trainer.expert_parallel.mesh import CrewRefused, Mesh, Place, open_mesh
from trainer.expert_parallel.modes import MODES
from trainer.expert_parallel.transport import Observed, check_nics, check_ways, read_log, sent_bytes
from trainer.moe import MoEConfig
from trainer.timing import TrainerClock
from trainer.update import UpdateSettings

BEAT_EVERY_S = 10.0
_FIRST_EXCHANGE_BYTES = 1 << 20
"""To each rank, before step 0: enough for a NIC's counter to show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the operator says the job runs on."""

    mode: str
    """A key of `MODES`."""
    transports: frozenset[str] = frozenset()
    """Ways that tokens may take (`trainer.expert_parallel.transport.WAYS`); with gloo there is nothing to declare."""
    efa_nics: int | None = None
    """EFA devices of a node; None does not check their number."""


class Crew:
    """A crew that may start, as one of its ranks sees it."""

    def __init__(self, declared: Declared, mesh: Mesh, manifest: dict[str, str]) -> None:
        self.channel = Channel(mesh)
        self.manifest = manifest
        self._mesh = mesh
        self._mode = MODES[declared.mode]
        self._dispatcher: Dispatcher | None = None

    def learner(self, config: MoEConfig, seed: int, settings: UpdateSettings) -> CrewLearner:
        """`trainer.learner.LearnerFactory` at the lead."""
        beginning = Beginning(config=config, seed=seed, settings=settings)
        self.channel.tell(Order.BEGIN, beginning.pack())
        return CrewLearner(self._begin(beginning), self.channel, self.manifest)

    def follow(self) -> None:
        """What every other rank does, until the lead says that it is over."""
        follow(self.channel, self._begin)

    def dismiss(self) -> None:
        """The lead lets the others go, and all release what the transport holds."""
        if self._mesh.rank == 0:
            self.channel.tell(Order.END)
        if self._dispatcher is not None:
            self._dispatcher.close()

    def _begin(self, beginning: Beginning) -> Shard:
        self._dispatcher = self._mode.dispatcher(self._mesh, beginning.config)
        return Shard(beginning.config, beginning.seed, beginning.settings, self._mesh, self._dispatcher)


@contextmanager
def crew(declared: Declared, place: Place) -> Iterator[Crew]:
    """Meet the others and prove what was declared; left in good order, the lead lets the others go.

    Left by an error, nobody is told: where a rank stands in a call that the others do not make, a word more would wait
    for ever. The process has to end then; its connections close, and the others' calls end with an error.

    Raises:
        CrewRefused: at every rank, with the line that proves it.
        RuntimeError: torch's, where a rank was lost.
    """
    with _nccl_log(place) as log, open_mesh(place, MODES[declared.mode].backend) as mesh:
        members = Crew(declared, mesh, _prove(declared, mesh, log))
        yield members
        members.dismiss()


class BeatingClock:
    """The lead's clock: while it waits, the others hear from it."""

    def __init__(self, clock: TrainerClock, channel: Channel) -> None:
        self._clock = clock
        self._channel = channel
        self._beat_s = clock.monotonic_s()

    def now_s(self) -> float:
        """UTC seconds since the epoch."""
        return self._clock.now_s()

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return self._clock.monotonic_s()

    def pause(self, seconds: float) -> None:
        """Wait, and say so now and then."""
        if self.monotonic_s() - self._beat_s >= BEAT_EVERY_S:
            self._channel.tell(Order.IDLE)
            self._beat_s = self.monotonic_s()
        self._clock.pause(seconds)


@contextmanager
def _nccl_log(place: Place) -> Iterator[Path]:
    """A file of this rank's own for NCCL's log; it is read at NCCL's first use."""
    with tempfile.TemporaryDirectory(prefix="headrace-nccl-") as folder:
        log = Path(folder) / f"rank{place.rank}.log"
        os.environ.setdefault("NCCL_DEBUG", "INFO")
        os.environ.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET,ENV")
        os.environ["NCCL_DEBUG_FILE"] = str(log)
        yield log


def _prove(declared: Declared, mesh: Mesh, log: Path) -> dict[str, str]:
    """This rank's manifest; `CrewRefused` at every rank where any may not start.

    Builds are compared before anything is exchanged by them: ranks that differ in `NCCL_ALGO` hang in their first call.
    """
    manifest = own_manifest({"mode": declared.mode, "ranks": str(mesh.world)})
    _agree(mesh, manifest, "")
    ways, refusal = "", ""
    try:
        ways = ",".join(sorted(_first_exchange(declared, mesh, log).ways))
    except CrewRefused as error:
        refusal = f"rank {mesh.rank}: {error}"
    _agree(mesh, {"transport": ways}, refusal)
    return manifest | {"transport": ways}


def _first_exchange(declared: Declared, mesh: Mesh, log: Path) -> Observed:
    before = sent_bytes()
    rows = torch.zeros(mesh.world, _FIRST_EXCHANGE_BYTES // 4, device=mesh.device)
    dist.all_to_all_single(torch.empty_like(rows), rows, group=mesh.tokens)
    dist.all_reduce(rows, group=mesh.tokens)
    if mesh.device.type != "cuda":
        return Observed(ways={"tcp": "gloo"})
    torch.cuda.synchronize()
    observed = read_log(log.read_text(errors="replace").splitlines() if log.exists() else ())
    check_ways(observed, declared.transports, efa_nics=declared.efa_nics, world=mesh.world)
    if "efa" in observed.ways:
        check_nics(before, sent_bytes())
    return observed


def _agree(mesh: Mesh, facts: dict[str, str], refusal: str) -> None:
    """`CrewRefused` at every rank where a rank refuses, or facts are not the same at all of them."""
    channel = Channel(mesh)
    told = channel.collect({"json": json_tensor([refusal, facts])})
    if mesh.rank == 0:
        seen = [tensor_json(tensors["json"]) for tensors in told]
        lines = [refused for refused, _ in seen if refused] or differences([of_rank for _, of_rank in seen])
        channel.tell(Order.IDLE, {"json": json_tensor(lines)})
    else:
        lines = tensor_json(channel.hear()[1]["json"])
    if lines:
        raise CrewRefused("; ".join(lines))
