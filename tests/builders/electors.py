"""Processes that stand for election, in one event loop: each can be stopped at any await (SIGSTOP), goes on, dies, is born."""

import asyncio
from collections.abc import Callable

from scaler.kube.contract import Json, KubeApi
from scaler.kube.lease import LeaderElector, LeadershipLost
from scaler.model.clock import Clock
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.fake_kube_store import FakeStore

NAMESPACE, NAME = "headrace", "controller"


def an_elector(api: KubeApi, clock: Clock, identity: str = "a", **times_s: float) -> LeaderElector:
    """One that stands for the one lease of these tests."""
    return LeaderElector(api, namespace=NAMESPACE, name=NAME, identity=identity, clock=clock, **times_s)


def leads(elector: LeaderElector) -> bool:
    """Asked anew each time."""
    return elector.leading


class WitnessedClock(FakeClock):
    """Calls `witness` at every instant, once all that happens at it has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.witness: Callable[[], None] = lambda: None

    def pass_time(self, seconds: float) -> None:
        self.witness()
        super().pass_time(seconds)
        self.witness()

    async def settle(self) -> None:
        for _ in range(25):
            await asyncio.sleep(0)


class _StoppableClock:
    """Sleepers of a stopped process wake when it goes on; time passes for it as for all."""

    def __init__(self, clock: Clock, running: asyncio.Event) -> None:
        self._clock = clock
        self._running = running
        self.now_s = clock.now_s
        self.monotonic_s = clock.monotonic_s

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._running.wait()


class _StoppableKube(FakeKube):
    """What was sent arrives; answers are seen when the process goes on."""

    def __init__(self, clock: Clock, store: FakeStore, running: asyncio.Event) -> None:
        super().__init__(clock, store=store)
        self._running = running

    async def _call(self, verb: str, plural: str, act: Callable[[], Json]) -> Json:
        try:
            return await super()._call(verb, plural, act)
        finally:
            await self._running.wait()


class Candidate:
    """A process that leads whenever it can. `led` is told the epoch at each acquisition."""

    def __init__(self, name: str, server: FakeKube, clock: FakeClock, led: Callable[[int], None]) -> None:
        self._running = asyncio.Event()
        self._running.set()
        self._led = led
        self.api: FakeKube = _StoppableKube(clock, server.store, self._running)
        self.elector = an_elector(self.api, _StoppableClock(clock, self._running), name)
        self._life = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        while True:
            self._led(await self.elector.acquire())
            try:
                await self.elector.hold()
            except LeadershipLost:
                continue

    def stop(self) -> None:
        """SIGSTOP."""
        self._running.clear()

    def go(self) -> None:
        """SIGCONT."""
        self._running.set()

    async def die(self) -> None:
        """kill -9: nothing is released."""
        self._life.cancel()
        self._running.set()
        await asyncio.gather(self._life, return_exceptions=True)

    async def retire(self) -> None:
        """An orderly end."""
        await self.die()
        await self.elector.release()
