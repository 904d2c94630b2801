"""Lists that take long: no turn waits for them, one of a pool is made at a time, and what they tell is told once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.act.base import OfferingFacts, PoolActor, PoolObservation
from scaler.runtime.pool_watch import PoolWatch, rest_s
from tests.builders.clock import FakeClock
from tests.builders.fleet import FakePool, an_instance

_LONGER_THAN_ANY_TEST_S = 3600.0
_OLDEST_S = 12.0


@dataclass
class SlowPool(FakePool):
    """A pool whose list is there when it is let go."""

    asked: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def observe(self) -> PoolObservation:
        self.asked += 1
        await self.gate.wait()
        return await super().observe()

    def facts(self) -> Mapping[str, OfferingFacts]:
        return {"o": OfferingFacts(price_usd_per_h=1.0)}


@dataclass
class Scene:
    """A watch over one pool, and the turns that it was told to begin early."""

    watch: PoolWatch
    pool: SlowPool
    group: asyncio.TaskGroup
    woken: list[str] = field(default_factory=list)

    async def poll(self, **others: PoolActor) -> None:
        """A turn's look."""
        await self.watch.poll({"pool": self.pool, **others}, self.group, _OLDEST_S)

    async def let_go(self) -> None:
        """The list that is being made comes, when no turn waits for it; the next one takes its time again."""
        self.pool.gate.set()
        await self.pool.clock.settle()
        self.pool.gate.clear()

    @property
    def listed(self) -> list[str]:
        """Instances of the last list."""
        return [one.instance_id for one in self.watch.observations["pool"].instances]


@asynccontextmanager
async def a_scene() -> AsyncIterator[Scene]:
    async with asyncio.TaskGroup() as group:
        pool = SlowPool(FakeClock())
        scene = Scene(PoolWatch(pool.clock, patience_s=0.001), pool, group)
        scene.watch.late = lambda: scene.woken.append("woken")
        yield scene
        scene.pool.gate.set()


async def test_a_list_that_is_there_at_once_is_of_this_turn_and_wakes_nobody() -> None:
    async with a_scene() as scene:
        scene.pool.gate.set()
        scene.pool.put(an_instance("i-1"))
        await scene.poll()
        assert (scene.listed, scene.woken) == (["i-1"], [])
        assert scene.watch.facts["pool"]["o"].price_usd_per_h == 1.0


async def test_a_turn_goes_on_without_a_list_that_takes_long_and_no_second_one_is_begun() -> None:
    async with a_scene() as scene:
        for _ in range(3):
            await scene.poll()
        assert scene.pool.asked == 1
        assert scene.watch.observations == {}
        assert scene.watch.failures_in_a_row == {}


async def test_a_late_list_wakes_the_loop_where_it_tells_something_new_and_only_then() -> None:
    async with a_scene() as scene:
        scene.pool.put(an_instance("i-1"))
        await scene.poll()
        await scene.let_go()
        assert (scene.listed, scene.woken) == (["i-1"], ["woken"])
        scene.pool.clock.pass_time(10.0)
        await scene.poll()
        await scene.let_go()
        assert scene.watch.observations["pool"].listed_at_s == scene.pool.clock.now_s()
        assert scene.woken == ["woken"]
        scene.pool.put(an_instance("i-2"))
        await scene.poll()
        await scene.let_go()
        assert (scene.listed, scene.woken) == (["i-1", "i-2"], ["woken", "woken"])


@pytest.mark.parametrize(("took_s", "rests_s"), [(0.5, 2.0), (2.0, 8.0), (4.0, 4.0)])
async def test_lists_that_take_long_leave_most_of_the_time_to_others(took_s: float, rests_s: float) -> None:
    async with a_scene() as scene:
        await scene.poll()
        scene.pool.clock.pass_time(took_s)
        await scene.let_go()
        scene.pool.clock.pass_time(rests_s - 0.01)
        await scene.poll()
        assert scene.pool.asked == 1
        scene.pool.clock.pass_time(0.01)
        await scene.poll()
        await scene.pool.clock.settle()
        assert scene.pool.asked == 2


@given(took_s=st.floats(0.0, 100.0), oldest_s=st.floats(-100.0, 1000.0))
def test_no_rest_makes_a_list_older_than_it_may_be(took_s: float, oldest_s: float) -> None:
    rests_s = rest_s(took_s, oldest_s)
    assert rests_s == 0.0 or took_s + rests_s + took_s <= oldest_s + 1e-6


