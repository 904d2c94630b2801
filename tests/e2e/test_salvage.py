"""Salvage is real: what the same interruptions waste with progress on, against what they waste with progress off.

Real worker processes on a real ledger. Interruptions are keyed by how much the worker at work has generated, half come
with notice (signal or notice file) and half are kill -9.
"""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import pytest

from rollout_worker.clock import SystemClock
from scaler.ledger.audit import audit
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.notice_file import dump_notice
from scaler.model.work import ReleaseReason
from tests.builders.worker import a_unit
from tests.builders.worker_world import WorkerProcess, Workers, World, a_world, until

UNITS, TOKENS, SLOTS = 32, 200, 8
GRACE_S = 0.5
"""Enough to hand over. None of these interruptions leaves a unit short enough that it is finished in it from scratch."""


class Way(Enum):
    """How a worker is taken away."""

    KILL = auto()
    SIGNAL = auto()
    NOTICE_FILE = auto()


INTERRUPTIONS: Sequence[tuple[int, Way]] = (
    (700, Way.KILL),
    (400, Way.SIGNAL),
    (1900, Way.KILL),
    (1100, Way.NOTICE_FILE),
    (500, Way.KILL),
    (900, Way.SIGNAL),
)
"""Tokens that the worker has generated when it is interrupted, and how; fewer in all than the units need."""

assert sum(tokens for tokens, _ in INTERRUPTIONS) < UNITS * TOKENS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    generated: int
    samples: Mapping[str, tuple[int, ...]]

    @property
    def wasted(self) -> int:
        """Tokens generated that are in no sample."""
        return self.generated - sum(len(tokens) for tokens in self.samples.values())


async def run(root: Path, interruptions: Sequence[tuple[int, Way]], *arguments: str, steps_per_s: int = 100) -> Outcome:
    """Run the units to their end; one worker at a time, the next when the last has gone."""
    with a_world(root) as world:
        world.put(*(a_unit(f"g{number}", max_tokens=TOKENS, seed=100 + number) for number in range(UNITS)))
        workers = Workers(world)
        try:
            await work(workers, interruptions, arguments, steps_per_s)
            assert audit(world.ledger).findings == ()
            return Outcome(sum(worker.tokens_generated() for worker in workers.started), samples_of(world))
        finally:
            workers.stop()


async def work(
    workers: Workers, interruptions: Sequence[tuple[int, Way]], arguments: Sequence[str], steps_per_s: int
) -> None:
    world = workers.world

    def start() -> WorkerProcess:
        rhythm = ("--lease-ttl", "30", "--grace-s", str(GRACE_S), "--concurrency", str(SLOTS), *arguments)
        options = (f"steps_per_s={steps_per_s}", f"slots={SLOTS}")
        return workers.start(f"w{len(workers.started)}", *rhythm, options=options)

    for tokens, way in interruptions:
        worker = start()
        await until(lambda worker=worker, tokens=tokens: worker.tokens_generated() >= tokens)  # type: ignore[misc]
        await interrupt(world, worker, f"w{len(workers.started) - 1}", way)
    start()
    await until(lambda: world.committed() == UNITS)


async def interrupt(world: World, worker: WorkerProcess, name: str, way: Way) -> None:
    """Take a worker away, as a cloud does; without notice its leases are given back as the controller does it."""
    if way is Way.NOTICE_FILE:
        write_notice(world, f"i-{name}")
    else:
        worker.send(signal.SIGKILL if way is Way.KILL else signal.SIGTERM)
    code = await asyncio.to_thread(worker.ended)
    assert code == (-signal.SIGKILL if way is Way.KILL else 0)
    if way is Way.KILL:
        assert world.ledger.release_worker(name, ReleaseReason.WORKER_LOST, epoch=1) > 0


def write_notice(world: World, instance: str) -> None:
    now_s = SystemClock().now_s()
    kind = NoticeKind.SPOT_INTERRUPTION
    told = InterruptionNotice(instance_id=instance, kind=kind, noticed_at_s=now_s, deadline_s=now_s + GRACE_S)
    draft = world.notice_file.with_suffix(".draft")
    draft.write_text(dump_notice(told))
    draft.rename(world.notice_file)


def samples_of(world: World) -> dict[str, tuple[int, ...]]:
    return {sample.unit_id: sample.tokens for group in world.samples() for sample in group.samples}


@pytest.mark.slow
async def test_progress_saves_three_quarters_and_more_of_what_interruptions_waste(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    salvaged, restarted, undisturbed = await asyncio.gather(
        run(tmp_path_factory.mktemp("on"), INTERRUPTIONS),
        run(tmp_path_factory.mktemp("off"), INTERRUPTIONS, "--no-progress"),
        run(tmp_path_factory.mktemp("undisturbed"), (), steps_per_s=0),
    )
    assert undisturbed.wasted == 0
    assert len(undisturbed.samples) == UNITS
    assert salvaged.samples == restarted.samples == undisturbed.samples
    # Every kill found leases held (see `interrupt`); right after a publication it wastes nothing at all.
    assert restarted.wasted > 0
    assert salvaged.wasted * 4 <= restarted.wasted
