"""Instances and their nodes, on the API server in memory and on a real one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import NODES, PODS, Json, KubeApi, KubeUnreachable
from scaler.runtime.clock import SystemClock
from tests.builders.fake_kube import FakeKube
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import api_server
from tests.simcloud.helpers import make_group, quick
from tests.simcloud.joiner import Joiner, name_of
from tests.simcloud.sim import SimCloud
from tests.simcloud.worlds import World

__all__ = ["api_server"]


class Cluster(World):
    """A world whose instances join an API server in memory."""

    def __init__(self, **group: Any) -> None:
        super().__init__(**group)
        self.kube = FakeKube(self.clock)
        self.joiner = Joiner(self.sim, self.kube, self.clock, boot_delay_s=(30.0, 30.0))

    async def nodes(self) -> dict[str, Json]:
        await self.joiner.round()
        found = (await self.kube.list(NODES)).items
        return {node["spec"]["providerID"].rsplit("/", 1)[-1]: node for node in found}


async def test_an_instance_is_a_node_after_its_boot_and_none_once_it_is_gone() -> None:
    world = Cluster(desired=2)
    assert await world.nodes() == {}
    world.wait(31.0)
    nodes = await world.nodes()
    assert nodes.keys() == set(world.members)
    victim = world.members[0]
    world.end(victim)
    world.settle()
    assert (await world.nodes()).keys() == nodes.keys() - {victim}


async def test_a_node_says_what_eks_and_its_group_say() -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template"
    about = {"PropagateAtLaunch": True, "ResourceId": "rollout", "ResourceType": "auto-scaling-group"}
    tags = [
        about | {"Key": f"{prefix}/label/role", "Value": "rollout"},
        about | {"Key": f"{prefix}/taint/rollout", "Value": "true:NoSchedule"},
    ]
    world = Cluster(desired=1, Tags=tags)
    await world.nodes()
    world.wait(31.0)
    [node] = (await world.nodes()).values()
    [instance] = world.sim.running()
    assert node["metadata"]["name"] == name_of(instance)
    assert node["spec"]["providerID"] == f"aws:///us-east-1a/{instance.instance_id}"
    assert (
        node["metadata"]["labels"].items()
        >= {
            "role": "rollout",
            "eks.amazonaws.com/capacityType": "SPOT",
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.kubernetes.io/zone": "us-east-1a",
        }.items()
    )
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["spec"]["taints"] == [{"key": "rollout", "value": "true", "effect": "NoSchedule"}]


async def test_nothing_is_asked_of_the_api_server_while_nothing_changes() -> None:
    world = Cluster(desired=3)
    await world.nodes()
    world.wait(31.0)
    await world.nodes()
    before = dict(world.kube.counts())
    for _ in range(10):
        await world.joiner.round()
    assert dict(world.kube.counts()) == before


async def test_refusals_of_the_api_server_are_met_by_the_next_round() -> None:
    world = Cluster(desired=3)
    world.kube.fail_next("list", "nodes", KubeUnreachable("away"))
    await world.joiner.round()
    await world.joiner.round()
    world.wait(31.0)
    world.kube.fail_next("create", "nodes", KubeUnreachable("away"))
    world.kube.fail_next("create", "nodes", KubeUnreachable("away"), landed=True)
    await world.joiner.round()
    assert world.joiner.refused == 3
    await world.joiner.round()
    await world.joiner.round()
    assert (await world.nodes()).keys() == set(world.members)


async def test_a_node_that_eks_drains_is_cordoned_and_emptied_but_for_daemons() -> None:
    world = Cluster()
    sizes = {"minSize": 0, "maxSize": 5, "desiredSize": 1}
    about: Json = {"clusterName": "c", "nodegroupName": "pool", "subnets": ["subnet-useast1a"]}
    world.sim.call("eks", "CreateNodegroup", capacityType="SPOT", scalingConfig=sizes, **about)
    world.settle()
    await world.nodes()
    world.wait(31.0)
    [(instance_id, node)] = (await world.nodes()).items()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u-1", "controller": True}
    for name, owners in (("worker", []), ("daemon", [owner])):
        spec = {"nodeName": node["metadata"]["name"], "containers": [{"name": "c", "image": "i"}]}
        meta = {"name": name, "namespace": "default", "ownerReferences": owners}
        world.kube.place(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    world.sim.fate.reclaim(ids=[instance_id])
    drained = (await world.nodes())[instance_id]
    assert drained["spec"]["unschedulable"] is True
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in (await world.kube.list(PODS)).items}
    assert "deletionTimestamp" in pods["worker"]
    assert "deletionTimestamp" not in pods["daemon"]


async def test_a_node_is_let_go_when_all_pods_but_daemons_have_gone() -> None:
    world = Cluster()
    world.sim.settings.eks_drain_s = 900.0
    sizes = {"minSize": 0, "maxSize": 5, "desiredSize": 1}
    about: Json = {"clusterName": "c", "nodegroupName": "pool", "subnets": ["subnet-useast1a"]}
    world.sim.call("eks", "CreateNodegroup", capacityType="SPOT", scalingConfig=sizes, **about)
    world.settle()
    await world.nodes()
    world.wait(31.0)
    [(instance_id, node)] = (await world.nodes()).items()
    spec = {"nodeName": node["metadata"]["name"], "containers": [{"name": "c", "image": "i"}]}
    meta = {"name": "worker", "namespace": "default"}
    world.kube.place(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    world.end(instance_id)
    for _ in range(2):
        await world.nodes()
        world.wait(6.0)
    assert world.state(instance_id) == "running"
    world.kube.end_pods()
    for _ in range(2):
        await world.nodes()
        world.wait(6.0)
    assert world.how(instance_id) == "terminate_named"


@pytest.fixture
async def real(api_server: ControlPlane) -> AsyncIterator[KubeApi]:
    api = open_api(api_server.kubeconfig, clock=SystemClock())
    yield api
    await api.close()


@pytest.mark.cluster
async def test_on_a_real_api_server(real: KubeApi) -> None:
    clock = SystemClock()
    sim = SimCloud(clock, 7, quick())
    make_group(sim, desired=5)
    async with asyncio.timeout(60.0):
        joining = asyncio.create_task(Joiner(sim, real, clock, every_s=0.02).run())
        await _until_nodes(sim, real, 5)
        sim.call("autoscaling", "SuspendProcesses", AutoScalingGroupName="rollout", ScalingProcesses=["Launch"])
        sim.fate.reclaim(2, noticed=False)
        await _until_nodes(sim, real, 3)
        sim.call("autoscaling", "DeleteAutoScalingGroup", AutoScalingGroupName="rollout", ForceDelete=True)
        await _until_nodes(sim, real, 0)
        joining.cancel()


async def _until_nodes(sim: SimCloud, api: KubeApi, number: int) -> None:
    ours = set(sim.instances.by_id)
    while True:
        nodes = (await api.list(NODES)).items
        ours |= set(sim.instances.by_id)
        if sum(node["spec"].get("providerID", "").rsplit("/", 1)[-1] in ours for node in nodes) == number:
            return
        await asyncio.sleep(0.05)
