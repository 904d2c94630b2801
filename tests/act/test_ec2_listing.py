import pytest

from scaler.act.base import InstanceState, PoolUnavailable
from scaler.kube.facts import FLEET_LABEL, REPLICA_LABEL
from scaler.model.capacity import CapacityType
from tests.builders.ec2_pools import (
    FLEET,
    OTHER_FLEET,
    TYPE,
    ZONE_A,
    Bed,
    a_detach,
    a_launch,
    an_offering,
    by_token,
    listed,
)
from tests.simcloud.helpers import in_service


async def test_a_group_that_is_there_is_adopted_under_its_instances_own_ids() -> None:
    bed = Bed()
    bed.group(desired=3)
    bed.pass_time(30)
    instances = await listed(bed.pool())
    assert [instance.instance_id for instance in instances] == sorted(in_service(bed.sim))
    assert all(instance.replica_id == instance.instance_id and not instance.launch_token for instance in instances)
    assert {instance.state for instance in instances} == {InstanceState.RUNNING}


async def test_listing_changes_nothing(bed: Bed) -> None:
    pool = bed.pool()
    await bed.up(pool, "t-1")
    before = len(bed.sim.log.calls)
    await pool.observe()
    bed.pass_time(5)
    await pool.observe()
    assert all(call.operation.startswith(("Describe", "Get")) for call in bed.sim.log.calls[before:])


async def test_five_hundred_instances_cost_two_calls_and_once_a_minute_three() -> None:
    bed = Bed()
    bed.group(desired=500, high=500)
    bed.pass_time(60)
    pool = bed.pool()
    await pool.observe()
    for seconds, calls in ((5, 2), (60, 3), (5, 2)):
        bed.pass_time(seconds)
        before = len(bed.sim.log.calls)
        assert len(await listed(pool)) == 500
        described = [call.operation for call in bed.sim.log.calls[before:]]
        assert len([one for one in described if one in ("DescribeAutoScalingGroups", "DescribeInstances")]) == calls


async def test_lists_within_a_moment_are_one(bed: Bed) -> None:
    one, other = bed.pool(), bed.pool(fleet=OTHER_FLEET)
    await one.observe()
    before = bed.calls("DescribeInstances")
    await other.observe()
    await one.observe()
    assert bed.calls("DescribeInstances") == before


@pytest.mark.parametrize("operation", ["DescribeAutoScalingGroups", "DescribeInstances"])
async def test_a_list_in_part_is_no_list(bed: Bed, operation: str) -> None:
    pool = bed.pool()
    await bed.up(pool, "t-1")
    bed.pass_time(5)
    bed.sim.fail_next(operation, "RequestLimitExceeded")
    with pytest.raises(PoolUnavailable, match="RequestLimitExceeded"):
        await pool.observe()
    assert list(await by_token(pool)) == ["t-1"]


async def test_a_node_that_has_joined_is_told_by_name_and_uid(bed: Bed) -> None:
    pool = bed.pool()
    (instance,) = await bed.up(pool, "t-1")
    assert (instance.node_name, instance.node_uid) == ("", "")
    bed.nodes.join(instance.instance_id)
    (instance,) = await listed(pool)


async def test_another_fleets_instances_are_not_listed_by_tag_or_label() -> None:
    bed = Bed()
    bed.group(desired=3)
    bed.pass_time(30)
    first, second, third = bed.running()
    first.tags[FLEET_LABEL] = OTHER_FLEET
    bed.nodes.join(second.instance_id, {FLEET_LABEL: OTHER_FLEET})
    assert [instance.instance_id for instance in await listed(bed.pool())] == [third.instance_id]


async def test_an_instance_that_tag_and_label_give_to_different_fleets_is_nobodys(bed: Bed) -> None:
    pool, other = bed.pool(), bed.pool(fleet=OTHER_FLEET)
    (instance,) = await bed.up(pool, "t-1")
    bed.nodes.join(instance.instance_id, {FLEET_LABEL: OTHER_FLEET})
    assert await listed(pool) == await listed(other) == ()


async def test_a_trainers_node_is_never_listed(bed: Bed) -> None:
    pool = bed.pool(guarded=lambda node: "trainer" in node.labels)
    (instance,) = await bed.up(pool, "t-1")
    bed.nodes.join(instance.instance_id, {"trainer": "grpo"})
    assert await listed(pool) == ()


