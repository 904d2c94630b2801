"""kill -9 of everything in turn, on the whole loop: nothing is lost, doubled or trained twice, and nothing runs twice."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scaler.demo.watch import read_lines
from scaler.demo.world import Scale, World
from scaler.ledger.audit import audit
from scaler.localcloud.state import StateDir, list_records
from scaler.runtime.clock import SystemClock
from scaler.traces.trace import CapacityTrace, Series
from tests.builders.valkey_server import ValkeyServer

UPDATES = 12
PATIENCE_S = 120.0
SMALL = Scale(floor=2, ceiling=2, group_size=4, batch_groups=4, concurrency=8, steps_per_s=60.0, train_s=0.3)
PLENTY = CapacityTrace(
    source="plenty",
    format="builder",
    series=(Series(name="zone-a", times_s=(0.0, 1.0), counts=(4, 4)),),
    end_s=1.0,
    tick_s=1.0,
)


class Saboteur:
    """Kills parts of a running world at moments that a seed chose, and starts again what does not start by itself."""

    def __init__(self, world: World, store: ValkeyServer | None, seed: int) -> None:
        self.world, self.store, self.random = world, store, random.Random(seed)
        self.clock = SystemClock()

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Look often; a world that does not get there has its say before the test fails."""
        deadline_s = self.clock.monotonic_s() + PATIENCE_S
        while not holds():
            if self.clock.monotonic_s() > deadline_s:
                words = "\n".join(f"--- {child.name}\n{child.last_words()}" for child in self.world.children.values())
                pytest.fail(f"waited {PATIENCE_S:.0f} s until {what}\n{words}")
            self.world.children["trainer"].process.poll()
            signal.sigtimedwait([], 0.02)

    def phases(self) -> int:
        """Phases that the trainer entered: a clock of the world's own."""
        return len(read_lines(self.world.phase_log))

    def later(self) -> None:
        """Let the world go on for a random number of the trainer's phases."""
        target = self.phases() + self.random.randint(1, 9)
        self.wait_until(f"phase {target}", lambda: self.phases() >= target)

    def kill(self, name: str) -> None:
        {"controller": self._restart, "trainer": self._restart, "worker": self._worker, "store": self._store}[name](
            name
        )

    def _restart(self, name: str) -> None:
        child = self.world.children[name]
        os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()
        self.world.launch(name)

    def _worker(self, _: str) -> None:
        self.wait_until("a worker lives", lambda: bool(self.world.state.live_instances()))
        victim = self.random.choice(self.world.state.live_instances())
        os.killpg(victim.pid, signal.SIGKILL)

    def _store(self, _: str) -> None:
        assert self.store is not None
        self.store.kill()
        self.store.start()


@contextmanager
def a_world(folder: Path, engine: str) -> Iterator[tuple[World, ValkeyServer | None]]:
    """A running world on a store of its own; nothing is left of it afterwards."""
    store = ValkeyServer(folder / "store") if engine == "valkey" else None
    if store is not None:
        store.folder.mkdir()
        store.start()
    world = World(
        folder=folder,
        seed=3,
        updates=UPDATES,
        progress=True,
        trace=PLENTY,
        scale=SMALL,
        store_url=store.url if store else None,
    )
    try:
        world.start()
        yield world, store
    finally:
        world.stop()
        if store is not None:
            store.kill()


def launch_tokens(state: StateDir) -> list[str]:
    """One of every instance there ever was, living and dead; a controller killed on the way leaves a record in both folders."""
    listings = (list_records(folder) for folder in (state.ended, state.instances))
    return list({record.instance_id: record.launch_token for found in listings for record in found.records}.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("engine", "victims"),
    [
        ("sqlite", ["controller", "worker", "trainer", "controller", "trainer", "worker"]),
        ("valkey", ["store", "trainer", "worker", "store", "controller"]),
    ],
)
def test_kill_minus_9_of_everything_in_turn_loses_and_doubles_nothing(
    tmp_path: Path, engine: str, victims: list[str]
) -> None:
    with a_world(tmp_path, engine) as (world, store):
        saboteur = Saboteur(world, store, seed=11)
        saboteur.wait_until("the first update", lambda: len(read_lines(world.metrics_file)) > 0)
        for victim in victims:
            saboteur.later()
            saboteur.kill(victim)
        saboteur.wait_until("the last update", lambda: not world.children["trainer"].running)
        assert world.children["trainer"].process.returncode == 0
        report = audit(world.open_ledger())
    assert report.findings == ()
    assert report.units["consumed"] > 0
    updates = read_lines(world.metrics_file)
    assert [line["step"] for line in updates][-1] == UPDATES
    tokens = launch_tokens(world.state)
    assert len(tokens) > SMALL.floor, "the killed worker, or the one in its place, is missing"
    assert len(tokens) == len(set(tokens))
