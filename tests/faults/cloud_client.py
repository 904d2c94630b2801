"""The cloud as one controller reaches it: a pool's actor, and the source of notices."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from scaler.act.base import LaunchOutcome, OfferingFacts, PoolObservation, PoolUnavailable
from scaler.interruptions.base import SourceHealth, Unacknowledged
from scaler.model.interruption import InterruptionNotice
from scaler.model.plan import DetachReplica, LaunchReplica, TerminateReplica
from tests.faults.cloud import TRAINER_INSTANCE, Cloud, Machine
from tests.faults.virtual_loop import HostClock


class CallRules(Protocol):
    """What is checked at the moment of a call."""

    def listed(self, pool: str, machines: tuple[Machine, ...]) -> None:
        """A complete list was handed to the controller."""
        ...

    def launch_called(self, command: LaunchReplica) -> None:
        """A launch is on its way."""
        ...

    def launch_answered(self, command: LaunchReplica, outcome: LaunchOutcome) -> None:
        """The controller has heard what became of it."""
        ...

    def terminate_called(self, command: TerminateReplica, machines: tuple[Machine, ...]) -> None:
        """An end is on its way."""
        ...

    def notices_told(self, notices: tuple[InterruptionNotice, ...]) -> None:
        """The controller has heard these."""
        ...


class Actor:
    """A `PoolActor`."""

    def __init__(self, cloud: Cloud, pool: str, clock: HostClock, rules: CallRules) -> None:
        self._cloud = cloud
        self._pool = pool
        self._clock = clock
        self._rules = rules

    async def observe(self) -> PoolObservation:
        await self._answers()
        if self._cloud.troubles.partial_until_s > self._cloud.loop.time():
            raise PoolUnavailable("answered in part")
        machines = self._cloud.listed(self._pool)
        self._rules.listed(self._pool, machines)
        return PoolObservation(listed_at_s=self._clock.now_s(), instances=tuple(each.listed() for each in machines))

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        self._rules.launch_called(command)
        await self._travels(partial(self._cloud.launch, command))
        outcome = self._cloud.launch(command)
        self._lose_answer()
        self._rules.launch_answered(command, outcome)
        return outcome

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """As `PoolActor`: this cloud has no groups."""
        return ()

    def facts(self) -> Mapping[str, OfferingFacts]:
        """As `PoolActor`."""
        return {}

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        machines = tuple(self._cloud.machines[name] for name in command.instance_ids if name in self._cloud.machines)
        self._rules.terminate_called(command, machines)
        await self._travels(lambda: [self._cloud.terminate(machine) for machine in machines])
        ended = tuple(machine.instance_id for machine in machines if self._cloud.terminate(machine))
        self._lose_answer()
        return ended

    async def close(self) -> None:
        """There is nothing to give up."""

    async def _travels(self, effect: Callable[[], object]) -> None:
        """A request under way arrives, or not, whatever becomes of who sent it."""
        try:
            await self._answers()
        except asyncio.CancelledError:
            if self._cloud.random.random() < 0.5:
                self._cloud.later(self._cloud.random.uniform(0.0, 20.0), effect)
            raise

    async def _answers(self) -> None:
        troubles, now_s = self._cloud.troubles, self._cloud.loop.time()
        if troubles.slowness_s:
            await asyncio.sleep(self._cloud.random.uniform(0.0, troubles.slowness_s))
        if troubles.hangs_until_s > now_s:
            await asyncio.sleep(troubles.hangs_until_s - now_s)
        if troubles.away_until_s.get(self._pool, 0.0) > now_s:
            raise PoolUnavailable("no answer")
        if troubles.broken_until_s > now_s:
            raise ValueError("an adapter that is wrong")

    def _lose_answer(self) -> None:
        if self._cloud.random.random() < self._cloud.troubles.loss:
            raise PoolUnavailable("the answer got lost")


class Notices(Unacknowledged):
    """A `NoticeSource`: level-based, duplicates, foreign and malformed ones included."""

    def __init__(self, cloud: Cloud, rules: CallRules) -> None:
        self._cloud = cloud
        self._rules = rules

    async def current(self) -> tuple[InterruptionNotice, ...]:
        if self._cloud.troubles.notices_broken_until_s > self._cloud.loop.time():
            raise RuntimeError("a source that is wrong")
        standing = tuple(notice for notice in self._cloud.notices if self._stands(notice))
        self._rules.notices_told(standing)
        return standing

    def _stands(self, notice: InterruptionNotice) -> bool:
        machine = self._cloud.machines.get(notice.instance_id)
        return notice.instance_id == TRAINER_INSTANCE or (machine is not None and not machine.gone)

    async def changed(self) -> None:
        await self._cloud.news.wait()
        self._cloud.news.clear()

    def health(self) -> SourceHealth:
        return SourceHealth(answered_at_s=None)
