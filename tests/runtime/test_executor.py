"""Carrying plans out: detaching, waiting, throttling, standing down, and what is learnt of trainers in between."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from scaler.act.base import LaunchResult, NotYet, PoolActor, PoolUnavailable
from scaler.model.job import DrainMark
from scaler.model.plan import Command, DetachReplica, LaunchReplica, Plan, Reason, ReasonCode, TerminateReplica
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.offerings import OfferingMemory
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.executor import Executor, World
from scaler.runtime.launcher import THROTTLE_WAIT_S, Launcher
from scaler.runtime.outcomes import Outcome, Outcomes
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet import (
    OFFERING,
    FakeLedger,
    FakePool,
    InlineCalls,
    a_drain,
    a_launch,
    a_worker,
    an_end,
    an_instance,
    replica_of,
)

LEAVES = Reason(code=ReasonCode.LEAVES_GROUP, message="noticed")


def a_detach(instance_id: str) -> DetachReplica:
    return DetachReplica(
        stage="rollout", pool="pool", replica_id=replica_of(instance_id), instance_ids=(instance_id,), reason=LEAVES
    )


@dataclass
class Pool(FakePool):
    """A pool whose next calls go wrong on order, or hang until `go`."""

    wrong: list[Exception] = field(default_factory=list)
    go: asyncio.Event | None = None

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        await self._before()
        return await super().terminate(command)

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        await self._before()
        return await super().detach(command)

    async def _before(self) -> None:
        if self.go is not None:
            await self.go.wait()
        if self.wrong:
            raise self.wrong.pop(0)


@dataclass
class Bed:
    clock: FakeClock
    pool: Pool
    ledger: FakeLedger
    watch: LedgerWatch
    executor: Executor
    offerings: OfferingMemory
    group: asyncio.TaskGroup
    heard: list[tuple[Command, Outcome, str]]
    leads: list[bool]
    vetoes: dict[type[Command], str]

    async def act(self, *commands: Command, launches: bool = True, settle: bool = True) -> list[Outcome]:
        """What became of a plan's commands."""
        self.heard.clear()
        actors: Mapping[str, PoolActor] = {"pool": self.pool}
        await self.watch.poll()
        pools = {"pool": await self.pool.observe()}
        plan = Plan(commands=commands, look_again_in_s=1.0, stages=())
        self.executor.intend(plan)
        world = World(reading=self.watch.reading, pools=pools, actors=actors)
        await self.executor.act(plan, 1, world, self.group, launches=launches)
        if settle:
            await self.clock.settle()
        return [outcome for _, outcome, _ in self.heard]


@asynccontextmanager
async def a_bed() -> AsyncIterator[Bed]:
    clock = FakeClock()
    pool, ledger = Pool(clock), FakeLedger(clock)
    heard: list[tuple[Command, Outcome, str]] = []
    leads, vetoes = [True], dict[type[Command], str]()
    metrics = Metrics(clock, Readout)
    outcomes = Outcomes(clock, metrics, lambda command, outcome, text: heard.append((command, outcome, text)))
    calls, offerings = InlineCalls(ledger), OfferingMemory()

    def may_act() -> bool:
        return leads[-1]

    executor = Executor(
        launcher=Launcher(clock=clock, offerings=offerings, outcomes=outcomes, metrics=metrics, may_act=may_act),
        drainer=Drainer(clock=clock, calls=calls, outcomes=outcomes, metrics=metrics, epoch=1),
        ender=Ender(clock=clock, calls=calls, outcomes=outcomes, may_act=may_act),
        outcomes=outcomes,
        objection=lambda command: vetoes.get(type(command)),
    )
    async with asyncio.TaskGroup() as group:
        watch = LedgerWatch(calls, clock)
        yield Bed(clock, pool, ledger, watch, executor, offerings, group, heard, leads, vetoes)
        for task in list(group._tasks):
            task.cancel()


async def test_a_noticed_replica_leaves_its_group_whatever_the_ledger_says() -> None:
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"))
        bed.ledger.away = True
        assert await bed.act(a_detach("i")) == [Outcome.DONE]
        assert [each.instance_ids for each in bed.pool.detached] == [("i",)]
        assert bed.executor.ender.ending == frozenset(), "it is not ended by that"


async def test_a_replica_that_is_leaving_is_not_told_twice_at_once_and_again_if_that_failed() -> None:
    async with a_bed() as bed:
        bed.pool.go = asyncio.Event()
        await bed.act(a_detach("i"))
        await bed.act(a_detach("i"))
        bed.pool.wrong = [PoolUnavailable("away")]
        bed.pool.go.set()
        await bed.clock.settle()
        assert (len(bed.pool.detached), [outcome for _, outcome, _ in bed.heard]) == (0, [Outcome.UNAVAILABLE])
        assert await bed.act(a_detach("i")) == [Outcome.DONE]


async def test_bug_056a_a_step_that_has_to_wait_comes_again_until_it_is_done() -> None:
    """A marker that outlives a throttled call would keep the instance for ever."""
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"))
        bed.ledger.put(a_worker("i", drain=DrainMark(deadline_s=bed.clock.now_s(), reason="size_down", epoch=1)))
        bed.pool.wrong = [NotYet("its pod goes first"), PoolUnavailable("throttled"), TimeoutError()]
        told = [await bed.act(an_end("i")) for _ in range(4)]
        assert told == [[Outcome.WAITING], [Outcome.UNAVAILABLE], [Outcome.UNAVAILABLE], [Outcome.DONE]]
        assert bed.pool.ended == ["i"]
        bed.pool.put(an_instance("i"))
        bed.executor.ender.settle({"pool": await bed.pool.observe()})
        assert bed.executor.ender.ending == {replica_of("i")}
        bed.clock.pass_time(61.0)
        bed.executor.ender.settle({"pool": await bed.pool.observe()})
        assert bed.executor.ender.ending == frozenset(), "it still runs: it may be named again"


