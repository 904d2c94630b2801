"""The actor of a Karpenter NodePool: replicas up by pods, down by name, and nothing done to nodes that others use."""

import pytest

from scaler.act.base import Instance, InstanceState, LaunchResult, NotYet, PoolUnavailable
from scaler.act.karpenter import ENDS_ANNOTATION, MARK_VALID_S, make
from scaler.act.registry import make_actor
from scaler.kube.contract import DEPLOYMENTS, NODE_CLAIMS, NODE_POOLS, NODES, Json, KubeUnreachable, TooMany
from scaler.kube.facts import FLEET_LABEL
from scaler.model.plan import DetachReplica
from tests.builders.karpenter import ON_DEMAND, POOL, SPOT, WHY, KarpenterWorld, launch, terminate
from tests.builders.workloads import uid_of


async def _listed(world: KarpenterWorld) -> dict[str, Instance]:
    return {instance.instance_id: instance for instance in (await world.actor.observe()).instances}


async def _replica(world: KarpenterWorld) -> tuple[str, tuple[str, ...]]:
    """One replica and its instances."""
    instances = list((await _listed(world)).values())
    replica_id = min(each.replica_id for each in instances)
    return replica_id, tuple(each.instance_id for each in instances if each.replica_id == replica_id)


async def _end(world: KarpenterWorld, replica_id: str, instance_ids: tuple[str, ...], times: int = 8) -> None:
    """The command as it is repeated, with everybody else at work in between, until the replica is not listed any more."""
    for _ in range(times):
        if not any(each.replica_id == replica_id for each in (await _listed(world)).values()):
            return
        try:
            await world.actor.terminate(terminate(replica_id, *instance_ids))
        except NotYet:
            world.settle()
    raise AssertionError("it was never ended")


async def test_a_replica_keeps_its_id_from_its_pod_to_its_node() -> None:
    world = KarpenterWorld()
    assert (await world.actor.launch(launch("a"))).result is LaunchResult.LAUNCHED
    (asked,) = (await _listed(world)).values()
    assert (asked.instance_id, asked.state, asked.launch_token) == ("token:a", InstanceState.PENDING, "a")
    world.reconcile()
    (pod,) = (await _listed(world)).values()
    assert (pod.instance_id, pod.state, pod.launch_token) == (f"pod:{pod.replica_id}", InstanceState.PENDING, "a")
    assert pod.offering_id == SPOT.offering_id
    world.settle()
    (node,) = (await _listed(world)).values()
    assert (node.replica_id, node.launch_token, node.state) == (pod.replica_id, "a", InstanceState.RUNNING)
    assert node.instance_id.startswith("i-n-")
    assert (node.node_name, node.offering_id) == (node.instance_id.removeprefix("i-"), SPOT.offering_id)
    assert node.node_uid


async def test_a_repeated_launch_launches_nothing() -> None:
    world = KarpenterWorld()
    results = [(await world.actor.launch(launch(token))).result for token in ("a", "a", "b")]
    world.settle()
    world.actor = world.restarted()
    results.append((await world.actor.launch(launch("b"))).result)
    assert results == [LaunchResult.LAUNCHED, LaunchResult.ALREADY, LaunchResult.LAUNCHED, LaunchResult.ALREADY]
    assert len(await _listed(world)) == 2


async def test_a_replica_is_ended_by_name_then_its_claim_and_nobody_elses() -> None:
    world = KarpenterWorld(4)
    replica_id, instance_ids = await _replica(world)
    await _end(world, replica_id, instance_ids)
    assert world.deleting_claims() == {instance_ids[0].removeprefix("i-")}
    assert len(await _listed(world)) == 3
    assert world.object(DEPLOYMENTS, "w")["spec"]["replicas"] == 3


async def test_the_claim_is_deleted_by_another_controller_where_the_first_one_died() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    for _ in range(2):
        with pytest.raises(NotYet):
            await world.actor.terminate(terminate(replica_id, *instance_ids))
    world.settle()
    world.actor = world.restarted()
    await world.actor.observe()
    assert world.deleting_claims() == {instance_ids[0].removeprefix("i-")}


async def test_the_claim_stays_while_its_pod_is_on_its_way_out() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    for _ in range(2):
        with pytest.raises(NotYet):
            await world.actor.terminate(terminate(replica_id, *instance_ids))
        world.reconcile()
    going = (await _listed(world))[instance_ids[0]]
    assert (going.state, going.replica_id) == (InstanceState.SHUTTING_DOWN, replica_id)
    assert not world.deleting_claims()


