"""Fleets that together use every kind of pool and worker set, on the bed of the end-to-end tests."""

from typing import Any

from scaler.kube.contract import ROLLOUT_FLEETS
from tests.builders.kube import deployment, is_running, leader_worker_set, node_pool, ray_cluster
from tests.e2e.cluster.base import NAMESPACE
from tests.e2e.cluster.bed import Bed, a_fleet, node_tags
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.helpers import make_group

TRAINER_LABELS = {"app": "trainer"}
MIXED = "mixed"
ZONE = "us-east-1a"
_KARPENTER_ZONE = "us-west-2a"


async def add_trainer(bed: Bed) -> None:
    """One on-demand node in a group that protects nothing, and a trainer's pod that nothing protects."""
    make_group(
        bed.sim,
        "trainers",
        desired=1,
        zones=(ZONE,),
        market="on-demand",
        protected=False,
        **node_tags("role", "trainer"),
    )
    await bed.kube.create(deployment("trainer", 1, within=NAMESPACE, gpus=8, nodeSelector={"role": "trainer"}))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dtrainer"
    await bed.kube.until(path, lambda pods: any(map(is_running, pods)))


async def add_bystanders(bed: Bed) -> None:
    """Somebody's pods on rollout nodes, two on each: they are evicted from nodes that go."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "bystander"}},
    }
    await bed.kube.create(
        deployment(
            "bystander", 12, within=NAMESPACE, nodeSelector={"role": "rollout"}, topologySpreadConstraints=[spread]
        )
    )


def guarded() -> list[dict[str, Any]]:
    """The trainer, with every repair allowed."""
    repairs = ["annotations", "disruption_budget", "scale_in_protection"]
    return [{"name": "trainer", "selector": {"matchLabels": TRAINER_LABELS}, "repair": repairs}]


async def add_mixed(bed: Bed) -> None:
    """What the pools of `mixed` stand on: one of each kind."""
    make_group(bed.sim, "counted", zones=(ZONE,), high=10, **node_tags("role", "counted"))
    await bed.kube.create(deployment("w-group", 0, within=NAMESPACE, gpus=8, nodeSelector={"role": "counted"}))
    bed.sim.call(
        "eks",
        "CreateNodegroup",
        clusterName="bed",
        nodegroupName="managed",
        subnets=[subnet_of(ZONE)],
        scalingConfig={"minSize": 0, "maxSize": 5, "desiredSize": 0},
        capacityType="SPOT",
        instanceTypes=["p5.48xlarge"],
    )
    managed = {"eks.amazonaws.com/nodegroup": "managed"}
    await bed.kube.create(deployment("w-managed", 0, within=NAMESPACE, gpus=8, nodeSelector=managed))
    for name in ("w-dep", "w-lws", "w-ray"):
        where = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [_KARPENTER_ZONE]}
        await bed.kube.create_all(node_pool(name, requirements=[where]))
    await bed.kube.create(deployment("w-dep", 0, within=NAMESPACE, gpus=8, nodeSelector=_on("w-dep")))
    await bed.kube.create(leader_worker_set("w-lws", 0, 2, within=NAMESPACE, gpus=8, nodeSelector=_on("w-lws")))
    await bed.kube.create(ray_cluster("w-ray", 0, within=NAMESPACE, gpus=8, nodeSelector=_on("w-ray")))


def mixed(store_url: str) -> dict[str, Any]:
    """A replica in each kind of pool; none ever has a worker, so that each is launched, given up and launched again."""
    made = a_fleet(store_url, MIXED, guardRails={"floor": 5, "ceiling": 5})
    stage = made["spec"]["stages"][0]
    stage["policy"] = {"type": "static", "replicas": 5}
    group = {"type": "auto_scaling_group", "group": "counted", "workerSet": {"type": "deployment", "name": "w-group"}}
    managed = {
        "type": "eks_node_group",
        "cluster": "bed",
        "nodeGroup": "managed",
        "workerSet": {"type": "deployment", "name": "w-managed"},
    }
    stage["pools"] = [
        _pool("w-managed", managed, "p5.48xlarge", ZONE),
        _pool("w-group", group, "p5.48xlarge", ZONE),
        _pool("w-dep", _karpenter("w-dep", type="deployment"), "g6e.48xlarge", _KARPENTER_ZONE),
        _pool("w-lws", _karpenter("w-lws", type="leader_worker_set"), "g6e.48xlarge", _KARPENTER_ZONE, nodes=2),
        _pool("w-ray", _karpenter("w-ray", type="ray_cluster", group="rollout"), "g6e.48xlarge", _KARPENTER_ZONE),
    ]
    return made


def _pool(name: str, provider: dict[str, Any], instance_type: str, zone: str, *, nodes: int = 1) -> dict[str, Any]:
    offering = {"instanceType": instance_type, "zone": zone, "capacityType": "spot", "priceUsdPerH": "10.00"}
    return {
        "name": name,
        "maxReplicas": 1,
        "nodesPerReplica": nodes,
        "launchTimeout": "20s",
        "provider": provider,
        "offerings": [offering],
    }


def _karpenter(name: str, **worker_set: str) -> dict[str, Any]:
    return {"type": "karpenter", "nodePool": name, "workerSet": {"name": name, **worker_set}}


def _on(pool: str) -> dict[str, str]:
    return {"karpenter.sh/nodepool": pool}


async def pause(bed: Bed, name: str) -> None:
    """Pause a fleet, and wait until its controller has taken that up."""
    await bed.api.patch(ROLLOUT_FLEETS, name, {"spec": {"paused": True}}, namespace=NAMESPACE)
    path = f"/apis/headrace.dev/v1alpha1/namespaces/{NAMESPACE}/rolloutfleets?fieldSelector=metadata.name%3D{name}"
    await bed.kube.until(path, lambda found: all((each.get("status") or {}).get("paused") for each in found))
