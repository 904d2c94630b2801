"""Which fleets there are: each by its UID, told once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from scaler.kube.contract import ROLLOUT_FLEETS, Denied
from scaler.runtime.fleet_source import FleetSource, FleetTurn, Turn
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.rollout_fleets import a_cluster, an_object


class Listener:
    """Hears of turns as they come."""

    def __init__(self, source: FleetSource) -> None:
        self.heard: list[FleetTurn] = []
        self._source = source

    async def run(self) -> None:
        while True:
            turns = await self._source.turns()
            self.heard += turns

    def take(self) -> list[tuple[Turn, str, str]]:
        """What was heard since the last call."""
        heard, self.heard = self.heard, []
        return [(turn.turn, turn.key.namespace, turn.key.name) for turn in heard]


@asynccontextmanager
async def listening(kube: FakeKube, clock: FakeClock, namespaces: Sequence[str] = ()) -> AsyncIterator[Listener]:
    source = FleetSource(kube, clock=clock, namespaces=namespaces)
    listener = Listener(source)
    tasks = [asyncio.create_task(source.run()), asyncio.create_task(listener.run())]
    await clock.settle()
    yield listener
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_fleets_that_are_there_come_and_go() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object("a"), an_object("b", namespace="other"))
    async with listening(kube, clock) as listener:
        assert listener.take() == [(Turn.ADDED, "other", "b"), (Turn.ADDED, "rl", "a")]
        await kube.patch(ROLLOUT_FLEETS, "a", {"spec": {"paused": True}}, namespace="rl")
        await clock.settle()
        assert listener.take() == []
        await kube.delete(ROLLOUT_FLEETS, "a", namespace="rl")
        await clock.settle()
        assert listener.take() == [(Turn.REMOVED, "rl", "a")]


async def test_bug_090_a_fleet_made_anew_under_its_name_is_another() -> None:
    """KEDA#8124."""
    clock = FakeClock()
    kube = await a_cluster(clock, an_object("a"))
    async with listening(kube, clock) as listener:
        old = listener.heard[0].key.uid
        listener.take()
        await kube.delete(ROLLOUT_FLEETS, "a", namespace="rl")
        await kube.create(ROLLOUT_FLEETS, an_object("a"), namespace="rl")
        await clock.settle()
        gone, come = listener.heard
        assert (gone.turn, gone.key.uid) == (Turn.REMOVED, old)
        assert come.turn is Turn.ADDED
        assert come.key.uid != old


async def test_only_the_namespaces_asked_for() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object("a"), an_object("b", namespace="other"), an_object("c", namespace="more"))
    async with listening(kube, clock, ["rl", "more", "rl"]) as listener:
        assert listener.take() == [(Turn.ADDED, "more", "c"), (Turn.ADDED, "rl", "a")]


async def test_nothing_is_told_before_every_namespace_has_answered() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object("a"), an_object("c", namespace="more"))
    kube.fail_next("list", "rolloutfleets", Denied("forbidden", status=403))
    async with listening(kube, clock, ["rl", "more"]) as listener:
        assert listener.take() == []
        await clock.advance(2.0)
        assert [name for _, _, name in listener.take()] == ["c", "a"]


async def test_a_server_that_is_away_takes_no_fleet_away() -> None:
    clock = FakeClock()
    kube = await a_cluster(clock, an_object("a"))
    async with listening(kube, clock) as listener:
        listener.take()
        kube.hang("*", "rolloutfleets")
        kube.end_watches()
        await clock.advance(120.0)
        assert listener.take() == []