async def test_bug_039_a_node_that_somebody_took_meanwhile_is_left_to_karpenter() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    node = instance_ids[0].removeprefix("i-")
    world.other_pod(node, daemon=True)
    for _ in range(2):
        with pytest.raises(NotYet):
            await world.actor.terminate(terminate(replica_id, *instance_ids))
    world.other_pod(node)
    world.settle()
    await world.actor.observe()
    assert not world.deleting_claims()
    claim = world.kube.store.find(NODE_CLAIMS, None, node)
    assert ENDS_ANNOTATION not in (claim["metadata"].get("annotations") or {})


async def test_a_node_with_daemons_only_is_empty() -> None:
    world = KarpenterWorld(1)
    replica_id, instance_ids = await _replica(world)
    world.other_pod(instance_ids[0].removeprefix("i-"), daemon=True)
    await _end(world, replica_id, instance_ids)
    assert len(world.deleting_claims()) == 1


async def test_bug_056a_a_deletion_that_failed_is_tried_again_until_it_is_seen() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    for _ in range(2):
        with pytest.raises(NotYet):
            await world.actor.terminate(terminate(replica_id, *instance_ids))
    world.settle()
    world.kube.fail_next("delete", "nodeclaims", TooMany("slow down", status=429))
    with pytest.raises(PoolUnavailable):
        await world.actor.observe()
    await world.actor.observe()
    assert len(world.deleting_claims()) == 1


async def test_a_mark_that_has_expired_ends_nothing() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    with pytest.raises(NotYet):
        await world.actor.terminate(terminate(replica_id, *instance_ids))
    world.clock.pass_time(MARK_VALID_S + 1)
    world.lose_pod(replica_id)
    await world.actor.observe()
    assert not world.deleting_claims()


async def test_a_node_of_another_fleet_is_never_ended() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    node = world.kube.store.find(NODES, None, instance_ids[0].removeprefix("i-"))
    node["metadata"]["labels"][FLEET_LABEL] = "rl.other"
    await _end(world, replica_id, instance_ids)
    assert not world.deleting_claims()


async def test_bug_059_a_replica_whose_instances_are_not_those_named_is_left_alone() -> None:
    world = KarpenterWorld(2)
    replica_id, _ = await _replica(world)
    assert await world.actor.terminate(terminate(replica_id, "i-other")) == ()
    assert await world.actor.terminate(terminate("gone", "i-gone")) == ()
    assert world.object(DEPLOYMENTS, "w")["spec"]["replicas"] == 2
    assert not any(verb in ("patch", "delete") for verb, _ in world.kube.counts())


async def test_bug_060_a_node_is_asked_for_its_pods_right_before_its_claim_is_deleted() -> None:
    world = KarpenterWorld(1)
    replica_id, instance_ids = await _replica(world)
    for _ in range(2):
        with pytest.raises(NotYet):
            await world.actor.terminate(terminate(replica_id, *instance_ids))
    world.settle()
    world.pods.freeze()  # the watched list shows the node empty
    world.other_pod(instance_ids[0].removeprefix("i-"))
    await world.actor.observe()
    assert not world.deleting_claims()


@pytest.mark.parametrize("index", ["nodes", "claims", "pods"])
async def test_bug_063_nothing_is_told_or_ended_before_everything_was_listed(index: str) -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    getattr(world, index).listed = False
    with pytest.raises(PoolUnavailable, match="not been listed"):
        await world.actor.observe()
    with pytest.raises(PoolUnavailable, match="not been listed"):
        await world.actor.terminate(terminate(replica_id, *instance_ids))


async def test_a_node_that_karpenter_replaces_by_itself_leads_to_one_replacement() -> None:
    world = KarpenterWorld(3)
    replica_id, (instance_id,) = await _replica(world)
    world.delete_pod(replica_id)  # evicted
    world.reconcile()
    listed = await _listed(world)
    states = sorted(each.state for each in listed.values())
    assert states == sorted([InstanceState.SHUTTING_DOWN, InstanceState.PENDING, *[InstanceState.RUNNING] * 2])
    assert listed[instance_id].state is InstanceState.SHUTTING_DOWN
    world.kube.end_pods()
    world.lose_node(instance_id.removeprefix("i-"))
    world.settle()
    assert [each.state for each in (await _listed(world)).values()] == [InstanceState.RUNNING] * 3


async def test_bug_064_a_static_node_pool_is_refused() -> None:
    world = KarpenterWorld()
    world.kube.store.change(NODE_POOLS, None, POOL, "", lambda old: {**old, "spec": {"replicas": 3}})
    assert "static" in str((await world.actor.observe()).refused_reason)


async def _starved(world: KarpenterWorld, waiting: int) -> None:
    world.capacity = 0
    for i in range(waiting):
        await world.actor.launch(launch(f"w{i}"))
    world.settle()
    world.clock.pass_time(120)
    await world.actor.observe()


