"""A cluster to run Headrace in whose nodes Karpenter supplies, its own consolidation on; see `base`.

Worker pods ask for all GPUs of a node each, and stay until their worker has left, as a kubelet has it. The controller is a
user of its own, so that the API server's audit log tells its requests from Karpenter's. What Karpenter launches has no
EC2 id here: a node's name is what its instance is called, by everybody alike.
"""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaler.act.karpenter_claims import WatchedClaims
from scaler.kube.contract import NODE_CLAIMS, NODE_POOLS
from scaler.runtime.clock import SystemClock
from tests.builders.kube import deployment, is_running, leader_worker_set, node_pool
from tests.cluster.control_plane import ControlPlane
from tests.cluster.paths import JsonObject
from tests.e2e.cluster.base import JOB, LIVES, NAMESPACE, WORKERS, ClusterBed, a_fleet_of, at_work, ground
from tests.e2e.cluster.kubelet import patient_kubelet

ROLLOUT, TRAINER = "rollout", "trainers"
USER = "headrace"
DISRUPTED = "karpenter.sh/disrupted"
WITH = ("controllers", "scheduler", "kwok", "karpenter")
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
TYPE, CHEAPER = "p5.48xlarge", "g6e.48xlarge"
_GROUP = "leaderworkerset.sigs.k8s.io/name"
_FINISH_S = 3.0
_QUICK: Mapping[str, Any] = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
"""Disruption budgets are left at their default, a tenth of the nodes at a time."""


@dataclass(kw_only=True)
class KarpenterBed(ClusterBed):
    """See the module's docstring."""

    claims: WatchedClaims
    worker_set: str
    nodes_per_replica: int
    offered: Sequence[Mapping[str, Any]]
    node_of: dict[str, str] = field(default_factory=dict)
    """Claim -> its node, of every claim there ever was."""
    disrupted_s: dict[str, float] = field(default_factory=dict)
    """Node with Karpenter's taint -> when that was seen first."""

    async def fleet(self, name: str = JOB, **changes: Any) -> None:
        """Make a fleet of one pool."""
        pool = {
            "name": "karpenter",
            "nodesPerReplica": self.nodes_per_replica,
            "launchTimeout": "120s",
            "provider": {
                "type": "karpenter",
                "nodePool": ROLLOUT,
                "workerSet": {"type": self.worker_set, "name": "rollout-worker"},
            },
            "offerings": list(self.offered),
        }
        await self.kube.create(a_fleet_of([pool], self.store.url, name, **changes))

    def start(self) -> None:
        """Start the controller as a user of its own."""
        self.start_controller(kubeconfig=self.plane.kubeconfig_for(USER, ["system:masters"]))

    def serving(self, without: Collection[str] = ()) -> int:
        """Replicas with a worker that lives, those on the nodes of `without` left out."""
        return sum(pod.uid in self.lives and pod.node_name not in without for pod in self.replicas())

    def working(self) -> set[str]:
        """Names of the nodes that replicas are on. Karpenter may make one too many, which it takes away again by itself."""
        return {pod.node_name for pod in self.replicas() if pod.node_name}

    def pairs(self) -> set[frozenset[str]]:
        """The nodes of each replica of several."""
        groups: dict[str, set[str]] = defaultdict(set)
        for pod in self.pods.all():
            if WORKERS.items() <= pod.labels.items() and not pod.deleting and pod.node_name:
                groups[pod.labels[_GROUP]].add(pod.node_name)
        return {frozenset(nodes) for nodes in groups.values()}

    def nodes_of(self, node_pool: str) -> set[str]:
        """Names of the nodes of a NodePool."""
        return {node.name for node in self.nodes.all() if node.labels.get("karpenter.sh/nodepool") == node_pool}

    async def take(self, nodes: Collection[str]) -> None:
        """Delete the claims of these nodes at once, as Karpenter's own interruption handler does."""

        def of_them() -> list[str]:
            return [claim.name for claim in self.claims.all() if claim.node_name in nodes]

        await self.until("each of these nodes is told by its claim", lambda: len(of_them()) == len(nodes))
        await self.kube.delete_all(NODE_CLAIMS.path(name) for name in of_them())

    async def allow_cheaper(self, bought: str) -> None:
        """Karpenter may launch `CHEAPER` too: what it has is dearer from now on than what it could have."""
        spec = {"template": {"spec": {"requirements": _requirements(bought, TYPE, CHEAPER)}}}
        await self.kube.patch(NODE_POOLS.path(ROLLOUT), {"spec": spec})

    def marked(self, nodes: Collection[str]) -> set[str]:
        """Those of these nodes whose worker has handed over because the ledger told it to."""
        lives = (life for life in self.lives.values() if life.node_name in nodes)
        return {life.node_name for life in lives if life.worker in self.workers.drained_at_s}

    async def watch_claims(self) -> None:
        """Remember which node each claim stood for."""
        while True:
            self.node_of |= {claim.name: claim.node_name for claim in self.claims.all() if claim.node_name}
            await self.claims.changed()

    async def watch_taints(self) -> None:
        """Remember which nodes Karpenter has disrupted."""
        while True:
            for node in self.nodes.all():
                if any(taint.key == DISRUPTED for taint in node.taints):
                    self.disrupted_s.setdefault(node.name, time.time())
            await self.nodes.changed()

    def claims_ended(self) -> set[str]:
        """Names of the claims that our controller deleted, as the API server's audit log has it."""
        events = self.plane.audited()
        return {event["objectRef"]["name"] for event in events if _is_ours(event, "delete", NODE_CLAIMS.plural)}