async def test_adopted_nodes_that_a_label_binds_are_one_replica() -> None:
    bed = Bed()
    bed.group(desired=4)
    bed.pass_time(30)
    for number, running in enumerate(bed.running()):
        bed.nodes.join(running.instance_id, {REPLICA_LABEL: f"r-{number // 2}"})
    instances = await listed(bed.pool(nodes_per_replica=2))
    assert sorted(instance.replica_id for instance in instances) == ["r-0", "r-0", "r-1", "r-1"]


async def test_a_detached_instance_is_listed_until_it_is_gone(bed: Bed) -> None:
    pool = bed.pool()
    (instance,) = await bed.up(pool, "t-1")
    await pool.detach(a_detach(instance))
    bed.pass_time(10)
    (left,) = await listed(bed.restarted())
    assert (left.instance_id, left.attached, left.launch_token) == (instance.instance_id, False, "t-1")
    assert left.replica_id == instance.replica_id
    bed.sim.fate.reclaim(ids=[instance.instance_id], noticed=False)
    bed.pass_time(30)
    assert await listed(pool) == ()


async def test_who_detaches_an_instance_lists_it_on_without_describing_all_that_ever_left(bed: Bed) -> None:
    pool = bed.pool()
    (instance,) = await bed.up(pool, "t-1")
    await listed(pool)
    await pool.detach(a_detach(instance))
    for _ in range(20):
        bed.pass_time(5)
        (left,) = await listed(pool)
        assert (left.instance_id, left.attached) == (instance.instance_id, False)
    bed.sim.fate.reclaim(ids=[instance.instance_id], noticed=False)
    bed.pass_time(30)
    assert await listed(pool) == ()


async def test_what_a_list_of_all_leaves_out_once_is_listed_again_by_the_next(bed: Bed) -> None:
    pool = bed.pool()
    (instance,) = await bed.up(pool, "t-1")
    await pool.detach(a_detach(instance))
    await listed(pool)
    tags = bed.sim.running()[0].tags
    kept = dict(tags)
    bed.pass_time(60)
    tags.clear()
    assert await listed(pool) == ()
    tags.update(kept)
    bed.pass_time(5)
    assert [one.instance_id for one in await listed(pool)] == [instance.instance_id]


async def test_what_left_the_group_before_anybody_saw_it_is_found_within_a_minute(bed: Bed) -> None:
    other, pool = bed.pool(), bed.restarted()
    assert await listed(pool) == ()
    (instance,) = await bed.up(other, "t-1")
    await other.detach(a_detach(instance))
    bed.pass_time(60)
    (left,) = await listed(pool)
    assert (left.instance_id, left.attached) == (instance.instance_id, False)


async def test_an_instance_in_a_termination_hook_still_runs(bed: Bed) -> None:
    pool = bed.pool()
    (instance,) = await bed.up(pool, "t-1")
    bed.sim.call(
        "autoscaling",
        "PutLifecycleHook",
        AutoScalingGroupName="rollout",
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
    )
    bed.sim.call(
        "autoscaling",
        "TerminateInstanceInAutoScalingGroup",
        InstanceId=instance.instance_id,
        ShouldDecrementDesiredCapacity=True,
    )
    bed.pass_time(5)
    assert await by_token(pool) == {"t-1": InstanceState.RUNNING}


async def test_an_instance_that_goes_is_listed_as_going_and_then_not_at_all(bed: Bed) -> None:
    pool = bed.pool()
    (instance,) = await bed.up(pool, "t-1")
    bed.pass_time(5)
    bed.sim.fate.fail([instance.instance_id])
    assert await by_token(pool) == {"t-1": InstanceState.SHUTTING_DOWN}
    bed.pass_time(4)
    assert await by_token(pool) == {}


async def test_times_are_the_clouds(bed: Bed) -> None:
    bed.sim.kernel.skew_s = 1000.0
    bed.aws.ahead = 1000.0
    pool = bed.pool()
    await pool.launch(a_launch("t-1"))
    (instance,) = await listed(pool)
    assert instance.launched_at_s == pytest.approx(bed.clock.now_s() + 1000, abs=5)


def test_settings_that_cannot_work_are_refused(bed: Bed) -> None:
    with pytest.raises(ValueError, match="offering"):
        bed.settings(offerings=())
    with pytest.raises(ValueError, match="fleet"):
        bed.settings(fleet="")
    with pytest.raises(ValueError, match="nodes a replica"):
        bed.settings(nodes_per_replica=0)
    assert bed.settings().fleet == FLEET
    assert an_offering(capacity_type=CapacityType.SPOT).offering_id == f"{TYPE}/{ZONE_A}/spot"