async def test_bug_064_launches_stop_while_pods_wait_in_vain_and_the_waiting_ones_are_the_probe() -> None:
    world = KarpenterWorld(1)
    await _starved(world, 2)
    outcome = await world.actor.launch(launch("more"))
    assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
    assert world.object(DEPLOYMENTS, "w")["spec"]["replicas"] == 3
    assert world.actor.facts()[SPOT.offering_id].refused_at_s is not None
    world.capacity = None
    world.settle()
    await world.actor.observe()
    assert not world.actor.facts()
    assert (await world.actor.launch(launch("more"))).result is LaunchResult.LAUNCHED


async def test_a_launch_that_is_given_up_takes_exactly_its_pod_away() -> None:
    world = KarpenterWorld(2)
    await _starved(world, 2)
    listed = await _listed(world)
    (victim,) = [each for each in listed.values() if each.launch_token == "w0"]
    await _end(world, victim.replica_id, (victim.instance_id,))
    left = await _listed(world)
    assert left.keys() == listed.keys() - {victim.instance_id}
    assert not world.deleting_claims()


async def test_pods_that_wait_for_claims_under_way_are_not_refused() -> None:
    world = KarpenterWorld()
    await _starved(world, 1)
    world.claim("slow", launched="Unknown", reason="AwaitingReconciliation")
    await world.actor.observe()
    assert (await world.actor.launch(launch("more"))).result is LaunchResult.LAUNCHED


async def test_where_launches_are_placed_only_their_own_offering_is_refused() -> None:
    world = KarpenterWorld(offerings=(SPOT, ON_DEMAND))
    world.actor = world.restarted(placed=True)
    await _starved(world, 1)
    assert set(world.actor.facts()) == {SPOT.offering_id}
    assert (await world.actor.launch(launch("b", ON_DEMAND))).result is LaunchResult.LAUNCHED


@pytest.mark.parametrize(
    ("claim", "refused"),
    [
        pytest.param({"launched": "Unknown", "reason": "SpotMaxPriceTooLow"}, True, id="bug 65: a code nobody knows"),
        pytest.param({"launched": "Unknown", "reason": "LaunchFailed", "message": "InternalError"}, True, id="bug 66"),
        pytest.param(
            {"launched": "Unknown", "reason": "LaunchFailed", "message": "RequestLimitExceeded"}, False, id="bug 67"
        ),
        pytest.param({"launched": "Unknown", "reason": "AwaitingReconciliation"}, False, id="not tried yet"),
        pytest.param({"launched": "True"}, False, id="launched"),
    ],
)
async def test_bug_065_and_066_every_launch_error_refuses_what_the_claim_would_take_but_throttling(
    claim: dict[str, str], refused: bool
) -> None:
    world = KarpenterWorld(offerings=(SPOT, ON_DEMAND))
    world.claim("c", **claim)
    (facts,) = world.claims.all()
    world.claims.memory.moved(facts.uid, None, facts)
    world.claims.memory.moved(facts.uid, facts, facts)
    told = world.actor.facts()
    assert set(told) == ({SPOT.offering_id} if refused else set())
    assert world.claims.heard == refused


async def test_a_claim_that_ends_without_ever_having_been_launched_was_refused() -> None:
    world = KarpenterWorld()
    world.claim("c", launched="Unknown", reason="AwaitingReconciliation")
    (facts,) = world.claims.all()
    world.claims.memory.moved(facts.uid, None, facts)
    assert not world.actor.facts()
    world.clock.pass_time(3)
    world.claims.memory.moved(facts.uid, facts, None)
    assert world.actor.facts()[SPOT.offering_id].refused_at_s == world.clock.now_s()


async def test_bug_071_a_broken_pool_fails_alone() -> None:
    broken, sound = KarpenterWorld(1), KarpenterWorld(1)
    broken.kube.fail_next("get", "nodepools", KubeUnreachable("no answer"))
    with pytest.raises(PoolUnavailable):
        await broken.actor.observe()
    assert len((await sound.actor.observe()).instances) == 1


async def test_bug_075_a_node_is_no_instance_of_ours_before_a_worker_can_run_on_it() -> None:
    world = KarpenterWorld()
    world.capacity = 0
    await world.actor.launch(launch("a"))
    world.settle()
    world.place_node("fresh")  # Ready, its accelerators not allocatable yet
    world.claim("fresh", node="fresh")
    (instance,) = (await _listed(world)).values()
    assert instance.state is InstanceState.PENDING
    assert instance.instance_id.startswith("pod:")


async def test_bug_094_launches_count_from_what_is_asked_for_and_not_from_what_is_there() -> None:
    world = KarpenterWorld(3)
    replica_id, _ = await _replica(world)
    world.delete_pod(replica_id)
    await world.actor.launch(launch("a"))
    world.settle()
    assert world.object(DEPLOYMENTS, "w")["spec"]["replicas"] == 4
    assert len(await _listed(world)) == 4