def _is_ours(event: JsonObject, verb: str, plural: str) -> bool:
    """Whether it is a request of our controller's that was granted."""
    granted = event["stage"] == "ResponseComplete" and event["responseStatus"]["code"] < 300
    what = event["user"]["username"], event["verb"], event.get("objectRef", {}).get("resource")
    return granted and what == (USER, verb, plural)


@asynccontextmanager
async def a_karpenter_bed(
    folder: Path, *, nodes_per_replica: int = 1, bought: str = "spot", types: Sequence[str] = (TYPE,)
) -> AsyncIterator[KarpenterBed]:
    """Everything but the controller, ready; nothing is left afterwards.

    `types`: what the fleet offers. Karpenter may launch the first of them, in any zone.
    """
    grouped = nodes_per_replica > 1
    plane = ControlPlane((*WITH, "lws") if grouped else WITH, audit=True, flags={"kwok": patient_kubelet(folder)})
    async with ground(plane, folder) as made:
        bed = KarpenterBed(
            **made.parts(),
            keeps=True,
            finish_s=_FINISH_S,
            claims=WatchedClaims(made.api, ROLLOUT, clock=SystemClock()),
            worker_set="leader_worker_set" if grouped else "deployment",
            nodes_per_replica=nodes_per_replica,
            offered=[_offering(name, zone, bought) for name in types for zone in ZONES],
        )
        await bed.kube.create_all(_node_pool(ROLLOUT, bought))
        await bed.kube.create(_workers(nodes_per_replica))
        async with at_work(bed, bed.claims.run(), bed.watch_taints(), bed.watch_claims()):
            yield bed


def _offering(instance_type: str, zone: str, bought: str) -> dict[str, str]:
    """As the fleet has it; dearer by zone, as Karpenter's list is."""
    price = (55.0 if instance_type == TYPE else 30.0) * (0.4 if bought == "spot" else 1.0) + ZONES.index(zone)
    return {"instanceType": instance_type, "zone": zone, "capacityType": bought, "priceUsdPerH": f"{price:.2f}"}


def _node_pool(name: str, bought: str, *types: str) -> list[JsonObject]:
    made = node_pool(name, disruption=dict(_QUICK))
    made[1]["spec"]["template"]["spec"]["requirements"] = _requirements(bought, *types)
    return made


def _requirements(bought: str, *types: str) -> list[JsonObject]:
    wanted = {"karpenter.sh/capacity-type": (bought,), "node.kubernetes.io/instance-type": types or (TYPE,)}
    return [{"key": key, "operator": "In", "values": list(values)} for key, values in wanted.items()]


def _workers(nodes_per_replica: int) -> JsonObject:
    selector = {"karpenter.sh/nodepool": ROLLOUT}
    if nodes_per_replica == 1:
        made = deployment("rollout-worker", 0, within=NAMESPACE, gpus=8, nodeSelector=selector)
        made["spec"]["template"]["metadata"]["finalizers"] = [LIVES]
        return made
    made = leader_worker_set("rollout-worker", 0, nodes_per_replica, within=NAMESPACE, gpus=8, nodeSelector=selector)
    made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["finalizers"] = [LIVES]
    return made


async def add_trainers(bed: KarpenterBed, count: int, labels: Mapping[str, str]) -> None:
    """So many on-demand nodes of a NodePool of their own, each with a trainer's pod that Karpenter may not disrupt."""
    await bed.kube.create_all(_node_pool(TRAINER, "on-demand"))
    made = deployment("trainer", count, within=NAMESPACE, gpus=8, nodeSelector={"karpenter.sh/nodepool": TRAINER})
    made["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    await bed.kube.create(made)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={'%2C'.join(f'{k}%3D{v}' for k, v in labels.items())}"
    await bed.kube.until(path, lambda pods: sum(map(is_running, pods)) == count)
    path = f"/api/v1/nodes?labelSelector=karpenter.sh%2Fnodepool%3D{TRAINER}%2Ckarpenter.sh%2Finitialized%3Dtrue"
    await bed.kube.until(path, lambda nodes: len(nodes) >= count)
