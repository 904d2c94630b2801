"""What the benches on a test bed put there: nodes, pods, messages, groups and the fleet, as plain bodies; all carry `bench`."""

import json
from dataclasses import dataclass, field
from typing import Any

from scaler.commands.bench_workers import WorkerSettings
from scaler.kube.contract import ROLLOUT_FLEETS, Json
from scaler.kube.facts import FLEET_LABEL, POOL_LABEL
from scaler.model.job import JobSettings

NAMESPACE = "headrace-bench"
NAME = "bench"
BENCH_LABEL = "headrace.dev/bench"
TYPE = "p5.48xlarge"
IMAGE = "ami-0123456789abcdef0"
KWOK = "kwok.x-k8s.io/node"
TRAINERS = "bench-trainers"
SETTINGS = JobSettings(group_size=4, batch_groups=8, max_staleness=1000, max_concurrent=100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPool:
    """A pool, its group of the same name, and how many instances that has at first."""

    name: str
    nodes: int
    zone_letter: str = "a"
    market: str = "spot"
    usd_per_h: str = "10.00"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What a bench wants of its bed."""

    pools: tuple[BenchPool, ...]
    policy: Json
    """Of the stage; what it names, and how far it may go: `floor` to `ceiling`."""
    floor: int
    ceiling: int
    workers: WorkerSettings
    batches_per_s: float
    """What the trainer takes."""
    interval: str = "10s"
    pods: bool = False
    """Whether each node runs a worker pod beside the ledger's worker."""
    settled: bool = False
    """Whether the fleet has long had its nodes: they carry its label from the beginning."""
    trainers: BenchPool | None = None
    """Nodes that the fleet's guard looks after, a pod on each."""
    variables: Json = field(default_factory=dict)
    """Of the controller's environment, beside the bench's own."""

    @property
    def nodes(self) -> int:
        """Of all pools at first."""
        return sum(pool.nodes for pool in self.pools)

    @property
    def groups(self) -> tuple[BenchPool, ...]:
        """The pools, and the trainers' group."""
        return self.pools if self.trainers is None else (*self.pools, self.trainers)


def fleet_labels(pool: str) -> Json:
    """On a node that the fleet has long had."""
    return {FLEET_LABEL: f"{NAMESPACE}.{NAME}", POOL_LABEL: pool}


def node_of(instance_id: str, zone: str, market: str = "spot", labels: Json | None = None) -> Json:
    """The node of an instance, as EKS registers one; kwok takes it for its own."""
    room = {"cpu": "192", "memory": "2048Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(instance_id),
            "labels": {
                BENCH_LABEL: NAME,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": zone,
                "node.kubernetes.io/instance-type": TYPE,
                "eks.amazonaws.com/capacityType": market.replace("-", "_").upper(),
                **(labels or {}),
            },
            "annotations": {KWOK: "fake"},
        },
        "spec": {"providerID": f"aws:///{zone}/{instance_id}"},
        "status": {"capacity": room, "allocatable": room},
    }


def node_name(instance_id: str) -> str:
    """Of an instance's node."""
    return f"bench-{instance_id}"


def pod_name(instance_id: str) -> str:
    """Of the pod on an instance's node."""
    return f"{NAME}-{instance_id}"


def pod_of(instance_id: str, owner: Json) -> Json:
    """The worker pod on an instance's node, as the DaemonSet `owner` has it; it needs neither controllers nor a scheduler."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return _pod(instance_id, {"app": NAME}, {"ownerReferences": [reference]})


def trainer_pod_of(instance_id: str) -> Json:
    """A trainer's pod on an instance's node."""
    return _pod(instance_id, {"app": TRAINERS}, {"annotations": {"karpenter.sh/do-not-disrupt": "true"}})


def _pod(instance_id: str, labels: Json, more: Json) -> Json:
    metadata = {"name": pod_name(instance_id), "namespace": NAMESPACE, "labels": labels, **more}
    containers = [{"name": "main", "image": "none"}]
    spec = {"nodeName": node_name(instance_id), "containers": containers, "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def daemon_set() -> Json:
    """The worker set that the fleet names; it selects no node: pods, where there are any, are made by the bench."""
    labels = {"app": NAME}
    container = {"name": "worker", "image": "worker"}
    spec = {"nodeSelector": {BENCH_LABEL: "none"}, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def notice_of(instance_id: str, at: str) -> str:
    """The message of a Spot interruption, as EventBridge puts it into a queue."""
    return json.dumps(
        {
            "version": "0",
            "id": f"bench-{instance_id}",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "account": "123456789012",
            "time": at,
            "region": "us-east-1",
            "resources": [],
            "detail": {"instance-id": instance_id, "instance-action": "terminate"},
        }
    )


def template_of(pool: BenchPool) -> Json:
    """Data of a pool's launch template."""
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}} if pool.market == "spot" else {}
    return {"InstanceType": TYPE, "ImageId": IMAGE, **spot}


def settings_of(*, region: str, endpoint: str, queue_url: str, state_dir: str, port: int) -> dict[str, Any]:
    """The controller's."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "Controller",
        "metadata": {"name": NAME},
        "spec": {
            "namespaces": [NAMESPACE],
            "aws": {"region": region, "endpointUrl": endpoint},
            "notices": {"queue": {"url": queue_url}, "instanceStatus": False},
            "election": {"namespace": NAMESPACE, "name": NAME},
            "listen": f"127.0.0.1:{port}",
            "stateDir": state_dir,
        },
    }


def fleet_of(plan: BenchPlan, *, job: str, ledger_url: str, region: str) -> Json:
    """The RolloutFleet."""
    stage = {
        "name": "rollout",
        "policy": plan.policy,
        "guardRails": {"floor": plan.floor, "ceiling": plan.ceiling},
        "pools": [_pool(pool, region) for pool in plan.pools],
    }
    spec: Json = {
        "spendCapUsdPerH": "1000000.00",
        "interval": plan.interval,
        "dryRun": False,
        "job": {
            "name": job,
            "groupSize": SETTINGS.group_size,
            "batchGroups": SETTINGS.batch_groups,
            "maxStaleness": SETTINGS.max_staleness,
            "maxConcurrent": SETTINGS.max_concurrent,
        },
        "ledger": {"type": "valkey", "url": ledger_url},
        "stages": [stage],
    }
    if plan.trainers is not None:
        spec["trainers"] = [{"name": "trainer", "selector": {"matchLabels": {"app": TRAINERS}}}]
    return {
        "apiVersion": ROLLOUT_FLEETS.api_version,
        "kind": ROLLOUT_FLEETS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": spec,
    }


def _pool(pool: BenchPool, region: str) -> Json:
    return {
        "name": pool.name,
        "launchTimeout": "1h",
        "provider": {
            "type": "auto_scaling_group",
            "group": pool.name,
            "workerSet": {"type": "daemon_set", "name": NAME},
        },
        "offerings": [
            {
                "instanceType": TYPE,
                "zone": region + pool.zone_letter,
                "capacityType": pool.market,
                "priceUsdPerH": pool.usd_per_h,
            }
        ],
    }