async def test_no_turn_waits_for_a_pool_whose_last_list_came_late() -> None:
    async with asyncio.TaskGroup() as group:
        pool = SlowPool(FakeClock())
        watch = PoolWatch(pool.clock, patience_s=_LONGER_THAN_ANY_TEST_S)
        first = group.create_task(watch.poll({"pool": pool}, group, _OLDEST_S))
        await pool.clock.settle()
        pool.clock.pass_time(_LONGER_THAN_ANY_TEST_S + 1.0)
        pool.gate.set()
        await first
        pool.gate.clear()
        pool.clock.pass_time(_OLDEST_S)
        await watch.poll({"pool": pool}, group, _OLDEST_S)
        await pool.clock.settle()
        assert pool.asked == 2
        pool.gate.set()


async def test_no_turn_waits_for_a_pool_whose_last_list_never_came() -> None:
    async with asyncio.TaskGroup() as group:
        pool = SlowPool(FakeClock())
        watch = PoolWatch(pool.clock, patience_s=_LONGER_THAN_ANY_TEST_S)
        first = group.create_task(watch.poll({"pool": pool}, group, _OLDEST_S))
        await pool.clock.settle()
        pool.clock.pass_time(_LONGER_THAN_ANY_TEST_S + 1.0)
        pool.away = True
        pool.gate.set()
        await first
        pool.gate.clear()
        await watch.poll({"pool": pool}, group, _OLDEST_S)
        await pool.clock.settle()
        assert (pool.asked, watch.failures_in_a_row) == (2, {"pool": 1})
        pool.gate.set()


async def test_a_list_that_is_there_at_once_is_made_again_at_the_next_turn() -> None:
    async with a_scene() as scene:
        scene.pool.gate.set()
        for _ in range(3):
            await scene.poll()
        assert scene.pool.asked == 3


async def test_an_actor_that_was_replaced_does_not_inherit_the_rest() -> None:
    async with a_scene() as scene:
        await scene.poll()
        scene.pool.clock.pass_time(1.0)
        await scene.let_go()
        scene.pool = SlowPool(scene.pool.clock)
        scene.pool.put(an_instance("i-new"))
        scene.pool.gate.set()
        await scene.poll()
        assert scene.listed == ["i-new"]


async def test_one_slow_pool_holds_no_other_up() -> None:
    async with a_scene() as scene:
        quick = FakePool(scene.pool.clock)
        await scene.poll(quick=quick)
        assert scene.watch.observations.keys() == {"quick"}


async def test_a_list_by_an_actor_that_was_replaced_meanwhile_is_void() -> None:
    async with a_scene() as scene:
        scene.pool.put(an_instance("i-old"))
        await scene.poll()
        old, scene.pool = scene.pool, SlowPool(scene.pool.clock)
        scene.pool.put(an_instance("i-new"))
        scene.pool.gate.set()
        await scene.poll()
        old.gate.set()
        await old.clock.settle()
        assert scene.listed == ["i-new"]


async def test_a_list_of_a_pool_that_has_left_the_fleet_does_not_bring_it_back() -> None:
    async with a_scene() as scene:
        await scene.poll()
        await scene.watch.poll({}, scene.group, _OLDEST_S)
        await scene.let_go()
        assert scene.watch.observations == {}


async def test_a_list_that_fails_late_leaves_the_last_one_and_is_counted() -> None:
    async with a_scene() as scene:
        scene.pool.gate.set()
        scene.pool.put(an_instance("i-1"))
        await scene.poll()
        scene.pool.gate.clear()
        scene.pool.away = True
        await scene.poll()
        await scene.let_go()
        assert scene.listed == ["i-1"]
        assert scene.watch.failures_in_a_row == {"pool": 1}
        assert scene.woken == []


async def test_a_list_that_never_comes_is_given_up_and_made_anew() -> None:
    async with asyncio.TaskGroup() as group:
        pool = SlowPool(FakeClock())
        watch = PoolWatch(pool.clock, time_out_s=0.01, patience_s=5.0)
        await watch.poll({"pool": pool}, group, _OLDEST_S)
        assert watch.failures_in_a_row == {"pool": 1}
        await watch.poll({"pool": pool}, group, _OLDEST_S)
        assert (pool.asked, watch.failures_in_a_row) == (2, {"pool": 2})
