"""Runs schedules in a folder of memory: what is durable there outlives every process of a world, and costs no disk."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from tests.builders.memory import memory_folder
from tests.faults.schedule import draw_schedule
from tests.faults.watch import Broken
from tests.faults.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a schedule."""

    seed: int
    events: int
    lasted_s: float
    """Of the world's time."""
    broken: tuple[Broken, ...]

    def __str__(self) -> str:
        first = self.broken[0] if self.broken else "kept every promise"
        return f"seed {self.seed}: {first}\n    replay: {replay_command(self.seed)}"


def replay_command(seed: int) -> str:
    """What shows a schedule again, event by event."""
    return f"python -m tests.faults --seed {seed} --trace-events"


def run_schedule(seed: int, say: Callable[[str], None] | None = None) -> Verdict:
    """Run the schedule of a seed from its start to rest, or to the first promise that it breaks."""
    with memory_folder() as folder, _quiet():
        world = World(draw_schedule(seed), folder, say)
        world.run()
        return Verdict(
            seed=seed, events=world.watch.events, lasted_s=world.loop.time(), broken=tuple(world.watch.broken)
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Production's logs are of no interest here, and cost as much as what they tell of."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        structlog.configure(**before)
