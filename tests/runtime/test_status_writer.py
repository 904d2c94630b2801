"""The status is written when it differs, soon where somebody waits for it, and only to the object that it is about."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scaler.kube.contract import ROLLOUT_FLEETS, Json, KubeUnreachable
from scaler.runtime.status_writer import StatusWriter
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.rollout_fleets import a_cluster, an_object, the_object


class Bench:
    """A fleet's object, and who writes its status."""

    def __init__(self, kube: FakeKube, clock: FakeClock, body: Json) -> None:
        self.kube, self.clock, self.seen = kube, clock, body
        self.writer = StatusWriter(
            kube, clock=clock, namespace="rl", name="demo", uid=body["metadata"]["uid"], seen=lambda: self.seen
        )
        self.task = asyncio.create_task(self.writer.run())

    async def offer(self, **status: Any) -> None:
        self.writer.offer(status)
        await self.clock.settle()

    async def stored(self) -> Json:
        self.seen = await the_object(self.kube)
        return self.seen.get("status") or {}


@asynccontextmanager
async def writing() -> AsyncIterator[Bench]:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object())
    bench = Bench(kube, clock, await the_object(kube))
    await clock.settle()
    yield bench
    bench.task.cancel()
    await asyncio.gather(bench.task, return_exceptions=True)


async def test_the_first_status_is_written_at_once_and_the_same_one_never_again() -> None:
    async with writing() as bench:
        await bench.offer(ready=3, paused=False)
        assert await bench.stored() == {"ready": 3, "paused": False}
        for _ in range(30):
            await bench.offer(ready=3, paused=False)
            await bench.clock.advance(10.0)
        assert bench.writer.writes == 1


async def test_what_somebody_waits_for_is_written_within_a_second() -> None:
    async with writing() as bench:
        for ready in range(1, 9):
            await bench.offer(ready=ready)
        assert bench.writer.writes == 1
        await bench.clock.advance(1.0)
        assert await bench.stored() == {"ready": 8}
        assert bench.writer.writes == 2


async def test_what_only_wobbles_is_written_once_a_minute_with_its_newest_value() -> None:
    async with writing() as bench:
        await bench.offer(ready=3, stages=[{"name": "rollout", "reason": {"code": "steady", "message": "1.00/s"}}])
        for number in range(12):
            await bench.offer(
                ready=3, stages=[{"name": "rollout", "reason": {"code": "steady", "message": f"{number}/s"}}]
            )
            await bench.clock.advance(4.0)
        assert bench.writer.writes == 1
        await bench.clock.advance(13.0)
        assert (await bench.stored())["stages"][0]["reason"]["message"] == "11/s"
        assert bench.writer.writes == 2


async def test_a_turn_does_not_wait_behind_a_wobble() -> None:
    async with writing() as bench:
        await bench.offer(ready=3, spendUsdPerH="3.00")
        await bench.clock.advance(5.0)
        await bench.offer(ready=3, spendUsdPerH="3.10")
        await bench.offer(ready=4, spendUsdPerH="4.10")
        assert await bench.stored() == {"ready": 4, "spendUsdPerH": "4.10"}


async def test_nothing_old_stays_in_a_status() -> None:
    async with writing() as bench:
        await bench.offer(ready=3, lastPlan={"commands": [{"kind": "launch"}]}, lastAccepted={"spec": {"a": {"b": 1}}})
        await bench.clock.advance(2.0)
        await bench.offer(ready=2, lastAccepted={"spec": {"a": {"c": 1}}})
        assert await bench.stored() == {"ready": 2, "lastAccepted": {"spec": {"a": {"c": 1}}}}


async def test_a_failed_write_is_repeated_with_the_newest_status() -> None:
    async with writing() as bench:
        fault = bench.kube.fail_next("patch", "rolloutfleets/status", KubeUnreachable("no answer"), times=2)
        await bench.offer(ready=1)
        await bench.offer(ready=2)
        await bench.clock.advance(5.0)
        assert fault.hit == 2
        assert await bench.stored() == {"ready": 2}


async def test_bug_091_offering_never_waits_for_a_slow_server() -> None:
    """KEDA#5083: no lock across a call."""
    async with writing() as bench:
        bench.kube.hang("patch", "rolloutfleets/status", times=1)
        for ready in range(100):
            bench.writer.offer({"ready": ready})
        await bench.clock.advance(12.0)
        assert await bench.stored() == {"ready": 99}


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew under its name"])
async def test_another_fleets_status_is_never_written(anew: bool) -> None:
    async with writing() as bench:
        await bench.kube.delete(ROLLOUT_FLEETS, "demo", namespace="rl")
        if anew:
            await bench.kube.create(ROLLOUT_FLEETS, an_object(), namespace="rl")
        await bench.offer(ready=3)
        assert bench.task.done(), "the object is gone for good"
        assert bench.writer.writes == 0
        if anew:
            assert "status" not in await the_object(bench.kube)


async def test_a_status_that_somebody_changed_is_put_right() -> None:
    """Among them a leader that was cut off and whose last write came late."""
    async with writing() as bench:
        await bench.offer(ready=3, leader={"epoch": 8})
        await bench.kube.patch(
            ROLLOUT_FLEETS, "demo", {"status": {"leader": {"epoch": 7}}}, namespace="rl", subresource="status"
        )
        assert (await bench.stored())["leader"] == {"epoch": 7}
        await bench.offer(ready=3, leader={"epoch": 8})
        await bench.clock.advance(61.0)
        assert (await bench.stored())["leader"] == {"epoch": 8}


async def test_a_new_controller_goes_on_from_the_status_that_is_there() -> None:
    async with writing() as bench:
        await bench.offer(ready=3)
        await bench.stored()
        again = StatusWriter(
            bench.kube,
            clock=bench.clock,
            namespace="rl",
            name="demo",
            uid=bench.seen["metadata"]["uid"],
            seen=lambda: bench.seen,
        )
        assert again.previous == {"ready": 3}
        again.offer({"ready": 3})
        assert await again.write()
        assert again.writes == 0
