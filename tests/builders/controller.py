"""A controller in a small world on a fake clock; killing it leaves the world and the journal."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scaler.act.base import PoolActor
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Plan
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.model.spec import FleetSpec
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.offerings import OfferingMemory
from scaler.observe.registry import open_source
from scaler.observe.signals import SourceContext
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.executor import Executor
from scaler.runtime.job_rules import JobRules
from scaler.runtime.journal import Journal
from scaler.runtime.launcher import Launcher
from scaler.runtime.loop import Controller, Parts
from scaler.runtime.notice_watch import NoticeWatch
from scaler.runtime.outcomes import Outcomes
from scaler.runtime.pool_watch import PoolWatch
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet import FakeLedger, FakeNotices, FakePool, InlineCalls, Script, a_spec


@dataclass
class World:
    """What outlives a controller."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    spec: FleetSpec = field(default_factory=a_spec)
    script: Script = field(default_factory=Script)
    digest: str = "digest"

    def __post_init__(self) -> None:
        self.ledger = FakeLedger(self.clock)
        self.pool = FakePool(self.clock)
        self.notices = FakeNotices(self.clock)

    async def current(self) -> Mapping[str, PoolActor]:
        """As `ActorSource`."""
        return {"pool": self.pool}


@dataclass
class Running:
    """A controller at work, turn by turn."""

    world: World
    controller: Controller
    journal: Journal
    metrics: Metrics
    group: asyncio.TaskGroup

    async def turn(self) -> Plan:
        """One turn, and everything it began; then an interval passes."""
        plan = await self.controller.turn(self.group)
        await self.world.clock.settle()
        self.world.clock.pass_time(self.world.spec.interval_s)
        return plan

    @property
    def snapshot(self) -> Snapshot:
        """What the last decision saw."""
        return self.world.script.seen[-1]

    @property
    def replicas(self) -> dict[str, ReplicaView]:
        """The replicas that the last decision saw."""
        return {view.replica_id: view for view in self.snapshot.stages[0].replicas}

    @property
    def phases(self) -> dict[str, ReplicaPhase]:
        """Their phases."""
        return {replica_id: view.phase for replica_id, view in self.replicas.items()}

    def count(self, name: str, **labels: str) -> float:
        """A metric's value; 0 where it is not there."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def a_controller(world: World, *, start: bool = True) -> AsyncIterator[Running]:
    """A controller of the world; leaving the block is its kill: nothing is flushed."""
    clock, offerings = world.clock, OfferingMemory()
    journal = Journal(world.folder / "journal.sqlite")
    running: list[Controller] = []
    metrics = Metrics(clock, lambda: running[0].readout if running else Readout())
    calls, outcomes = InlineCalls(world.ledger), Outcomes(clock, metrics)
    watch = LedgerWatch(calls, clock)
    epoch = journal.raise_epoch(clock.now_s())
    executor = Executor(
        launcher=Launcher(clock=clock, offerings=offerings, outcomes=outcomes, metrics=metrics),
        drainer=Drainer(clock=clock, calls=calls, outcomes=outcomes, metrics=metrics, epoch=epoch),
        ender=Ender(clock=clock, calls=calls, outcomes=outcomes),
        outcomes=outcomes,
    )
    controller = Controller(
        Parts(
            clock=clock,
            config=world,
            actors=world,
            rules=JobRules(calls, lambda: None),
            ledger=watch,
            signals={"rollout": open_source("ledger", SourceContext(ledger=watch, clock=clock, averaged_over_s=60.0))},
            pools=PoolWatch(clock),
            notices=NoticeWatch({"fake": world.notices}, clock),
            offerings=offerings,
            executor=executor,
            journal=journal,
            metrics=metrics,
            leader_epoch=epoch,
            decide=world.script,
        )
    )
    running.append(controller)
    try:
        async with asyncio.TaskGroup() as group:
            if start:
                await controller.start()
            yield Running(world, controller, journal, metrics, group)
    finally:
        journal.close()
