"""A namespace of a real cluster for worker sets: our client, our watched lists, and objects that are there for a while.

Steps are repeated as a controller repeats them, by the cluster's events, not by time: `until` looks again whenever the
watched pods or claims have changed, and each second besides, since counts and marks tell nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from scaler.act.base import NotYet
from scaler.act.karpenter_claims import WatchedClaims
from scaler.act.worker_sets.base import WorkerPod, WorkerSet, WorkerSetView
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.api import open_api
from scaler.kube.contract import EVENTS, NAMESPACES, NODES, PODS, Json, KubeApi, NotFound, Resource
from scaler.kube.facts import PodFacts
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.runtime.clock import SystemClock
from tests.builders.kube import nodes
from tests.cluster.control_plane import ControlPlane

T = TypeVar("T")
_PATIENCE_S = 90.0


class Live:
    """See the module's docstring."""

    def __init__(self, plane: ControlPlane, name: str, node_pool: str) -> None:
        self.plane = plane
        self.name = name
        self.clock = SystemClock()
        self.kube: KubeApi = open_api(plane.kubeconfig, clock=self.clock)
        self.pods = WatchedPods(self.kube, self.clock, [name])
        self.nodes = WatchedNodes(self.kube, self.clock)
        self.claims = WatchedClaims(self.kube, node_pool, clock=self.clock)

    def settings(self, name: str, **more: Any) -> WorkerSetSettings:
        return WorkerSetSettings(kube=self.kube, pods=self.pods, namespace=self.name, name=name, **more)

    async def create(self, resource: Resource, body: Json) -> Json:
        return await self.kube.create(resource, body, namespace=self.name if resource.namespaced else None)

    async def spare_nodes(self, count: int, **options: Any) -> None:
        """Nodes of 8 GPUs that carry the label of=`name`."""
        for body in nodes(count, f"{self.name}-{options.pop('prefix', 'n')}", labels={"of": self.name}, **options):
            await self.kube.create(NODES, body)

    async def until(self, look: Callable[[], Awaitable[T | None]], within_s: float = _PATIENCE_S) -> T:
        """What `look` finds once it finds something."""
        async with asyncio.timeout(within_s):
            while True:
                if (found := await look()) is not None:
                    return found
                await self._news()

    async def _news(self) -> None:
        await asyncio.wait(
            [asyncio.ensure_future(self.pods.changed()), asyncio.ensure_future(asyncio.sleep(1))],
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def running(self, worker_set: WorkerSet, count: int) -> WorkerSetView:
        """The worker set once it has so many ready pods, and nothing comes or goes."""

        async def look() -> WorkerSetView | None:
            view = await worker_set.observe()
            quiet = len(view.pods) == count and not view.waiting
            return view if quiet and all(pod.ready and not pod.terminating for pod in view.pods) else None

        return await self.until(look)

    async def removed(self, worker_set: WorkerSet, key: str) -> None:
        """Repeat a removal until it is done."""

        async def look() -> bool | None:
            try:
                return True if await worker_set.remove(key) else None
            except NotYet:
                return None

        await self.until(look)

    async def live_pods(self, selector: str = "") -> list[PodFacts]:
        listed = await self.kube.list(PODS, namespace=self.name, label_selector=selector)
        uids = {body["metadata"]["uid"] for body in listed.items if "deletionTimestamp" not in body["metadata"]}
        return [pod for pod in self.pods.all() if pod.uid in uids]

    async def set_ready(self, pod: WorkerPod, ready: bool) -> None:
        """As the kubelet says it."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        patch = {"status": {"conditions": conditions}}
        await self.kube.patch(PODS, pod.name, patch, namespace=pod.namespace, subresource="status")


@asynccontextmanager
async def live(plane: ControlPlane, name: str, *, node_pool: str = "none") -> AsyncIterator[Live]:
    """A namespace `name`, watched; gone afterwards, with the nodes made for it."""
    world = Live(plane, name, node_pool)
    await world.kube.create(NAMESPACES, {"metadata": {"name": name}})
    tasks = [asyncio.ensure_future(each.run()) for each in (world.pods, world.nodes)]
    if "karpenter" in plane.parts:
        tasks.append(asyncio.ensure_future(world.claims.run()))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await world.pods.changed()
            await world.nodes.changed()
        yield world
    except AssertionError as wrong:
        wrong.add_note(await _told(world))
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _clear(world)


async def _told(world: Live) -> str:
    """What the cluster says of why its pods came and went."""
    events = (await world.kube.list(EVENTS, namespace=world.name)).items
    return "\n".join(f"{each['involvedObject'].get('name')}: {each['reason']}: {each['message']}" for each in events)


async def _clear(world: Live) -> None:
    await world.kube.delete(NAMESPACES, world.name)
    for node in (await world.kube.list(NODES, label_selector=f"of={world.name}")).items:
        try:
            await world.kube.delete(NODES, node["metadata"]["name"])
        except NotFound:
            continue
    await world.kube.close()
