"""Workloads on the test bed come to what they would be in a real cluster."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from tests.builders.kube import (
    Kube,
    daemon_set,
    deployment,
    is_ready,
    is_running,
    leader_worker_set,
    namespace,
    node_pool,
    nodes,
    ray_cluster,
)
from tests.cluster.control_plane import ControlPlane
from tests.cluster.paths import JsonObject

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims?labelSelector=karpenter.sh/nodepool=pending"


@asynccontextmanager
async def world(plane: ControlPlane, name: str, spare_nodes: int = 0) -> AsyncIterator[Kube]:
    """A namespace `name`, with so many nodes of 8 GPUs that carry the label of=`name`; gone afterwards."""
    async with Kube.of(plane) as kube:
        await kube.create(namespace(name))
        await kube.create_all(nodes(spare_nodes, name, labels={"of": name}))
        try:
            yield kube
        finally:
            await kube.delete(f"/api/v1/namespaces/{name}")
            await kube.delete(f"/api/v1/nodes?labelSelector=of={name}")


def pods_of(name: str) -> str:
    return f"/api/v1/namespaces/{name}/pods"


def run(count: int) -> Callable[[list[JsonObject]], bool]:
    """So many pods, and all of them run."""
    return lambda pods: len(pods) == count and all(map(is_running, pods))


def names(objects: Iterable[JsonObject]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


async def test_pods_of_a_deployment_run_on_the_nodes_that_have_room(cluster: ControlPlane) -> None:
    async with world(cluster, "deployed", spare_nodes=3) as kube:
        await kube.create(deployment("w", 3, within="deployed", gpus=8, nodeSelector={"of": "deployed"}))
        pods = await kube.until(pods_of("deployed"), run(3))
        assert {each["spec"]["nodeName"] for each in pods} == {"deployed-0", "deployed-1", "deployed-2"}
        assert all(map(is_ready, await kube.items("/api/v1/nodes?labelSelector=of=deployed")))


async def test_a_daemon_set_runs_on_every_node_it_selects(cluster: ControlPlane) -> None:
    async with world(cluster, "everywhere", spare_nodes=4) as kube:
        await kube.create(daemon_set("w", within="everywhere", nodeSelector={"of": "everywhere"}))
        await kube.until(pods_of("everywhere"), run(4))


async def test_a_ray_cluster_gets_ready_and_gives_up_the_worker_that_is_named(karpenter_cluster: ControlPlane) -> None:
    async with world(karpenter_cluster, "ray", spare_nodes=3) as kube:
        here = "/apis/ray.io/v1/namespaces/ray/rayclusters"
        await kube.create(ray_cluster("r", 3, within="ray", gpus=8, nodeSelector={"of": "ray"}))
        await kube.until(here, lambda found: any(each.get("status", {}).get("state") == "ready" for each in found))
        workers = await kube.items(f"{pods_of('ray')}?labelSelector=ray.io/node-type=worker")
        victim, *others = sorted(names(workers))
        await kube.patch(f"{here}/r", fewer_workers(await kube.get(f"{here}/r"), victim))
        left = await kube.until(f"{pods_of('ray')}?labelSelector=ray.io/node-type=worker", run(2))
        assert names(left) == set(others)


def fewer_workers(ray: JsonObject, victim: str) -> JsonObject:
    """The change that removes one worker of the only group, by name."""
    group = ray["spec"]["workerGroupSpecs"][0]
    changed = {**group, "replicas": group["replicas"] - 1, "scaleStrategy": {"workersToDelete": [victim]}}
    return {"spec": {"workerGroupSpecs": [changed]}}


async def test_a_leader_worker_set_has_its_groups_and_each_pod_knows_its_place(karpenter_cluster: ControlPlane) -> None:
    async with world(karpenter_cluster, "groups", spare_nodes=4) as kube:
        await kube.create(leader_worker_set("w", 2, 2, within="groups", gpus=8, nodeSelector={"of": "groups"}))
        pods = await kube.until(pods_of("groups"), run(4))
        places = {each["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] for each in pods}
        assert names(pods) == {"w-0", "w-0-1", "w-1", "w-1-1"}
        assert places == {"0", "1"}


async def test_karpenter_launches_a_node_for_a_pod_that_finds_none(karpenter_cluster: ControlPlane) -> None:
    async with world(karpenter_cluster, "pending") as kube:
        for obj in node_pool("pending"):
            await kube.create(obj)
        await kube.create(
            deployment("w", 1, within="pending", gpus=8, nodeSelector={"karpenter.sh/nodepool": "pending"})
        )
        (pod,) = await kube.until(pods_of("pending"), run(1))
        claims = await kube.until(CLAIMS, lambda claims: all(map(is_ready, claims)))
        (claim,) = [each for each in claims if each["status"]["nodeName"] == pod["spec"]["nodeName"]]
        assert claim["metadata"]["labels"]["karpenter.sh/capacity-type"] == "spot"
        assert claim["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "g6e.48xlarge"
        await kube.delete("/apis/karpenter.sh/v1/nodepools/pending")
        await kube.until(CLAIMS, lambda left: not left)
