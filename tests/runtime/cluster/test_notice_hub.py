"""One hub for all fleets: what is acknowledged is what every fleet concerned has acted on, and nothing besides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from scaler.interruptions.base import SourceHealth
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.runtime.cluster.notice_hub import FleetNotices, NoticeHub
from scaler.runtime.notice_watch import NoticeWatch
from tests.builders.clock import FakeClock

NOW_S = 1_800_000_000.0


def a_notice(name: str, *, in_s: float = 120.0, kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION) -> InterruptionNotice:
    return InterruptionNotice(instance_id=name, kind=kind, noticed_at_s=NOW_S, deadline_s=NOW_S + in_s)


@dataclass
class Source:
    """A `NoticeSource` that keeps a notice until it is recorded, as a queue does."""

    standing: set[InterruptionNotice] = field(default_factory=set)
    told: set[InterruptionNotice] = field(default_factory=set)
    acknowledged: set[InterruptionNotice] = field(default_factory=set)
    drained_ids: frozenset[str] = frozenset()
    news: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bool = False
    slow: asyncio.Event | None = None

    def say(self, *notices: InterruptionNotice) -> None:
        self.standing |= set(notices)
        self.news.set()

    async def current(self) -> tuple[InterruptionNotice, ...]:
        if self.broken:
            raise RuntimeError("away")
        self.told |= self.standing
        return tuple(self.standing)

    async def changed(self) -> None:
        await self.news.wait()
        self.news.clear()

    async def run(self) -> None:
        """Nothing."""

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        if self.slow is not None:
            await self.slow.wait()
        self.acknowledged |= {each for each in self.told if each.instance_id in instance_ids}

    async def drained(self, instance_ids: frozenset[str]) -> None:
        self.drained_ids = instance_ids

    def health(self) -> SourceHealth:
        return SourceHealth(answered_at_s=NOW_S)


@dataclass
class Fleet:
    """A fleet's turns."""

    view: FleetNotices
    owns: set[str]
    woken: list[int]
    seen: tuple[InterruptionNotice, ...] = ()

    def look(self) -> None:
        self.seen = self.view.current()

    async def act(self) -> None:
        """All that it saw of its own is recorded now, and drained."""
        ours = frozenset(each.instance_id for each in self.seen if each.instance_id in self.owns)
        await self.view.recorded(ours)
        await self.view.drained(ours)


@dataclass
class Bed:
    hub: NoticeHub
    clock: FakeClock
    source: Source

    def fleet(self, name: str, *owns: str) -> Fleet:
        woken: list[int] = []
        return Fleet(self.hub.join(name, lambda: woken.append(1)), set(owns), woken)

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.advance(seconds)


@asynccontextmanager
async def a_hub(*others: Source) -> AsyncIterator[Bed]:
    clock, source = FakeClock(NOW_S), Source()
    sources = {"queue": source} | {f"other-{number}": each for number, each in enumerate(others)}
    hub = NoticeHub(NoticeWatch(sources, clock), clock)
    task = asyncio.ensure_future(hub.run())
    await clock.settle()
    try:
        yield Bed(hub, clock, source)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_notice_wakes_every_fleet_and_is_acknowledged_once_its_own_has_recorded_it() -> None:
    async with a_hub() as bed:
        mill, weir = bed.fleet("mill", "i-1"), bed.fleet("weir", "i-2")
        bed.source.say(a_notice("i-1"), a_notice("i-2"))
        await bed.settle()
        assert (len(mill.woken), len(weir.woken)) == (1, 1)
        mill.look()
        await mill.act()
        await bed.settle()
        assert bed.source.acknowledged == {a_notice("i-1")}
        assert bed.source.drained_ids == {"i-1"}
        weir.look()
        await weir.act()
        await bed.settle()
        assert bed.source.acknowledged == {a_notice("i-1"), a_notice("i-2")}
        assert bed.source.drained_ids == {"i-1", "i-2"}


