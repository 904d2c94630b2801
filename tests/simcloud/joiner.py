"""Instances become nodes: what kubelet, the cloud controller and EKS do, for a SimCloud and any API server.

Policy: level-based. Each round compares instances with the nodes whose `providerID` names them, listed at the start and
again from time to time. One that has run for its boot delay gets a node with the labels EKS sets and the allocatable GPUs
of its type; one that is gone loses it, at the latest a round later; one that EKS drains is cordoned and its pods are
evicted, daemons apart, with budgets honoured, and EKS hears when none is left.
Labels and taints of a group come from its tags, `k8s.io/cluster-autoscaler/node-template/label/<key>` and `.../taint/<key>`,
as Cluster Autoscaler reads them. Errors of the API server end nothing: the next round comes.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Sequence

from scaler.kube.contract import NODES, PODS, Conflict, Json, KubeApi, KubeError, NotFound
from scaler.model.clock import Clock
from tests.builders.kube import node
from tests.simcloud import instances as ec2
from tests.simcloud.catalogue import instance_types
from tests.simcloud.instances import Instance
from tests.simcloud.settings import Range
from tests.simcloud.sim import SimCloud

_EVICT_EVERY_S = 5.0
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"


class Joiner:
    """See the module's docstring."""

    def __init__(
        self,
        sim: SimCloud,
        api: KubeApi,
        clock: Clock,
        *,
        boot_delay_s: Range = (0.0, 0.0),
        every_s: float = 0.1,
        relist_every_s: float = 60.0,
    ) -> None:
        self._sim = sim
        self._api = api
        self._clock = clock
        self._boot_delay_s = boot_delay_s
        self._every_s = every_s
        self._relist_every_s = relist_every_s
        self._listed_at_s = float("-inf")
        self._nodes: dict[str, Json] = {}
        """By instance id, as listed or made."""
        self._boots_at_s: dict[str, float] = {}
        self._evicts_at_s: dict[str, float] = {}
        self._rng = random.Random(len(sim.settings.region))
        self.refused = 0
        """Calls to the API server that failed, and will be made again."""

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while True:
            await self.round()
            await self._clock.sleep(self._every_s)

    async def round(self) -> None:
        """Make nodes what they are to be now; asks nothing of the API server where nothing is to be done."""
        if self._clock.monotonic_s() - self._listed_at_s >= self._relist_every_s and not await self._relist():
            return
        known, running = self._known(), self._booted()
        calls: list[Awaitable[None]] = [self._join(one) for i, one in running.items() if i not in self._nodes]
        calls += [self._leave(i) for i in self._nodes if i in known and known[i].state == ec2.TERMINATED]
        calls += [self._drain(i) for i, one in running.items() if i in self._nodes and one.eks_draining]
        await self._all(calls)

    async def _relist(self) -> bool:
        try:
            found = (await self._api.list(NODES)).items
        except KubeError:
            self.refused += 1
            return False
        self._nodes = {_instance_id(one): one for one in found}
        self._listed_at_s = self._clock.monotonic_s()
        return True

    def _known(self) -> dict[str, Instance]:
        with self._sim.kernel.lock:
            self._sim.advance()
            return dict(self._sim.instances.by_id)

    def _booted(self) -> dict[str, Instance]:
        now_s = self._clock.monotonic_s()
        running = {one.instance_id: one for one in self._sim.running() if one.state == ec2.RUNNING}
        for instance_id in running.keys() - self._boots_at_s.keys():
            self._boots_at_s[instance_id] = now_s + self._rng.uniform(*self._boot_delay_s)
        return {i: one for i, one in running.items() if self._boots_at_s[i] <= now_s}

    async def _all(self, calls: Sequence[Awaitable[None]]) -> None:
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, KubeError):
                self.refused += 1
            elif isinstance(result, BaseException):
                raise result

    async def _join(self, one: Instance) -> None:
        try:
            self._nodes[one.instance_id] = await self._api.create(NODES, node_of(one))
        except Conflict:
            self._listed_at_s = float("-inf")

    async def _leave(self, instance_id: str) -> None:
        meta = self._nodes[instance_id]["metadata"]
        with contextlib.suppress(NotFound):
            await self._api.delete(NODES, meta["name"], uid=meta["uid"])
        self._nodes.pop(instance_id, None)

    async def _drain(self, instance_id: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._evicts_at_s.get(instance_id, now_s):
            return
        self._evicts_at_s[instance_id] = now_s + _EVICT_EVERY_S
        found = self._nodes[instance_id]
        name = found["metadata"]["name"]
        if not found["spec"].get("unschedulable"):
            found["spec"] = (await self._api.patch(NODES, name, {"spec": {"unschedulable": True}}))["spec"]
        pods = (await self._api.list(PODS, field_selector=f"spec.nodeName={name}")).items
        waited_for = [pod for pod in pods if not _ignored(pod)]
        if not waited_for:
            self._sim.eks.emptied(instance_id)
        await self._all([self._evict(pod) for pod in waited_for if "deletionTimestamp" not in pod["metadata"]])

    async def _evict(self, pod: Json) -> None:
        meta = pod["metadata"]
        await self._api.evict(meta["name"], namespace=meta["namespace"], pod_uid=meta["uid"])


def node_of(one: Instance) -> Json:
    """The node that an instance registers."""
    labels = {key.removeprefix(f"{_TEMPLATE}label/"): value for key, value in one.tags.items() if "/label/" in key}
    if "eks:nodegroup-name" in one.tags:
        labels["eks.amazonaws.com/nodegroup"] = one.tags["eks:nodegroup-name"]
    made: Json = node(
        name_of(one),
        instance_id=one.instance_id,
        zone=one.zone,
        instance_type=one.spec.instance_type,
        capacity_type=one.spec.market,
        gpus=_gpus(one.spec.instance_type),
        labels=labels,
        annotations={"kwok.x-k8s.io/node": "fake"},
        taints=[_taint(key, value) for key, value in one.tags.items() if key.startswith(f"{_TEMPLATE}taint/")],
    )
    return made


def name_of(one: Instance) -> str:
    """A node's name, by its address."""
    return f"ip-{one.private_ip.replace('.', '-')}.{one.zone[:-1]}.compute.internal"


def _gpus(instance_type: str) -> int:
    gpus = instance_types().get(instance_type, {}).get("GpuInfo", {}).get("Gpus", [])
    return sum(int(one["Count"]) for one in gpus)


def _taint(tag: str, value: str) -> Json:
    wanted, _, effect = value.rpartition(":")
    return {"key": tag.removeprefix(f"{_TEMPLATE}taint/"), "value": wanted, "effect": effect}


def _instance_id(found: Json) -> str:
    return str(found.get("spec", {}).get("providerID", "")).rsplit("/", 1)[-1]


def _ignored(pod: Json) -> bool:
    """A daemon's, or over: neither evicted nor waited for."""
    owned = any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))
    return owned or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
