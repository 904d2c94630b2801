"""The real ReplicaSet controller deletes the named pod, and waits where it would rather take another."""

import pytest

from scaler.act.base import NotYet
from scaler.act.worker_sets.deployment import Deployment
from scaler.kube.contract import DEPLOYMENTS
from tests.builders.kube import deployment
from tests.builders.live_worker_sets import Live, live
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


async def _begun(world: Live, replicas: int, spare_nodes: int) -> Deployment:
    await world.spare_nodes(spare_nodes)
    body = deployment("w", replicas, within=world.name, gpus=8, nodeSelector={"of": world.name})
    await world.create(DEPLOYMENTS, body)
    worker_set = Deployment(world.settings("w"), clock=world.clock)
    await world.running(worker_set, replicas)
    return worker_set


async def test_launches_become_pods_that_know_their_token_and_named_pods_go(cluster: ControlPlane) -> None:
    async with live(cluster, "ws-named") as world:
        worker_set = await _begun(world, 4, spare_nodes=6)
        before = {pod.uid for pod in (await worker_set.observe()).pods}
        assert [await worker_set.add(token, "o") for token in ("a", "b", "a")] == [True, True, False]
        view = await world.running(worker_set, 6)
        assert {pod.launch_token for pod in view.pods if pod.uid not in before} == {"a", "b"}
        assert {pod.launch_token for pod in view.pods if pod.uid in before} == {""}
        victims = sorted(before)[:2]
        for uid in victims:
            await world.removed(worker_set, uid)
        left = {pod.uid for pod in (await world.running(worker_set, 4)).pods}
        assert left == {pod.uid for pod in view.pods} - set(victims)


async def test_bug_056_no_pod_goes_for_one_that_waits_or_is_not_ready(cluster: ControlPlane) -> None:
    async with live(cluster, "ws-waiting") as world:
        worker_set = await _begun(world, 3, spare_nodes=3)
        victim, other, _ = (await worker_set.observe()).pods
        await worker_set.add("a", "o")  # there is no node for it

        async def waits() -> bool | None:
            return any(pod.unschedulable for pod in (await worker_set.observe()).pods) or None

        await world.until(waits)
        assert not await worker_set.remove(victim.uid)
        with pytest.raises(NotYet, match="not scheduled"):
            await worker_set.remove(victim.uid)
        await world.spare_nodes(1, prefix="late")
        before = {pod.uid for pod in (await world.running(worker_set, 4)).pods}
        await world.set_ready(other, ready=False)
        with pytest.raises(NotYet, match="not ready"):
            await worker_set.remove(victim.uid)
        await world.set_ready(other, ready=True)
        await world.removed(worker_set, victim.uid)
        assert {pod.uid for pod in (await world.running(worker_set, 3)).pods} == before - {victim.uid}


async def test_a_pod_that_breaks_between_our_check_and_the_controllers_choice_is_made_good(
    cluster: ControlPlane,
) -> None:
    async with live(cluster, "ws-race") as world:
        worker_set = await _begun(world, 3, spare_nodes=4)
        victim, unlucky, lucky = (await worker_set.observe()).pods
        await worker_set.remove(victim.uid)
        cluster.pause("kube-controller-manager")
        try:
            await worker_set.remove(victim.uid)
            await world.set_ready(unlucky, ready=False)
        finally:
            cluster.resume("kube-controller-manager")
        await world.removed(worker_set, victim.uid)
        left = {pod.uid for pod in (await world.running(worker_set, 2)).pods}
        assert victim.uid not in left
        assert lucky.uid in left
        body = await world.kube.get(DEPLOYMENTS, "w", namespace=world.name)
        assert body["spec"]["replicas"] == 2


async def test_a_launch_without_a_node_is_given_up_and_takes_its_own_pod_along(cluster: ControlPlane) -> None:
    async with live(cluster, "ws-given-up") as world:
        worker_set = await _begun(world, 2, spare_nodes=2)
        before = {pod.uid for pod in (await worker_set.observe()).pods}
        await worker_set.add("a", "o")
        await worker_set.add("b", "o")

        async def both_wait() -> str | None:
            found = {pod.launch_token: pod.uid for pod in (await worker_set.observe()).pods if pod.unschedulable}
            return found["a"] if found.keys() == {"a", "b"} else None

        await world.removed(worker_set, await world.until(both_wait))
        view = await worker_set.observe()
        assert {pod.launch_token for pod in view.pods if pod.uid not in before} == {"b"}
        assert before < {pod.uid for pod in view.pods}
        assert view.desired == 3