async def test_bug_001_a_notice_that_came_after_the_look_is_not_acknowledged_with_the_older_one() -> None:
    async with a_hub() as bed:
        mill, weir = bed.fleet("mill", "i-1"), bed.fleet("weir", "i-2")
        first, second = a_notice("i-1", kind=NoticeKind.SCHEDULED_CHANGE, in_s=9000.0), a_notice("i-1")
        bed.source.say(first)
        await bed.settle()
        mill.look()
        bed.source.say(second)
        await bed.settle()
        await mill.act()
        await weir.act()
        await bed.settle(30.0)
        assert second not in bed.source.acknowledged, "nobody has acted on it"
        mill.look()
        await mill.act()
        await bed.settle()
        assert bed.source.acknowledged == {first, second}


async def test_an_earlier_deadline_is_another_notice() -> None:
    async with a_hub() as bed:
        mill = bed.fleet("mill", "i-1")
        bed.source.say(a_notice("i-1", in_s=120.0))
        await bed.settle()
        mill.look()
        await mill.act()
        await bed.settle()
        sooner = a_notice("i-1", in_s=30.0)
        bed.source.say(sooner)
        await bed.settle(30.0)
        assert sooner not in bed.source.acknowledged
        assert len(mill.woken) == 2


async def test_a_fleet_that_hangs_or_goes_takes_only_its_own_share_with_it() -> None:
    async with a_hub() as bed:
        mill, weir = bed.fleet("mill", "i-1"), bed.fleet("weir", "i-2")
        bed.source.say(a_notice("i-1"), a_notice("i-2"))
        await bed.settle()
        weir.look()
        await weir.act()
        await bed.settle()
        assert bed.source.acknowledged == {a_notice("i-2")}
        bed.hub.leave("weir")
        mill.look()
        await mill.act()
        await bed.settle()
        assert bed.source.drained_ids == {"i-1"}
        bed.hub.leave("nobody")


async def test_a_source_that_hears_nothing_holds_no_fleet_up() -> None:
    async with a_hub() as bed:
        mill = bed.fleet("mill", "i-1")
        bed.source.say(a_notice("i-1"))
        await bed.settle()
        bed.source.slow = asyncio.Event()
        mill.look()
        await asyncio.wait_for(mill.act(), 1.0)
        bed.source.slow.set()
        await bed.settle()
        assert bed.source.acknowledged == {a_notice("i-1")}


async def test_notices_are_asked_for_also_where_a_wake_up_got_lost() -> None:
    async with a_hub() as bed:
        mill = bed.fleet("mill", "i-1")
        bed.source.standing.add(a_notice("i-1"))
        await bed.settle(6.0)
        mill.look()
        assert (mill.seen, len(mill.woken)) == ((a_notice("i-1"),), 1)
        await bed.settle(60.0)
        assert len(mill.woken) == 1, "nothing is new"


async def test_a_source_that_is_away_keeps_no_other_from_being_heard() -> None:
    other = Source()
    async with a_hub(other) as bed:
        mill = bed.fleet("mill", "i-1")
        bed.source.broken = True
        other.say(a_notice("i-1"))
        await bed.settle(6.0)
        mill.look()
        assert mill.seen == (a_notice("i-1"),)
        assert set(mill.view.health()) == {"queue", "other-0"}


async def test_a_fleet_that_joins_late_sees_what_stands() -> None:
    async with a_hub() as bed:
        bed.source.say(a_notice("i-1"))
        await bed.settle()
        late = bed.fleet("late", "i-1")
        late.look()
        await late.view.poll()
        assert late.seen == (a_notice("i-1"),)


@pytest.mark.parametrize("twice", [1, 2])
async def test_nothing_is_acknowledged_that_no_fleet_owns(twice: int) -> None:
    async with a_hub() as bed:
        fleets = [bed.fleet(f"fleet-{number}", "i-else") for number in range(twice)]
        bed.source.say(a_notice("i-1"))
        await bed.settle()
        for fleet in fleets:
            fleet.look()
            await fleet.act()
        await bed.settle(30.0)
        assert bed.source.acknowledged == set()
