"""Real Karpenter gives our replicas nodes, replaces those that it disrupts, and loses those whose replica we end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from scaler.act.base import Instance, InstanceState, LaunchResult, NotYet
from scaler.act.karpenter import TOKEN_ID, KarpenterPool, KarpenterSettings, make
from scaler.act.worker_sets.registry import make_worker_set
from scaler.kube.contract import DEPLOYMENTS, NODE_CLAIMS, NODE_POOLS, Json, Resource
from scaler.model.capacity import CapacityType, Offering
from tests.builders.karpenter import launch, terminate
from tests.builders.kube import deployment, node_pool
from tests.builders.live_worker_sets import Live, live
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

NODE_CLASSES = Resource(
    group="karpenter.kwok.sh", version="v1alpha1", plural="kwoknodeclasses", kind="KWOKNodeClass", namespaced=False
)
SPOT = Offering(instance_type="g6e.48xlarge", zone="us-west-2a", capacity_type=CapacityType.SPOT, price_usd_per_h=12.0)


@asynccontextmanager
async def _begun(plane: ControlPlane, name: str, replicas: int) -> AsyncIterator[tuple[Live, KarpenterPool]]:
    """So many replicas asked for, on nodes of a NodePool called as their namespace; gone afterwards, however the test ends."""
    async with live(plane, name, node_pool=name) as world:
        await _create(world, replicas)
        try:
            yield world, _actor(world)
        finally:
            await _away(world)


async def _create(world: Live, replicas: int) -> None:
    """Nodes go when their claim is deleted, not when Karpenter finds them empty: it may make one too many, and a pod that
    comes to that one as it goes is lost."""
    where = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]}
    kept = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    node_class, pool = node_pool(world.name, requirements=[where], disruption=kept)
    await world.create(NODE_CLASSES, node_class)
    await world.create(NODE_POOLS, pool)
    selector = {"karpenter.sh/nodepool": world.name}
    await world.create(DEPLOYMENTS, deployment("w", replicas, within=world.name, gpus=8, nodeSelector=selector))


def _actor(world: Live) -> KarpenterPool:
    settings = KarpenterSettings(
        kube=world.kube,
        nodes=world.nodes,
        claims=world.claims,
        worker_set=make_worker_set("deployment", world.settings("w"), clock=world.clock),
        node_pool=world.name,
        fleet=f"{world.name}.f",
        offerings=(SPOT,),
    )
    return make(settings, pool="pool", clock=world.clock)


async def _running(
    world: Live, actor: KarpenterPool, count: int, answers: dict[str, str] | None = None
) -> dict[str, Instance]:
    """So many instances, once all run. `answers`: gets launch token -> UID of the pod that was seen last to answer it."""

    async def look() -> dict[str, Instance] | None:
        listed = (await actor.observe()).instances
        if answers is not None:
            came = [each for each in listed if each.launch_token and not each.instance_id.startswith(TOKEN_ID)]
            answers.update({each.launch_token: each.replica_id for each in came})
        assert len([each for each in listed if each.state is not InstanceState.SHUTTING_DOWN]) <= count
        ready = all(each.state is InstanceState.RUNNING for each in listed)
        return {each.instance_id: each for each in listed} if ready and len(listed) == count else None

    return await world.until(look)


async def _claims(world: Live) -> list[Json]:
    listed = await world.kube.list(NODE_CLAIMS, label_selector=f"karpenter.sh/nodepool={world.name}")
    return list(listed.items)


def _node_of(claim: Json) -> str | None:
    """A claim that Karpenter has just made, also one too many on a slow machine, has no node yet and no status at all."""
    node: str | None = claim.get("status", {}).get("nodeName")
    return node


def _taken_out(world: Live) -> set[str]:
    """Names of the pods that their set deleted, as the API server's audit log has it; Karpenter evicts in a name of its own."""
    by_set = (deed for deed in world.plane.audited() if deed.get("userAgent", "").endswith("/replicaset-controller"))
    pods = f"/api/v1/namespaces/{world.name}/pods/"
    return {
        deed["objectRef"]["name"] for deed in by_set if deed["verb"] == "delete" and deed["requestURI"].startswith(pods)
    }


async def _away(world: Live) -> None:
    await world.kube.delete(NODE_POOLS, world.name)

    async def gone() -> bool | None:
        return not await _claims(world) or None

    await world.until(gone)
    await world.kube.delete(NODE_CLASSES, world.name)


async def test_launches_get_nodes_and_an_ended_replica_takes_its_own_node_along(
    karpenter_cluster: ControlPlane,
) -> None:
    async with _begun(karpenter_cluster, "kp-scale", 2) as (world, actor):
        before = await _running(world, actor, 2)
        results = [(await actor.launch(launch(token, SPOT))).result for token in ("a", "b", "a")]
        assert results == [LaunchResult.LAUNCHED, LaunchResult.LAUNCHED, LaunchResult.ALREADY]
        answers: dict[str, str] = {}
        listed = await _running(world, actor, 4, answers)
        assert answers.keys() == {"a", "b"}
        tokens = {each.replica_id: each.launch_token for name, each in listed.items() if name not in before}
        # A pod that replaces one that was lost answers no launch; one that was lost is the API server's to tell.
        there = {pod.uid for pod in await world.live_pods()}
        assert {uid: token for uid, token in tokens.items() if token and uid in there} == {
            uid: token for token, uid in answers.items() if uid in there
        }
        assert {each.offering_id for each in listed.values()} == {SPOT.offering_id}
        victim = min(before.values(), key=lambda each: each.instance_id)
        doomed = victim.node_name
        (its_pod,) = {pod.name for pod in world.pods.all() if pod.uid == victim.replica_id}

        async def ended() -> bool | None:
            with suppress(NotYet):
                await actor.terminate(terminate(victim.replica_id, victim.instance_id))
            await actor.observe()
            return doomed not in {_node_of(claim) for claim in await _claims(world)} or None

        await world.until(ended)
        await _running(world, actor, 3)
        assert _taken_out(world) == {its_pod}


async def test_bug_093_a_disrupted_node_leads_to_one_replacement_and_never_to_more_than_asked_for(
    karpenter_cluster: ControlPlane,
) -> None:
    async with _begun(karpenter_cluster, "kp-disrupt", 3) as (world, actor):
        before = await _running(world, actor, 3)
        disrupted = min(before.values(), key=lambda each: each.instance_id)

        async def claimed() -> str | None:
            """A claim may be told its node after the scheduler has."""
            named = [each["metadata"]["name"] for each in await _claims(world) if _node_of(each) == disrupted.node_name]
            return named[0] if named else None

        await world.kube.delete(NODE_CLAIMS, await world.until(claimed))

        async def replaced() -> bool | None:
            listed = (await actor.observe()).instances
            live_ones = [each for each in listed if each.state is not InstanceState.SHUTTING_DOWN]
            assert len(live_ones) <= 3
            ids = {each.instance_id for each in listed if each.state is InstanceState.RUNNING}
            return (len(ids) == 3 and disrupted.instance_id not in ids) or None

        await world.until(replaced)
        after = await _running(world, actor, 3)
        assert after.keys() > before.keys() - {disrupted.instance_id}
