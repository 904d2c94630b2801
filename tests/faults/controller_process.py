"""The controller as a process: everything that `headrace run` puts together, on a clock, a cloud and a store of the world's.

It can be killed anywhere, and between any two steps that matter: before a plan is persisted, after it and before it is
carried out, and while calls are under way.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeVar

from scaler.act.base import PoolActor
from scaler.decide import engine
from scaler.ledger.contract import Ledger, LedgerUnavailable, StaleEpoch
from scaler.model.job import JobSettings
from scaler.model.plan import Memory, Plan
from scaler.model.reading import Reading
from scaler.model.snapshot import Signals, Snapshot
from scaler.model.spec import FleetSpec
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.offerings import OfferingMemory
from scaler.observe.registry import open_source
from scaler.observe.signals import SignalSource, SourceContext
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.executor import Executor
from scaler.runtime.housekeeping import keep_house
from scaler.runtime.job_rules import JobRules
from scaler.runtime.journal import Journal, Turn
from scaler.runtime.launcher import Launcher
from scaler.runtime.loop import Controller, Parts
from scaler.runtime.notice_watch import NoticeWatch
from scaler.runtime.outcomes import Outcomes
from scaler.runtime.pool_watch import PoolWatch
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.faults.call_rules import ControllerCallRules
from tests.faults.cloud import Cloud
from tests.faults.cloud_client import Actor, Notices
from tests.faults.plan_rules import PlanRules
from tests.faults.setup import STAGE
from tests.faults.trainer_process import Killed
from tests.faults.virtual_loop import HostClock, VirtualLoop

T = TypeVar("T")


class Plug:
    """Where a fault meets the controller; shared by all of its processes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.spec_changes = 0
        self.crash_at: str | None = None
        """"before" or "after" the next persisted plan that commands something."""
        self.ledger_hangs_until_s = 0.0
        self.gap: str | None = None
        self.gap_began_s = 0.0


class CrashJournal(Journal):
    """A journal at which a process may end."""

    def __init__(self, path: Path, plug: Plug, rules: PlanRules) -> None:
        super().__init__(path)
        self._plug = plug
        self._rules = rules

    def write(self, turn: Turn) -> int:
        crash = self._plug.crash_at if turn.decision is not None and turn.decision["commands"] else None
        if crash == "before":
            self._plug.crash_at = None
            raise Killed
        seq = super().write(turn)
        if turn.decision is not None:
            self._rules.persisted()
        if crash == "after":
            self._plug.crash_at = None
            raise Killed
        return seq


class Calls:
    """`LedgerCalls` without a thread; the store may hang."""

    def __init__(self, ledger: Ledger, loop: VirtualLoop, plug: Plug, lost_place: Callable[[], None]) -> None:
        self._ledger = ledger
        self._loop = loop
        self._plug = plug
        self._lost_place = lost_place

    async def call(self, job: Callable[[Ledger], T], time_out_s: float | None = None) -> T:
        if self._plug.ledger_hangs_until_s > self._loop.time():
            limit_s = time_out_s or 5.0
            await asyncio.sleep(limit_s)
            if self._plug.random.random() < 0.5:
                self._perform(job)
            raise LedgerUnavailable(f"no answer within {limit_s:g} s")
        return self._perform(job)

    def _perform(self, job: Callable[[Ledger], T]) -> T:
        try:
            return job(self._ledger)
        except StaleEpoch:
            self._lost_place()
            raise


class GappySignals:
    """Another `SignalSource` with gaps: missing, old, no numbers, negative."""

    def __init__(self, source: SignalSource, plug: Plug) -> None:
        self._source = source
        self._plug = plug

    async def poll(self) -> None:
        if self._plug.gap != "stale":
            await self._source.poll()

    def signals(self, stage: str) -> Signals:
        signals = self._source.signals(stage)
        wrong = {"nan": math.nan, "negative": -1.0, "infinite": math.inf}.get(self._plug.gap or "")
        if self._plug.gap == "missing":
            return Signals()
        if wrong is None:
            return signals
        spoilt = Reading(wrong, signals.buffered_samples.at_s)
        return replace(signals, buffered_samples=spoilt, unblocked_rate_per_s=spoilt)


