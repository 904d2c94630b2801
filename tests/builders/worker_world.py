"""A worker and its world: a real ledger, published weights, an agent in this process or a worker process of its own."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rollout_worker.agent import Agent, AgentSettings, Parts
from rollout_worker.clock import SystemClock
from rollout_worker.engines.base import Engine
from rollout_worker.ledger_thread import LedgerThread
from rollout_worker.machine import MachineSettings, WorkerMachine
from rollout_worker.token_counter import TokenCounter, read_token_counter
from rollout_worker.weights import WeightsFolder
from scaler.ledger.contract import Ledger, LedgerUnavailable
from scaler.ledger.history import EventKind
from scaler.ledger.registry import open_ledger
from scaler.model.job import JobSettings, WorkerIdentity, WorkerRecord
from scaler.model.work import GroupSamples, WorkUnit
from tests.builders.engines import GateClock, gated_engine
from tests.builders.worker import publish_weights

JOB = "job"
PATIENCE_S = 30.0
"""How long a test waits for what must happen; only a failing one waits so long."""


class StoreSwitch:
    """Opens the ledger as a worker sees it: every call fails while `away` is set."""

    def __init__(self, url: str) -> None:
        self.away = False
        self._url = url

    def open(self) -> Ledger:
        return cast("Ledger", _Switched(open_ledger(self._url, JOB), self))


class _Switched:
    def __init__(self, ledger: Ledger, switch: StoreSwitch) -> None:
        self._ledger = ledger
        self._switch = switch

    def __getattr__(self, name: str) -> object:
        if self._switch.away and name != "close":
            raise LedgerUnavailable("switched off")
        return getattr(self._ledger, name)


@dataclass(slots=True)
class World:
    """The ledger as trainer and controller see it, and where weights and notices lie."""

    root: Path
    ledger: Ledger

    @property
    def url(self) -> str:
        return url_of(self.root)

    @property
    def weights(self) -> Path:
        return self.root / "weights"

    @property
    def notice_file(self) -> Path:
        return self.root / "notice.json"

    def put(self, *units: WorkUnit) -> None:
        self.ledger.put_units(units)

    def worker(self, name: str = "w") -> WorkerRecord:
        return next(record for record in self.ledger.workers() if record.identity.worker == name)

    def has_worker(self, name: str = "w") -> bool:
        return any(record.identity.worker == name for record in self.ledger.workers())

    def committed(self) -> int:
        return self.ledger.stats().buffered

    def history_of(self, kind: EventKind, unit_id: str) -> list[dict[str, object]]:
        """What is recorded about a unit, of one kind, in order."""
        events = [event for event in self.ledger.history() if event.kind is kind]
        return [dict(entry.data) for event in events for entry in event.entries if entry.subject == unit_id]

    def samples(self) -> list[GroupSamples]:
        """All complete groups; takes the trainer's place."""
        stats = self.ledger.stats()
        epoch = self.ledger.attach_trainer("test")
        batch = self.ledger.take_batch(epoch, stats.ready_groups, stats.version or 0, 1000)
        return list(batch.groups) if batch else []


def url_of(root: Path) -> str:
    return f"sqlite://{root}/ledger.db"


@contextmanager
def a_world(root: Path, *, version: int | None = 1, configured: bool = True, **settings: float) -> Iterator[World]:
    """A job, configured for tests, with weights of one version."""
    ledger = open_ledger(url_of(root), JOB)
    world = World(root, ledger)
    if configured:
        configure(world, **settings)
    if version is not None:
        publish_weights(world.weights, version)
    try:
        yield world
    finally:
        ledger.close()


def configure(world: World, **settings: float) -> None:
    """Groups of one, no admission bound to speak of, next to no back-off."""
    defaults: dict[str, float] = {
        "group_size": 1,
        "batch_groups": 1000,
        "backoff_initial_s": 0.01,
        "backoff_max_s": 0.01,
    }
    world.ledger.configure(JobSettings(**(defaults | settings)))  # type: ignore[arg-type]  # by name, as given


