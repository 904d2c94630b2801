"""Events: counted, bounded, never in the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.kube.contract import EVENTS, Json, KubeUnreachable
from scaler.telemetry.events import EventRecorder, EventType, Involved, Note
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube

FLEET = Involved(api_version="headrace.dev/v1alpha1", kind="RolloutFleet", name="demo", namespace="rl", uid="u-1")
NODE = Involved(api_version="v1", kind="Node", name="ip-10-0-0-1", uid="ip-10-0-0-1")


class Bench:
    """A recorder that sends to a cluster in memory."""

    def __init__(self, clock: FakeClock, *, most: int = 256, burst: int = 25) -> None:
        self.clock, self.kube = clock, FakeKube(clock)
        self.recorder = EventRecorder(
            self.kube, clock=clock, about=FLEET, identity="headrace-0", most=most, burst=burst, per_s=0.5
        )

    async def note(self, reason: str, message: str = "m", **over: object) -> None:
        self.recorder.record(Note(reason=reason, message=message, **over))  # type: ignore[arg-type]
        await self.clock.settle()

    async def events(self) -> dict[str, Json]:
        return {event["reason"]: event for event in (await self.kube.list(EVENTS)).items}


@asynccontextmanager
async def recording(*, most: int = 256, burst: int = 25) -> AsyncIterator[Bench]:
    bench = Bench(FakeClock(), most=most, burst=burst)
    task = asyncio.create_task(bench.recorder.run())
    await bench.clock.settle()
    yield bench
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_is_about_the_fleet() -> None:
    async with recording() as bench:
        await bench.note("SizeUp", "rollout: 3 -> 5", type=EventType.WARNING)
        event = (await bench.events())["SizeUp"]
        assert event["involvedObject"] == {
            "apiVersion": "headrace.dev/v1alpha1", "kind": "RolloutFleet", "name": "demo", "namespace": "rl", "uid": "u-1",
        }  # fmt: skip
        assert (event["message"], event["type"], event["count"]) == ("rollout: 3 -> 5", "Warning", 1)
        assert (event["metadata"]["namespace"], event["source"]["component"]) == ("rl", "headrace")
        assert event["firstTimestamp"] == event["lastTimestamp"] == "1970-01-12T13:46:40Z"


async def test_a_drain_is_an_event_of_its_node() -> None:
    async with recording() as bench:
        await bench.note("HeadraceDraining", about=NODE)
        event = (await bench.events())["HeadraceDraining"]
        assert event["involvedObject"] == {
            "apiVersion": "v1", "kind": "Node", "name": "ip-10-0-0-1", "uid": "ip-10-0-0-1",
        }  # fmt: skip
        assert event["metadata"]["namespace"] == "default"


async def test_the_same_reason_is_one_event_with_a_count_and_the_newest_message() -> None:
    async with recording() as bench:
        for number in range(5):
            await bench.note("CapacityRefused", f"number {number}")
            await bench.clock.advance(10.0)
        event = (await bench.events())["CapacityRefused"]
        assert (event["count"], event["message"]) == (5, "number 4")
        assert event["firstTimestamp"] < event["lastTimestamp"]
        assert len((await bench.kube.list(EVENTS)).items) == 1


async def test_a_storm_is_slowed_down_and_nothing_of_its_counts_is_lost() -> None:
    async with recording(burst=5) as bench:
        for number in range(1000):
            bench.recorder.record(Note(reason=f"R{number % 10}", message=str(number)))
        await bench.clock.settle()
        assert bench.recorder.sent == 5
        await bench.clock.advance(120.0)
        events = await bench.events()
        assert {reason: event["count"] for reason, event in events.items()} == {f"R{n}": 100 for n in range(10)}
        assert bench.recorder.sent == 10
        assert bench.recorder.dropped == 0


async def test_what_waits_is_bounded_and_the_rest_is_counted() -> None:
    async with recording(most=8, burst=1) as bench:
        for number in range(100):
            bench.recorder.record(Note(reason=f"R{number}", message="m"))
        await bench.clock.advance(600.0)
        assert len(await bench.events()) + bench.recorder.dropped == 100
        assert len(await bench.events()) == 8


async def test_a_server_that_is_away_gets_the_newest_count_later() -> None:
    async with recording() as bench:
        fault = bench.kube.fail_next("create", "events", KubeUnreachable("no answer"), times=2)
        for _ in range(3):
            await bench.note("NoticeSpotInterruption")
        await bench.clock.advance(30.0)
        assert fault.hit == 2
        assert (await bench.events())["NoticeSpotInterruption"]["count"] == 3


async def test_an_answer_that_was_lost_doubles_nothing() -> None:
    async with recording() as bench:
        bench.kube.fail_next("create", "events", KubeUnreachable("no answer"), landed=True)
        await bench.note("SizeUp")
        await bench.clock.advance(10.0)
        await bench.note("SizeUp")
        await bench.clock.advance(10.0)
        (event,) = (await bench.kube.list(EVENTS)).items
        assert event["count"] == 2


async def test_an_event_that_the_server_forgot_is_made_anew() -> None:
    async with recording() as bench:
        await bench.note("SizeUp")
        event = (await bench.events())["SizeUp"]
        await bench.kube.delete(EVENTS, event["metadata"]["name"], namespace="rl")
        await bench.note("SizeUp")
        await bench.clock.advance(10.0)
        assert (await bench.events())["SizeUp"]["count"] == 2


async def test_after_a_long_silence_a_new_event_begins() -> None:
    async with recording() as bench:
        await bench.note("SizeUp")
        await bench.clock.advance(3600.0)
        await bench.note("SizeUp")
        assert [event["count"] for event in (await bench.kube.list(EVENTS)).items] == [1, 1]


async def test_a_message_is_as_long_as_the_server_takes() -> None:
    async with recording() as bench:
        await bench.note("SizeUp", "x" * 5000)
        assert len((await bench.events())["SizeUp"]["message"]) == 1024


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 20.0)), max_size=40))
@settings(max_examples=50)
def test_every_note_is_counted_once_whatever_the_order_and_pace(steps: list[tuple[int, float]]) -> None:
    async def play() -> None:
        async with recording(burst=2) as bench:
            for reason, seconds in steps:
                await bench.note(f"R{reason}")
                await bench.clock.advance(seconds)
            await bench.clock.advance(200.0)
            assert sum(event["count"] for event in (await bench.events()).values()) == len(steps)
            assert bench.recorder.sent <= 2 + 0.5 * (sum(seconds for _, seconds in steps) + 200.0) + 1

    asyncio.run(play())