class ControllerProcess:
    """One process, from its start to its death."""

    def __init__(
        self,
        *,
        folder: Path,
        clock: HostClock,
        cloud: Cloud,
        ledger: Ledger,
        job: JobSettings,
        spec: Callable[[], FleetSpec],
        plug: Plug,
        plans: PlanRules,
        calls: ControllerCallRules,
        lost_place: Callable[[], None],
        died: Callable[["ControllerProcess", BaseException | None], None],
    ) -> None:
        self._clock = clock
        self._cloud = cloud
        self._spec = spec
        self._plug = plug
        self._plans = plans
        self._rules = calls
        plans.restarted()
        self._journal = CrashJournal(folder / "journal.sqlite", plug, plans)
        self._ledger_calls = Calls(ledger, cloud.loop, plug, self._lose_place)
        self.epoch = self._journal.raise_epoch(clock.now_s())
        self._actors = {pool.name: Actor(cloud, pool.name, clock, calls) for pool in spec().stages[0].pools}
        self.source = Notices(cloud, calls)
        self._notices = NoticeWatch({"cloud": self.source}, clock)
        self.controller = self._build(job)
        self._died = died
        self._tell_lost_place = lost_place
        self._task = cloud.loop.create_task(self._run())
        self._task.add_done_callback(self._done)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, and what is under way in the network may arrive or not."""
        self._task.cancel()

    @property
    def spec(self) -> FleetSpec:
        """As `Config`."""
        return self._spec()

    @property
    def digest(self) -> str:
        """As `Config`."""
        return str(self._plug.spec_changes)

    async def current(self) -> Mapping[str, PoolActor]:
        """As `ActorSource`."""
        return self._actors

    def open_business(self) -> int:
        """Launches and drains that are not settled."""
        executor = self.controller._parts.executor
        return len(executor.launcher.intents) + len(executor.drainer.orders) + len(executor.ender.ending)

    def _lose_place(self) -> None:
        self._rules.lost_place = True
        self._tell_lost_place()

    def _decide(self, snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> Plan:
        plan = engine.decide(snapshot, spec, memory)
        self._plans.decided(snapshot, spec, plan)
        return plan

    def _build(self, job: JobSettings) -> Controller:
        clock, offerings, calls = self._clock, OfferingMemory(), self._ledger_calls
        metrics = Metrics(clock, Readout)
        outcomes = Outcomes(clock, metrics)
        watch = LedgerWatch(calls, clock)
        context = SourceContext(ledger=watch, clock=clock, averaged_over_s=30.0)
        executor = Executor(
            launcher=Launcher(clock=clock, offerings=offerings, outcomes=outcomes, metrics=metrics),
            drainer=Drainer(clock=clock, calls=calls, outcomes=outcomes, metrics=metrics, epoch=self.epoch),
            ender=Ender(clock=clock, calls=calls, outcomes=outcomes),
            outcomes=outcomes,
        )
        return Controller(
            Parts(
                clock=clock,
                config=self,
                actors=self,
                rules=JobRules(calls, lambda: job),
                ledger=watch,
                signals={STAGE: GappySignals(open_source("ledger", context), self._plug)},
                pools=PoolWatch(clock),
                notices=self._notices,
                offerings=offerings,
                executor=executor,
                journal=self._journal,
                metrics=metrics,
                leader_epoch=self.epoch,
                decide=self._decide,
            )
        )

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run(group))
            group.create_task(self._notices.watch(self.controller.wake))
            group.create_task(keep_house(self._ledger_calls, self._clock, lambda: True))

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._journal.close()
        self._died(self, None if task.cancelled() else task.exception())