async def test_bug_096_a_pod_whose_node_is_not_known_holds_up_nothing() -> None:
    world = KarpenterWorld(2)
    replica_id, (instance_id,) = await _replica(world)
    world.kube.store.remove(NODES, None, instance_id.removeprefix("i-"), None, None)
    listed = await _listed(world)
    assert listed[f"pod:{replica_id}"].state is InstanceState.PENDING
    assert len(listed) == 2


async def test_bug_100_a_node_that_names_no_instance_matches_nothing() -> None:
    world = KarpenterWorld(2)
    replica_id, (instance_id,) = await _replica(world)
    name = instance_id.removeprefix("i-")
    world.kube.store.change(NODES, None, name, "", lambda old: {**old, "spec": {"providerID": ""}})
    world.claim("unlaunched")
    listed = await _listed(world)
    assert set(listed) - {f"pod:{replica_id}"} != set()
    assert "" not in listed
    with pytest.raises(NotYet):
        await world.actor.terminate(terminate(replica_id, f"pod:{replica_id}"))
    claim = world.kube.store.find(NODE_CLAIMS, None, "unlaunched")
    assert ENDS_ANNOTATION not in (claim["metadata"].get("annotations") or {})


async def test_two_worker_pods_on_one_node_are_refused_and_no_instance_is_told_twice() -> None:
    world = KarpenterWorld(2)
    first, second = sorted(world.live(), key=uid_of)
    world.set_pod(uid_of(second), phase="Running", ready=True, node=first["spec"]["nodeName"])
    seen = await world.actor.observe()
    assert "whole nodes" in str(seen.refused_reason)
    ids = [each.instance_id for each in seen.instances]
    assert len(set(ids)) == len(ids) == 2


async def test_a_replica_of_several_nodes_lives_and_goes_as_one() -> None:
    world = KarpenterWorld(size=2)
    for token in ("a", "b"):
        await world.actor.launch(launch(token))
    world.settle()
    replica_id, instance_ids = await _replica(world)
    assert len(instance_ids) == 2
    await _end(world, replica_id, instance_ids)
    assert world.deleting_claims() == {each.removeprefix("i-") for each in instance_ids}
    assert len(await _listed(world)) == 2


@pytest.mark.parametrize(
    ("change", "offered"),
    [
        pytest.param({"spec": {}}, None, id="nothing said"),
        pytest.param(
            {"spec": {"limits": {"nvidia.com/gpu": "16"}}, "status": {"resources": {"nvidia.com/gpu": "16"}}},
            0,
            id="full",
        ),
        pytest.param(
            {"spec": {"limits": {"memory": "10Ti"}}, "status": {"resources": {"memory": "2048Gi"}}},
            None,
            id="room left",
        ),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, 0, id="not ready"),
    ],
)
async def test_a_node_pool_that_gives_nothing_now_says_so(change: Json, offered: int | None) -> None:
    world = KarpenterWorld()
    found = world.kube.store.find(NODE_POOLS, None, POOL)
    found.update(change)
    seen = await world.actor.observe()
    assert seen.refused_reason is None
    assert seen.available.get(SPOT.offering_id) == offered


async def test_a_node_pool_that_is_gone_is_refused() -> None:
    world = KarpenterWorld()
    world.kube.store.remove(NODE_POOLS, None, POOL, None, None)
    assert (await world.actor.observe()).refused_reason == f"there is no NodePool {POOL}"


async def test_launches_of_a_worker_set_that_another_owns_are_a_configuration_error() -> None:
    world = KarpenterWorld(1)
    world.edit(DEPLOYMENTS, "w", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    assert "another owner" in str((await world.actor.observe()).refused_reason)
    outcome = await world.actor.launch(launch("a"))
    assert outcome.result is LaunchResult.CONFIGURATION
    assert "Kueue" in outcome.message


async def test_nothing_of_ours_is_detached_and_settings_of_others_are_refused() -> None:
    world = KarpenterWorld(1)
    command = DetachReplica(stage="s", pool="pool", replica_id="r", instance_ids=("i",), reason=WHY)
    assert await world.actor.detach(command) == ()
    await world.actor.close()
    with pytest.raises(TypeError, match="KarpenterSettings"):
        make(object(), pool="p", clock=world.clock)
    with pytest.raises(TypeError, match="KarpenterSettings"):
        make_actor("karpenter", object(), pool="p", clock=world.clock)


async def test_do_not_disrupt_is_left_to_its_owners() -> None:
    world = KarpenterWorld(2)
    replica_id, instance_ids = await _replica(world)
    await world.actor.launch(launch("a"))
    world.settle()
    await _end(world, replica_id, instance_ids)
    every = [*world.kube.store.every(NODES, None), *world.kube.store.every(NODE_CLAIMS, None), *world.all_pods()]
    annotations = {key for body in every for key in body["metadata"].get("annotations") or {}}
    assert "karpenter.sh/do-not-disrupt" not in annotations
