"""Karpenter in memory: claims and nodes for pods that find none, and an actor of its NodePool over a Deployment."""

from typing import Any

from scaler.act.karpenter import KarpenterPool, KarpenterSettings, make
from scaler.act.karpenter_claims import ClaimFacts, Refusals, Row, claim_facts
from scaler.act.worker_sets.base import WorkerSet
from scaler.act.worker_sets.registry import make_worker_set
from scaler.kube.contract import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PODS,
    Json,
)
from scaler.model.capacity import CapacityType, Offering
from scaler.model.plan import LaunchReplica, Reason, ReasonCode, TerminateReplica
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.kube_objects import dig
from tests.builders.workloads import NAMESPACE, Workloads, deployment, leader_worker_set, uid_of

POOL = "gpu"
SPOT = Offering(instance_type="p5.48xlarge", zone="us-west-2a", capacity_type=CapacityType.SPOT, price_usd_per_h=20.0)
ON_DEMAND = Offering(
    instance_type="p5.48xlarge", zone="us-west-2b", capacity_type=CapacityType.ON_DEMAND, price_usd_per_h=50.0
)
WHY = Reason(code=ReasonCode.STEADY, message="a test says so")


class StoreClaims:
    """A `ClaimIndex` that is always current."""

    def __init__(self, kube: FakeKube, clock: FakeClock) -> None:
        self._kube = kube
        self._clock = clock
        self.heard = 0
        self.memory = Refusals(clock, self._hear)
        self.listed = True

    @property
    def current_at_s(self) -> float | None:
        return self._clock.now_s() if self.listed else None

    def all(self) -> tuple[ClaimFacts, ...]:
        return tuple(filter(None, map(claim_facts, self._kube.store.every(NODE_CLAIMS, None))))

    def row(self, offering: Offering) -> Row | None:
        return self.memory.row(offering)

    def _hear(self) -> None:
        self.heard += 1


class KarpenterWorld(Workloads):
    """A NodePool, a worker set on it, and Karpenter, which has `capacity` nodes left (None: any number)."""

    def __init__(self, replicas: int = 0, *, size: int = 1, offerings: tuple[Offering, ...] = (SPOT,)) -> None:
        super().__init__()
        self.capacity: int | None = None
        self.claims = StoreClaims(self.kube, self.clock)
        self.offerings = offerings
        self.kube.place(NODE_POOLS, {"metadata": {"name": POOL}, "spec": {}})
        if size == 1:
            self.kube.place(DEPLOYMENTS, deployment("w", replicas), namespace=NAMESPACE)
            self.worker_set = make_worker_set("deployment", self.settings("w"), clock=self.clock)
        else:
            self.kube.place(LEADER_WORKER_SETS, leader_worker_set("w", size=size), namespace=NAMESPACE)
            self.worker_set = self._groups(size)
        self.actor = self.restarted()
        self.settle()

    def _groups(self, size: int) -> WorkerSet:
        return make_worker_set("leader_worker_set", self.settings("w", nodes_per_replica=size), clock=self.clock)

    def restarted(self, **more: Any) -> KarpenterPool:
        """Another controller's actor."""
        settings = KarpenterSettings(
            kube=self.kube,
            nodes=self.nodes,
            claims=self.claims,
            worker_set=self.worker_set,
            node_pool=POOL,
            fleet="rl.f",
            offerings=self.offerings,
            **more,
        )
        return make(settings, pool="pool", clock=self.clock)

    def settle(self) -> None:
        """Controllers, Karpenter and kubelet until all is quiet; what goes is gone."""
        for _ in range(4):
            self.reconcile()
            self.provision()
            self.kube.end_pods()

    def provision(self) -> None:
        """A claim with its node for every pod that waits, as far as there is capacity; the pod runs there."""
        for pod in self.live():
            if dig(pod, "spec.nodeName"):
                continue
            if self.capacity == 0:
                self.set_pod(uid_of(pod), phase="Pending", unschedulable=True)
                continue
            if self.capacity is not None:
                self.capacity -= 1
            name = f"n-{uid_of(pod)[:8]}"
            self.place_node(name)
            self.claim(name, node=name)
            self.set_pod(uid_of(pod), phase="Running", ready=True, node=name)

    def claim(self, name: str, *, node: str = "", launched: str = "True", reason: str = "", **more: Any) -> Json:
        """A NodeClaim of the pool."""
        condition = {"type": "Launched", "status": launched, "reason": reason, "message": more.get("message", "")}
        requirements = more.get("requirements", [_in("karpenter.sh/capacity-type", "spot")])
        body = {
            "metadata": {
                "name": name,
                "labels": {"karpenter.sh/nodepool": POOL, **more.get("labels", {})},
                "finalizers": ["karpenter.sh/termination"],
            },
            "spec": {"requirements": requirements},
            "status": {"nodeName": node, "providerID": f"aws:///z/i-{name}" if node else "", "conditions": [condition]},
        }
        return self.kube.place(NODE_CLAIMS, body)

    def deleting_claims(self) -> set[str]:
        """Names of claims that were deleted; Karpenter's finalizer holds them."""
        every = self.kube.store.every(NODE_CLAIMS, None)
        return {claim["metadata"]["name"] for claim in every if "deletionTimestamp" in claim["metadata"]}

    def other_pod(self, node: str, *, daemon: bool = False) -> Json:
        """Somebody else's pod on a node."""
        owner = {"kind": "DaemonSet" if daemon else "Job", "name": "x", "uid": "x", "controller": True}
        meta = {"generateName": "other-", "namespace": "kube-system", "ownerReferences": [owner]}
        body = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
        return self.kube.place(PODS, body, namespace="kube-system")

    def lose_node(self, name: str) -> None:
        """A node and its claim are gone, and the pods on it."""
        for pod in self.all_pods():
            if dig(pod, "spec.nodeName") == name:
                self.lose_pod(uid_of(pod))
        self.kube.store.remove(NODES, None, name, None, None)


def _in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def launch(token: str, offering: Offering = SPOT) -> LaunchReplica:
    return LaunchReplica(token=token, stage="rollout", pool="pool", offering_id=offering.offering_id, reason=WHY)


def terminate(replica_id: str, *instance_ids: str) -> TerminateReplica:
    return TerminateReplica(stage="rollout", pool="pool", replica_id=replica_id, instance_ids=instance_ids, reason=WHY)
