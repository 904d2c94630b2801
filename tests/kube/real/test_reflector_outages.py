"""A reflector over a real API server whose parts are killed, stopped and started again under it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import aiohttp
import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import CONFIG_MAPS, Json, KubeApi, KubeError
from scaler.kube.reflector import Reflector
from scaler.runtime.clock import SystemClock
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

_WATCH_S = 2.0
_SLACK_S = 1.0
"""An answer that was under way when its server was stopped."""
_CLOCK = SystemClock()


class Watcher:
    """Config maps with one label, watched with short watches by a client of its own."""

    def __init__(self, plane: ControlPlane, api: KubeApi) -> None:
        self.label = uuid4().hex[:8]
        self.api = api
        self._own = open_api(plane.kubeconfig, clock=_CLOCK, time_out_s=3.0)
        self.reflector = Reflector[str](
            self._own,
            CONFIG_MAPS,
            clock=_CLOCK,
            keep=lambda body: str(body["metadata"]["name"]),
            label_selector=f"test={self.label}",
            namespace="default",
            watch_s=_WATCH_S,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.reflector.run())
        try:
            await self.until(lambda: self.reflector.current_at_s is not None)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._own.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for it; the test's time-out is its end."""
        while not holds():  # noqa: ASYNC110 - what is waited for is no event of ours
            await asyncio.sleep(0.05)

    async def make(self, name: str) -> None:
        body: Json = {"metadata": {"name": f"{self.label}-{name}", "labels": {"test": self.label}}}
        await persistently(lambda: self.api.create(CONFIG_MAPS, body, namespace="default"))

    async def drop(self, name: str) -> None:
        await self.api.delete(CONFIG_MAPS, f"{self.label}-{name}", namespace="default")

    def keeps(self, *names: str) -> bool:
        return set(self.reflector.items.values()) == {f"{self.label}-{name}" for name in names}

    def known_after(self, at_s: float) -> bool:
        return (self.reflector.current_at_s or 0.0) > at_s


async def persistently(call: Callable[[], object]) -> None:
    """Try until the server takes it: after a start it is not all there at once."""
    while True:
        try:
            await call()  # type: ignore[misc]
        except KubeError:
            await asyncio.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
async def test_what_is_killed_under_it_is_noticed_and_after_its_return_nothing_is_missing(
    plane: ControlPlane, api: KubeApi, part: str
) -> None:
    watcher = Watcher(plane, api)
    await watcher.make("a")
    async with watcher.running():
        await watcher.until(lambda: watcher.keeps("a"))
        await asyncio.to_thread(plane.kill, part)
        killed_at_s = _CLOCK.now_s()
        await asyncio.sleep(3 * _WATCH_S)
        assert not watcher.known_after(killed_at_s + _SLACK_S)
        assert watcher.keeps("a")
        await asyncio.to_thread(plane.restart, part)
        await watcher.make("b")
        await watcher.until(lambda: watcher.keeps("a", "b"))
        await watcher.drop("a")
        await watcher.until(lambda: watcher.keeps("b"))
        back_at_s = _CLOCK.now_s()
        await watcher.until(lambda: watcher.known_after(back_at_s))
        assert watcher.reflector.trouble == ""


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
async def test_what_hangs_under_it_is_not_taken_for_quiet(plane: ControlPlane, api: KubeApi, part: str) -> None:
    watcher = Watcher(plane, api)
    async with watcher.running():
        plane.pause(part)
        try:
            stopped_at_s = _CLOCK.now_s()
            await asyncio.sleep(3 * _WATCH_S)
            assert not watcher.known_after(stopped_at_s + _SLACK_S)
        finally:
            plane.resume(part)
        await watcher.make("a")
        await watcher.until(lambda: watcher.keeps("a"))
        back_at_s = _CLOCK.now_s()
        await watcher.until(lambda: watcher.known_after(back_at_s))


async def test_an_idle_kind_stays_current(plane: ControlPlane, api: KubeApi) -> None:
    watcher = Watcher(plane, api)
    async with watcher.running():
        for _ in range(3):
            now_s = _CLOCK.now_s()
            await watcher.until(lambda now_s=now_s: watcher.known_after(now_s))  # type: ignore[misc]
        assert watcher.reflector.lists == 1


async def test_a_version_that_was_compacted_away_is_listed_anew(plane: ControlPlane, api: KubeApi) -> None:
    """The API server forgets what its watch cache held when it is killed, and etcd forgets when it is told to."""
    watcher = Watcher(plane, api)
    await watcher.make("a")
    async with watcher.running():
        await watcher.until(lambda: watcher.keeps("a"))
        for name in ("b", "c"):
            await watcher.make(name)
        await watcher.drop("a")
        await watcher.until(lambda: watcher.keeps("b", "c"))
        watcher.reflector._version = "1"
        await compact(plane, int((await api.list(CONFIG_MAPS)).resource_version))
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await watcher.make("d")
        await watcher.until(lambda: watcher.keeps("b", "c", "d"))
        assert watcher.reflector.lists == 2


async def compact(plane: ControlPlane, revision: int) -> None:
    """Tell etcd to forget what was before."""
    url = f"http://{plane._site.at('etcd/client')}/v3/kv/compaction"
    async with aiohttp.ClientSession() as session, session.post(url, json={"revision": str(revision)}) as reply:
        assert reply.status == 200, await reply.text()