async def test_an_adapter_that_breaks_takes_nobody_with_it() -> None:
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"), an_instance("j"))
        bed.pool.wrong = [KeyError("what")]
        assert sorted(await bed.act(a_detach("i"), a_detach("j"), a_launch("t"))) == sorted(
            [Outcome.BROKEN, Outcome.DONE, Outcome.DONE]
        )


@pytest.mark.parametrize("command", [a_detach("i"), an_end("i"), a_launch("t")], ids=["detach", "end", "launch"])
async def test_who_no_longer_leads_calls_nobody(command: Command) -> None:
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"))
        bed.leads.append(False)
        assert await bed.act(command) == []
        assert (bed.pool.launches, bed.pool.ended, bed.pool.detached) == ([], [], [])


async def test_what_waits_for_its_turn_while_leadership_is_lost_is_not_called() -> None:
    async with a_bed() as bed:
        instances = [f"i{number}" for number in range(40)]
        bed.pool.go = asyncio.Event()
        await bed.act(*(a_detach(each) for each in instances))
        bed.leads.append(False)
        bed.pool.go.set()
        await bed.clock.settle()
        assert len(bed.pool.detached) == 32, "those under way are harmless: they name what is noticed"


async def test_bug_067_bug_074_throttling_backs_off_the_pool_and_says_nothing_of_its_offerings() -> None:
    async with a_bed() as bed:
        bed.pool.refuse = LaunchResult.THROTTLED
        told = await bed.act(*(a_launch(f"t{number}") for number in range(5)))
        assert set(told) == {Outcome.UNAVAILABLE}
        (view,) = bed.offerings.views("pool", (OFFERING,))
        assert (view.refusals, view.refused_at_s) == (0, None)
        calls = len(bed.pool.launches)
        for _ in range(5):
            await bed.act()
        assert len(bed.pool.launches) == calls, "left alone for a while"
        waits = []
        for _ in range(4):
            waited_s = 0.0
            while len(bed.pool.launches) == calls:
                bed.clock.pass_time(0.5)
                waited_s += 0.5
                await bed.act()
            waits.append(waited_s)
            calls = len(bed.pool.launches)
        assert waits == [THROTTLE_WAIT_S * each for each in (1, 2, 4, 8)]
        bed.pool.refuse = None
        bed.clock.pass_time(60.0)
        await bed.act()
        assert sorted(bed.pool.tokens) == [f"t{number}" for number in range(5)], "every intent stayed"


async def test_bug_064_a_refusal_ends_its_intent_and_a_quota_is_every_pools() -> None:
    async with a_bed() as bed:
        bed.pool.refuse = LaunchResult.QUOTA
        assert await bed.act(a_launch("t")) == [Outcome.REFUSED]
        assert bed.executor.launcher.intents == ()
        for pool in ("pool", "another"):
            (view,) = bed.offerings.views(pool, (OFFERING,))
            assert view.refusals == 1


async def test_a_pool_without_room_holds_no_other_back_and_says_why() -> None:
    async with a_bed() as bed:
        bed.pool.refuse = LaunchResult.NO_ROOM
        assert await bed.act(a_launch("t")) == [Outcome.REFUSED]
        (full,) = bed.offerings.views("pool", (OFFERING,))
        (other,) = bed.offerings.views("another", (OFFERING,))
        assert (full.refusals, other.refusals) == (1, 0)
        assert full.refused_because.startswith("no_room: ")


async def test_a_journal_that_is_not_written_launches_nothing_and_drains_all_the_same() -> None:
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"))
        bed.ledger.put(a_worker("i", leases=1))
        deadline_s = bed.clock.now_s() + 60
        assert await bed.act(a_launch("t"), a_drain("i", deadline_s), launches=False) == [Outcome.DONE]
        assert bed.pool.launches == []
        await bed.act()
        assert bed.pool.launches == ["t"], "written since: it is called for"


async def test_what_is_learnt_of_a_trainer_after_a_launch_was_intended_holds_for_it() -> None:
    async with a_bed() as bed:
        await bed.act(a_launch("t"), launches=False)
        bed.vetoes[LaunchReplica] = "a trainer lives there"
        await bed.act()
        assert (bed.pool.launches, bed.executor.launcher.intents) == ([], ())


async def test_an_order_to_drain_waits_while_something_speaks_against_it() -> None:
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"))
        order = a_drain("i", bed.clock.now_s() + 60)
        await bed.act(order)
        bed.ledger.put(a_worker("i", leases=1))
        bed.vetoes[type(order)] = "nobody knows whether it is a trainer's"
        await bed.act()
        assert not _drained(bed)
        bed.vetoes.clear()
        await bed.act()
        assert _drained(bed)


def _drained(bed: Bed) -> bool:
    return any(worker.drain is not None for worker in bed.ledger.workers())


@pytest.mark.parametrize("command", [a_launch("t"), a_detach("i"), an_end("i")], ids=["launch", "detach", "end"])
async def test_a_command_that_touches_a_trainer_is_neither_intended_nor_carried_out(command: Command) -> None:
    async with a_bed() as bed:
        bed.pool.put(an_instance("i"))
        bed.vetoes[type(command)] = "a trainer's"
        assert await bed.act(command) == [Outcome.PRECONDITION]
        assert (bed.pool.launches, bed.pool.ended, bed.pool.detached) == ([], [], [])
        assert bed.executor.launcher.intents == ()