async def until(what: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110 (other processes have no events of ours)
            await asyncio.sleep(0.005)


@dataclass(slots=True)
class RunningAgent:
    """An agent in this process."""

    agent: Agent
    machine: WorkerMachine
    gate: GateClock
    switch: StoreSwitch
    task: "asyncio.Task[int]"
    counter: Path

    async def generated(self, tokens: int) -> None:
        """Wait until it has generated so many tokens."""
        await until(lambda: self.machine.tokens_generated >= tokens or self.task.done())

    async def published(self, tokens: int) -> None:
        """Wait until it has generated so many tokens, and the ledger has acknowledged them all."""
        await until(lambda: self.machine.tokens_generated == tokens and not self.machine.status().unpublished_tokens)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.task


@asynccontextmanager
async def an_agent(
    world: World,
    *,
    worker: str = "w",
    engine: Callable[[GateClock], Engine] = gated_engine,
    permits: int = 0,
    agent: AgentSettings | None = None,
    **machine: float | None,
) -> AsyncIterator[RunningAgent]:
    """Started; killed at the end if it still runs, as kill -9 would."""
    gate, switch = GateClock(permits), StoreSwitch(world.url)
    quick: dict[str, float | None] = {"heartbeat_s": 0.05, "publish_interval_s": 0.02, "lease_wait_max_s": 0.05}
    decides = WorkerMachine(MachineSettings(**(quick | machine)))  # type: ignore[arg-type]  # by name, as given
    counter = world.root / f"{worker}.counter"
    parts = Parts(
        machine=decides,
        ledger=LedgerThread(switch.open, timeout_s=5.0),
        engine=engine(gate),
        weights=WeightsFolder(world.weights),
        counter=TokenCounter(counter),
        clock=SystemClock(),
    )
    identity = WorkerIdentity(worker=worker, replica_id=f"r-{worker}", instance_id=f"i-{worker}")
    settings = agent or quick_agent()
    acts = Agent(identity, settings, parts)
    task = asyncio.ensure_future(acts.run())
    try:
        yield RunningAgent(acts, decides, gate, switch, task, counter)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def quick_agent(*, lease_ttl_s: float = 60.0, notice_file: Path | None = None, grace_s: float = 30.0) -> AgentSettings:
    return AgentSettings(
        lease_ttl_s=lease_ttl_s,
        notice_file=notice_file,
        grace_s=grace_s,
        tick_s=0.01,
        notice_poll_s=0.01,
        weights_poll_s=0.02,
        health_poll_s=0.02,
        backoff_max_s=0.05,
    )


@dataclass(slots=True)
class WorkerProcess:
    """A worker of its own process."""

    process: "subprocess.Popen[bytes]"
    counter: Path
    log: Path

    def tokens_generated(self) -> int:
        return read_token_counter(self.counter)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


@dataclass(slots=True)
class Workers:
    """Starts worker processes; kills what is left at the end."""

    world: World
    started: list[WorkerProcess] = field(default_factory=list)

    def start(
        self,
        name: str = "w",
        *arguments: str,
        engine: str = "dry-run",
        options: Sequence[str] = (),
        instance_file: Path | None = None,
    ) -> WorkerProcess:
        world = self.world
        counter, log = world.root / f"{name}.counter", world.root / f"{name}.log"
        command = [sys.executable, "-m", "rollout_worker", "--ledger", world.url, "--job", JOB, "--worker", name]
        command += ["--replica-id", f"r-{name}", "--weights", str(world.weights)]
        command += ["--instance-file", str(instance_file)] if instance_file else ["--instance-id", f"i-{name}"]
        command += ["--token-counter", str(counter), "--notice-file", str(world.notice_file), "--engine", engine]
        command += [part for option in options for part in ("--engine-option", option)]
        environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
        with log.open("ab") as output:
            process = subprocess.Popen([*command, *arguments], env=environment, stderr=output)
        self.started.append(WorkerProcess(process, counter, log))
        return self.started[-1]

    def stop(self) -> None:
        for worker in self.started:
            worker.process.kill()
            worker.process.wait()
