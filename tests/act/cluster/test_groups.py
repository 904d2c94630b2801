"""The real KubeRay operator and the real LeaderWorkerSet controller do what our worker sets rely on."""

import pytest

from scaler.act.worker_sets.leader_worker_set import LeaderWorkerSets
from scaler.act.worker_sets.ray_cluster import CLEARED_AFTER_S, RayWorkerGroup
from scaler.kube.contract import LEADER_WORKER_SETS, PODS, RAY_CLUSTERS, Json
from tests.builders.kube import leader_worker_set, ray_cluster
from tests.builders.live_worker_sets import Live, live
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


async def _group(world: Live) -> Json:
    body = await world.kube.get(RAY_CLUSTERS, "r", namespace=world.name)
    return dict(body["spec"]["workerGroupSpecs"][0])


async def _ray(world: Live, replicas: int, spare_nodes: int) -> RayWorkerGroup:
    await world.spare_nodes(spare_nodes)
    body = ray_cluster("r", replicas, within=world.name, gpus=8, nodeSelector={"of": world.name})
    await world.create(RAY_CLUSTERS, body)
    worker_set = RayWorkerGroup(world.settings("r", group="rollout"), clock=world.clock)
    await world.running(worker_set, replicas)
    return worker_set


async def test_bug_056_the_operator_takes_the_named_worker_and_none_by_chance_whoever_scales_next(
    karpenter_cluster: ControlPlane,
) -> None:
    async with live(karpenter_cluster, "ws-ray") as world:
        worker_set = await _ray(world, 4, spare_nodes=5)
        before = {pod.uid for pod in (await worker_set.observe()).pods}
        first, second = sorted(before)[:2]
        await worker_set.remove(first)
        assert await worker_set.add("a", "o")
        await world.removed(worker_set, first)
        view = await world.running(worker_set, 4)
        assert {pod.uid for pod in view.pods} > before - {first}
        assert {pod.launch_token for pod in view.pods if pod.uid not in before} == {"a"}
        await world.removed(worker_set, second)
        view = await world.running(worker_set, 3)
        assert {pod.uid for pod in view.pods} > before - {first, second}

        async def cleared() -> bool | None:
            await worker_set.observe()
            return not (await _group(world))["scaleStrategy"].get("workersToDelete") or None

        await world.until(cleared, within_s=CLEARED_AFTER_S + 60)
        assert await worker_set.add("b", "o")
        last = await world.running(worker_set, 4)
        assert {pod.uid for pod in last.pods} > {pod.uid for pod in view.pods}
        assert (await _group(world))["replicas"] == 4


async def test_a_worker_that_is_evicted_while_another_is_taken_out_costs_no_third_one(
    karpenter_cluster: ControlPlane,
) -> None:
    async with live(karpenter_cluster, "ws-ray-evicted") as world:
        worker_set = await _ray(world, 4, spare_nodes=5)
        victim, evicted, *others = (await worker_set.observe()).pods
        await world.kube.evict(evicted.name, namespace=world.name, pod_uid=evicted.uid)
        await world.removed(worker_set, victim.uid)
        view = await world.running(worker_set, 3)
        assert {pod.uid for pod in view.pods} > {pod.uid for pod in others}


async def _lws(world: Live, *tokens: str) -> LeaderWorkerSets:
    body = leader_worker_set("t", 0, 2, within=world.name, gpus=8)
    await world.create(LEADER_WORKER_SETS, body)
    settings = world.settings("t", nodes_per_replica=2, node_selectors={"o": {"of": world.name}})
    worker_set = LeaderWorkerSets(settings, clock=world.clock)
    for token in tokens:
        assert await worker_set.add(token, "o")
    await world.running(worker_set, 2 * len(tokens))
    return worker_set


async def test_each_replica_is_an_object_whose_pods_come_and_go_together(karpenter_cluster: ControlPlane) -> None:
    async with live(karpenter_cluster, "ws-groups") as world:
        await world.spare_nodes(6)
        worker_set = await _lws(world, "a", "b", "c")
        view = await worker_set.observe()
        assert view.refused_reason is None
        assert not await worker_set.add("b", "o")
        (victim,) = {pod.replica_key for pod in view.pods if pod.launch_token == "a"}
        await world.removed(worker_set, victim)
        left = await world.running(worker_set, 4)
        assert {pod.uid for pod in left.pods} == {pod.uid for pod in view.pods if pod.replica_key != victim}
        assert not await worker_set.add("a", "o")


async def test_a_group_that_lost_a_pod_is_made_anew_under_its_key(karpenter_cluster: ControlPlane) -> None:
    async with live(karpenter_cluster, "ws-group-anew") as world:
        await world.spare_nodes(2)
        worker_set = await _lws(world, "a")
        before = (await worker_set.observe()).pods
        (lost,) = [pod for pod in before if pod.name.count("-") == 3]
        await world.kube.delete(PODS, lost.name, namespace=world.name)

        async def anew() -> bool | None:
            view = await worker_set.observe()
            ready = len(view.pods) == 2 and all(pod.ready and not pod.terminating for pod in view.pods)
            others = not {pod.uid for pod in view.pods} & {pod.uid for pod in before}
            # A group that is being made anew a second time shows its first pods under the key of what was before.
            return (ready and others and {pod.replica_key for pod in view.pods} == {before[0].replica_key}) or None

        await world.until(anew)
