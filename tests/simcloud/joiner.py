"""Instances become nodes: what kubelet, the cloud controller and EKS do, for a SimCloud and any API server.

Policy: level-based. Each round compares instances with the nodes whose `providerID` names them. One that has run for its
boot delay gets a node with the labels EKS sets and the allocatable GPUs of its type; one that is gone loses it, at the
latest a round later; one that EKS drains is cordoned and its pods are evicted, daemons apart, with budgets honoured.
Labels and taints of a group come from its tags, `k8s.io/cluster-autoscaler/node-template/label/<key>` and `.../taint/<key>`,
as Cluster Autoscaler reads them. Errors of the API server end nothing: the next round comes.
"""

import asyncio
import random
from collections.abc import Awaitable, Iterable

from scaler.kube.contract import NODES, PODS, Json, KubeApi, KubeError
from scaler.model.clock import Clock
from tests.builders.kube import node
from tests.simcloud import instances as ec2
from tests.simcloud.catalogue import instance_types
from tests.simcloud.instances import Instance
from tests.simcloud.settings import Range
from tests.simcloud.sim import SimCloud

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"


class Joiner:
    """See the module's docstring."""

    def __init__(
        self, sim: SimCloud, api: KubeApi, clock: Clock, *, boot_delay_s: Range = (0.0, 0.0), every_s: float = 0.1
    ) -> None:
        self._sim = sim
        self._api = api
        self._clock = clock
        self._boot_delay_s = boot_delay_s
        self._every_s = every_s
        self._boots_at_s: dict[str, float] = {}
        self._rng = random.Random(len(sim.settings.region))
        self.refused = 0
        """Calls to the API server that failed, and will be made again."""

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while True:
            await self.round()
            await self._clock.sleep(self._every_s)

    async def round(self) -> None:
        """Make nodes what they are to be now."""
        try:
            nodes = {_instance_id(one): one for one in (await self._api.list(NODES)).items}
        except KubeError:
            self.refused += 1
            return
        running = {one.instance_id: one for one in self._booted()}
        known = self._known()
        await self._all(
            [self._api.create(NODES, node_of(one)) for i, one in running.items() if i not in nodes]
            + [self._delete(one) for i, one in nodes.items() if i in known and known[i].state == ec2.TERMINATED]
            + [self._drain(nodes[i], one) for i, one in running.items() if i in nodes and one.eks_draining]
        )

    def _known(self) -> dict[str, Instance]:
        with self._sim.kernel.lock:
            self._sim.advance()
            return dict(self._sim.instances.by_id)

    def _booted(self) -> Iterable[Instance]:
        now_s = self._clock.monotonic_s()
        for one in self._sim.running():
            if one.state == ec2.RUNNING:
                delay_s = self._rng.uniform(*self._boot_delay_s)
                if self._boots_at_s.setdefault(one.instance_id, now_s + delay_s) <= now_s:
                    yield one

    async def _all(self, calls: list[Awaitable[object]]) -> None:
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, KubeError):
                self.refused += 1
            elif isinstance(result, BaseException):
                raise result

    async def _delete(self, found: Json) -> None:
        await self._api.delete(NODES, found["metadata"]["name"], uid=found["metadata"]["uid"])

    async def _drain(self, found: Json, _: Instance) -> None:
        name = found["metadata"]["name"]
        if not found.get("spec", {}).get("unschedulable"):
            await self._api.patch(NODES, name, {"spec": {"unschedulable": True}})
        pods = (await self._api.list(PODS, field_selector=f"spec.nodeName={name}")).items
        await self._all([self._evict(pod) for pod in pods if not _stays(pod)])

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


def _stays(pod: Json) -> bool:
    meta = pod["metadata"]
    owned = any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences", []))
    return owned or "deletionTimestamp" in meta or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
