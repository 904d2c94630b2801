"""A cluster to run Headrace in, its rollout nodes those of an EKS managed node group on Spot, with one Deployment; see `base`.

EKS acts by itself: SimCloud's node group replaces what EC2 recommends to rebalance or takes back, and drains what goes, with the
hands of `Joiner`. Worker pods stay until their worker has left, as a kubelet has it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaler.runtime.clock import SystemClock
from tests.builders.kube import deployment
from tests.cluster.control_plane import ControlPlane
from tests.e2e.cluster.base import CALLER, JOB, LIVES, NAMESPACE, a_fleet_of, at_work, ground
from tests.e2e.cluster.bed import Bed, hear, quick_cloud
from tests.e2e.cluster.kubelet import patient_kubelet
from tests.simcloud.asked import Json
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.eks import NodeGroup
from tests.simcloud.joiner import Joiner
from tests.simcloud.journal import Call
from tests.simcloud.server import serve
from tests.simcloud.sim import SimCloud

CLUSTER, GROUP = "ml", "rollout"
ZONE, TYPE = "us-east-1a", "p5.48xlarge"
WITH = ("controllers", "scheduler", "kwok")
_FINISH_S = 1.0
_READING = ("Describe", "List", "Get", "Receive")


@dataclass(kw_only=True)
class ManagedBed(Bed):
    """See the module's docstring."""

    tainted_ever: set[str] = field(default_factory=set)
    """Instances whose nodes have ever carried our taint."""

    @property
    def node_group(self) -> NodeGroup:
        """As EKS keeps it."""
        return self.sim.eks.by_name[CLUSTER, GROUP]

    @property
    def behind(self) -> str:
        """Its Auto Scaling group."""
        return self.node_group.group.name

    def eks(self, operation: str, **more: Any) -> Json:
        """A call about the node group by somebody else."""
        made: Json = self.sim.call(
            "eks", operation, caller="OPERATOR", clusterName=CLUSTER, nodegroupName=GROUP, **more
        )
        return made

    def launched(self) -> list[str]:
        """Ids of all instances of the group that run now, those that it ends left out."""
        with self.sim.kernel.lock:
            self.sim.advance()
            return [one for one, member in self.node_group.group.members.items() if member.counted]

    def ever(self) -> set[str]:
        """Ids of all instances that the node group ever had."""
        tag = "eks:nodegroup-name"
        return {one.instance_id for one in self.sim.instances.by_id.values() if one.tags.get(tag) == GROUP}

    def has_left(self, instance_id: str, by_s: float) -> bool:
        """Whether its workers had said goodbye by then, told by the ledger or by SIGTERM: EKS evicts as well as we drain."""
        lives = [life for life in self.lives.values() if life.instance_id == instance_id]
        return all((life.left_s or float("inf")) <= by_s or self.handed_over(instance_id, by_s) for life in lives)

    def written(self) -> list[Call]:
        """What the controller had AWS change, done or refused."""
        calls = list(self.sim.log.calls)
        return [call for call in calls if call.caller == CALLER and not call.operation.startswith(_READING)]

    async def fleet(self, name: str = JOB, **changes: Any) -> None:
        """Make a fleet of one pool."""
        pool = {
            "name": "managed",
            "launchTimeout": "120s",
            "refusalBackoffInitial": "1s",
            "refusalBackoffMax": "2s",
            "provider": {
                "type": "eks_node_group",
                "cluster": CLUSTER,
                "nodeGroup": GROUP,
                "acceptAutoscalerTags": True,
                "workerSet": {"type": "deployment", "name": "rollout-worker"},
            },
            "offerings": [{"instanceType": TYPE, "zone": ZONE, "capacityType": "spot", "priceUsdPerH": "10.00"}],
        }
        await self.kube.create(a_fleet_of([pool], self.store.url, name, **changes))

    async def watch_taints(self) -> None:
        """Remember whose node was tainted."""
        while True:
            self.tainted_ever |= self.tainted()
            await self.nodes.changed()


@asynccontextmanager
async def a_managed_bed(folder: Path, *, most: int) -> AsyncIterator[ManagedBed]:
    """Everything but the controller, ready; nothing is left afterwards. `most`: the node group's `maxSize`."""
    clock = SystemClock()
    sim = SimCloud(clock, 0, quick_cloud())
    plane = ControlPlane(WITH, flags={"kwok": patient_kubelet(folder)})
    async with ground(plane, folder) as made:
        with serve(sim) as server:
            bed = ManagedBed(**made.parts(), keeps=True, finish_s=_FINISH_S, sim=sim, endpoint=server.address)
            await bed.kube.create(_workers())
            sizes = {"minSize": 0, "maxSize": most, "desiredSize": 0}
            bed.eks(
                "CreateNodegroup",
                capacityType="SPOT",
                instanceTypes=[TYPE],
                subnets=[subnet_of(ZONE)],
                scalingConfig=sizes,
            )
            await hear(bed)
            async with at_work(bed, bed.watch_taints(), Joiner(sim, bed.api, clock).run()):
                yield bed


def _workers() -> dict[str, Any]:
    selector = {"eks.amazonaws.com/nodegroup": GROUP}
    made = deployment("rollout-worker", 0, within=NAMESPACE, gpus=8, nodeSelector=selector)
    made["spec"]["template"]["metadata"]["finalizers"] = [LIVES]
    return made
