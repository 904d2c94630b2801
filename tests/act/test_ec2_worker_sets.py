"""Instances, then replicas; and on the way down the replica, its pod, and the instance last."""

import pytest

from scaler.act.base import LaunchResult, NotYet, PoolUnavailable
from scaler.act.worker_sets.base import SetRefused
from scaler.model.pool import Instance
from tests.builders.ec2_pools import Bed, Deployment, a_detach, a_launch, an_end, listed


async def served(bed: Bed, workers: Deployment, *tokens: str) -> dict[str, Instance]:
    """Replicas with a node and a pod each."""
    pool = bed.pool(worker_set=workers)
    instances = {instance.launch_token: instance for instance in await bed.up(pool, *tokens)}
    for token in tokens:
        node = bed.nodes.join(instances[token].instance_id)
        workers.schedule(node.name)
    return instances


async def test_a_launch_asks_for_one_worker_more_once_a_token(bed: Bed) -> None:
    workers = Deployment()
    pool = bed.pool(worker_set=workers)
    await pool.launch(a_launch("t-1"))
    await pool.launch(a_launch("t-1"))
    await bed.restarted(worker_set=workers).launch(a_launch("t-1"))
    assert workers.desired == 1
    await pool.launch(a_launch("t-2"))
    assert workers.desired == 2


async def test_no_worker_is_asked_for_where_the_launch_is_refused(bed: Bed) -> None:
    workers = Deployment()
    bed.sim.fail_next("LaunchInstances", "InsufficientInstanceCapacity")
    await bed.pool(worker_set=workers).launch(a_launch("t-1"))
    assert workers.desired == 0


async def test_a_worker_set_that_may_not_be_written_holds_the_pool(bed: Bed) -> None:
    workers = Deployment(refused="another owner: a HorizontalPodAutoscaler")
    pool = bed.pool(worker_set=workers)
    assert (await pool.observe()).refused_reason == workers.refused
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.CONFIGURATION
    assert bed.running() == []


async def test_a_worker_that_could_not_be_asked_for_is_asked_for_with_the_next_try(bed: Bed) -> None:
    workers = Deployment()
    pool = bed.pool(worker_set=workers)

    async def refuse(token: str, offering_id: str) -> bool:
        raise SetRefused("not now")

    workers.add = refuse  # type: ignore[method-assign]
    with pytest.raises(PoolUnavailable, match="not now"):
        await pool.launch(a_launch("t-1"))
    del workers.add
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.ALREADY
    assert workers.desired == len(bed.running()) == 1


async def test_a_launch_whose_node_anothers_pod_has_taken_asks_for_the_others_worker(bed: Bed) -> None:
    """Its answer came late, or its worker set could not be written for a while: its node had joined, and pods are all alike."""
    workers = Deployment()
    pool = bed.pool(worker_set=workers)
    await pool.launch(a_launch("t-1"))

    async def refuse(token: str, offering_id: str) -> bool:
        raise SetRefused("not now")

    workers.add = refuse  # type: ignore[method-assign]
    with pytest.raises(PoolUnavailable, match="not now"):
        await pool.launch(a_launch("t-2"))
    bed.pass_time(30)
    second = next(each for each in await listed(pool) if each.launch_token == "t-2")
    workers.schedule(bed.nodes.join(second.instance_id).name)
    del workers.add
    assert (await pool.launch(a_launch("t-2"))).result is LaunchResult.ALREADY
    assert workers.desired == len(bed.running()) == 2


async def test_the_pod_goes_before_its_instance(bed: Bed) -> None:
    workers = Deployment(slow=True)
    fleet = await served(bed, workers, "t-1", "t-2")
    pool = bed.pool(worker_set=workers)
    with pytest.raises(NotYet, match="pods"):
        await pool.terminate(an_end(fleet["t-1"]))
    assert (workers.desired, len(bed.running())) == (1, 2)
    with pytest.raises(NotYet):
        await pool.terminate(an_end(fleet["t-1"]))
    assert workers.desired == 1
    (uid,) = workers.on(f"node-{fleet['t-1'].instance_id}")
    del workers.pods[uid]
    assert await pool.terminate(an_end(fleet["t-1"])) == (fleet["t-1"].instance_id,)
    assert workers.on(f"node-{fleet['t-2'].instance_id}")


async def test_an_instance_that_never_got_a_pod_ends_without_one(bed: Bed) -> None:
    workers = Deployment()
    pool = bed.pool(worker_set=workers)
    (instance,) = await bed.up(pool, "t-1")
    assert await pool.terminate(an_end(instance)) == (instance.instance_id,)


async def test_a_pod_that_waits_for_a_node_takes_the_next_launch(bed: Bed) -> None:
    """Evicted from a noticed node, it was made anew: another one more would wait for ever."""
    workers = Deployment()
    fleet = await served(bed, workers, "t-1", "t-2")
    pool = bed.pool(worker_set=workers)
    workers.evict(f"node-{fleet['t-1'].instance_id}")
    bed.sim.fate.reclaim(ids=[fleet["t-1"].instance_id], noticed=False)
    bed.nodes.nodes.pop(fleet["t-1"].instance_id)
    bed.pass_time(4)
    await pool.launch(a_launch("t-3"))
    assert workers.desired == 2
    await pool.launch(a_launch("t-4"))
    assert workers.desired == 3


async def test_a_noticed_replica_leaves_the_count_with_its_pod(bed: Bed) -> None:
    workers = Deployment()
    fleet = await served(bed, workers, "t-1", "t-2")
    pool = bed.pool(worker_set=workers)
    await pool.launch(a_launch("t-3"))
    assert workers.desired == 3
    await pool.detach(a_detach(fleet["t-1"]))
    assert workers.desired == 2
    assert not workers.on(f"node-{fleet['t-1'].instance_id}")


async def test_a_noticed_replica_leaves_the_count_though_its_pod_was_evicted_before(bed: Bed) -> None:
    workers = Deployment()
    fleet = await served(bed, workers, "t-1", "t-2")
    pool = bed.pool(worker_set=workers)
    await pool.launch(a_launch("t-3"))
    workers.evict(f"node-{fleet['t-1'].instance_id}")
    await pool.detach(a_detach(fleet["t-1"]))
    assert workers.desired == 2
    bed.pass_time(30)
    (new,) = [instance for instance in await listed(pool) if instance.launch_token == "t-3"]
    workers.schedule(bed.nodes.join(new.instance_id).name)
    assert all(pod.node_name for pod in workers.pods.values())


def test_a_set_that_counts_needs_to_know_nodes(bed: Bed) -> None:
    with pytest.raises(ValueError, match="node index"):
        bed.settings(worker_set=Deployment(), nodes=None)
