import asyncio
from dataclasses import replace

import pytest

from scaler.act.base import NotYet, PoolUnavailable
from scaler.kube.facts import FLEET_LABEL
from scaler.model.pool import Instance
from tests.builders.ec2_pools import OTHER_FLEET, Bed, a_detach, a_launch, an_end, by_token, listed, until_settled
from tests.simcloud.journal import EndedBy


async def a_fleet(bed: Bed, size: int) -> dict[str, Instance]:
    pool = bed.pool()
    await asyncio.gather(*(pool.launch(a_launch(f"t-{n}")) for n in range(size)))
    bed.pass_time(30)
    return {instance.launch_token: instance for instance in await listed(pool)}


async def test_exactly_the_named_one_ends_and_the_group_shrinks_with_it(bed: Bed) -> None:
    fleet = await a_fleet(bed, 3)
    pool = bed.pool()
    assert await pool.terminate(an_end(fleet["t-1"])) == (fleet["t-1"].instance_id,)
    bed.pass_time(120)
    assert sorted(await by_token(pool)) == ["t-0", "t-2"]
    (ended,) = bed.sim.ended()
    assert (ended.instance_id, ended.by) == (fleet["t-1"].instance_id, EndedBy.TERMINATE_NAMED)
    assert bed.desired() == 2


async def test_protection_stays_on_up_to_the_end(bed: Bed) -> None:
    fleet = await a_fleet(bed, 1)
    await bed.pool().terminate(an_end(fleet["t-0"]))
    bed.pass_time(30)
    (ended,) = bed.sim.ended()
    assert ended.protected
    assert bed.calls("SetInstanceProtection") == 0


async def test_ending_twice_ends_and_counts_once(bed: Bed) -> None:
    fleet = await a_fleet(bed, 3)
    command = an_end(fleet["t-0"])
    await bed.pool().terminate(command)
    assert await bed.pool().terminate(command) == ()
    assert await bed.restarted().terminate(command) == ()
    bed.pass_time(120)
    assert await bed.restarted().terminate(command) == ()
    assert bed.desired() == 2
    assert len(bed.running()) == 2


async def test_ends_side_by_side_count_each_once(bed: Bed) -> None:
    fleet = await a_fleet(bed, 12)
    pool = bed.pool()
    named = [fleet[f"t-{n}"] for n in range(0, 12, 2)]
    ended = await asyncio.gather(*(pool.terminate(an_end(instance)) for instance in named))
    assert sorted(ended) == sorted((instance.instance_id,) for instance in named)
    bed.pass_time(60)
    assert bed.desired() == len(bed.running()) == 6


async def test_an_instance_of_another_replica_is_not_ended_whatever_the_command_says(bed: Bed) -> None:
    fleet = await a_fleet(bed, 2)
    command = replace(an_end(fleet["t-0"]), instance_ids=(fleet["t-1"].instance_id,))
    assert await bed.pool().terminate(command) == ()
    assert len(bed.running()) == 2


async def test_an_instance_that_is_another_fleets_by_now_is_not_ended(bed: Bed) -> None:
    fleet = await a_fleet(bed, 1)
    (running,) = bed.running()
    running.tags[FLEET_LABEL] = OTHER_FLEET
    bed.pass_time(5)
    assert await bed.restarted().terminate(an_end(fleet["t-0"])) == ()
    assert len(bed.running()) == 1


async def test_a_trainers_node_is_not_ended(bed: Bed) -> None:
    fleet = await a_fleet(bed, 1)
    bed.nodes.join(fleet["t-0"].instance_id, {"trainer": "grpo"})
    pool = bed.restarted(guarded=lambda node: "trainer" in node.labels)
    assert await pool.terminate(an_end(fleet["t-0"])) == ()
    assert await pool.detach(a_detach(fleet["t-0"])) == ()
    assert len(bed.running()) == 1


async def test_an_instance_of_another_group_is_not_ended(bed: Bed) -> None:
    bed.group("trainers", desired=1)
    bed.pass_time(30)
    stranger = bed.running("trainers")[0].instance_id
    fleet = await a_fleet(bed, 1)
    command = replace(an_end(fleet["t-0"]), instance_ids=(stranger,))
    assert await bed.pool().terminate(command) == ()
    assert stranger in {running.instance_id for running in bed.running()}


async def test_one_on_standby_is_left_to_who_put_it_there(bed: Bed) -> None:
    fleet = await a_fleet(bed, 1)
    bed.sim.call(
        "autoscaling",
        "EnterStandby",
        AutoScalingGroupName="rollout",
        InstanceIds=[fleet["t-0"].instance_id],
        ShouldDecrementDesiredCapacity=True,
    )
    bed.pass_time(5)
    with pytest.raises(NotYet, match="standby"):
        await bed.pool().terminate(an_end(fleet["t-0"]))


async def test_a_refused_group_is_not_shrunk(bed: Bed) -> None:
    fleet = await a_fleet(bed, 1)
    bed.sim.call("autoscaling", "StartInstanceRefresh", AutoScalingGroupName="rollout")
    bed.pass_time(90)
    with pytest.raises(NotYet, match="instance refresh"):
        await bed.pool().terminate(an_end(fleet["t-0"]))
    assert len(bed.running()) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [("Throttling", PoolUnavailable), ("AccessDenied", PoolUnavailable), ("ScalingActivityInProgress", NotYet)],
)
async def test_an_end_that_aws_refuses_is_asked_for_again(bed: Bed, code: str, error: type[Exception]) -> None:
    fleet = await a_fleet(bed, 2)
    pool = bed.pool()
    bed.sim.fail_next("TerminateInstanceInAutoScalingGroup", code)
    with pytest.raises(error):
        await pool.terminate(an_end(fleet["t-0"]))
    assert await pool.terminate(an_end(fleet["t-0"])) == (fleet["t-0"].instance_id,)
    assert bed.desired() == 1


async def test_an_end_whose_answer_is_lost_counts_once(bed: Bed) -> None:
    fleet = await a_fleet(bed, 2)
    pool = bed.pool()
    bed.sim.drop_next("TerminateInstanceInAutoScalingGroup")
    with pytest.raises(PoolUnavailable):
        await pool.terminate(an_end(fleet["t-0"]))
    await pool.terminate(an_end(fleet["t-0"]))
    bed.pass_time(60)
    assert bed.desired() == len(bed.running()) == 1


async def test_all_nodes_of_a_replica_end(bed: Bed) -> None:
    pool = bed.pool(nodes_per_replica=3)
    instances = await bed.up(pool, "t-1", "t-2")
    mine = [instance for instance in instances if instance.launch_token == "t-1"]
    assert len(await pool.terminate(an_end(*mine))) == 3
    bed.pass_time(60)
    assert list(await by_token(pool)) == ["t-2"]
    assert bed.desired() == 3


async def test_a_noticed_instance_leaves_the_group_is_not_replaced_and_not_ended(bed: Bed) -> None:
    fleet = await a_fleet(bed, 2)
    pool = bed.pool()
    bed.sim.fate.reclaim(ids=[fleet["t-0"].instance_id])
    bed.pass_time(60)
    assert await pool.detach(a_detach(fleet["t-0"])) == (fleet["t-0"].instance_id,)
    assert await pool.detach(a_detach(fleet["t-0"])) == ()
    bed.pass_time(300)
    assert bed.desired() == 1
    assert list(await by_token(pool)) == ["t-1"]
    assert [ended.by for ended in bed.sim.ended()] == [EndedBy.SPOT]


async def test_a_detached_one_that_lives_too_long_is_reaped(bed: Bed) -> None:
    fleet = await a_fleet(bed, 2)
    await bed.pool().detach(a_detach(fleet["t-0"]))
    bed.pass_time(300)
    assert await bed.restarted().terminate(an_end(fleet["t-0"])) == (fleet["t-0"].instance_id,)
    assert [ended.by for ended in bed.sim.ended()] == [EndedBy.TERMINATE_INSTANCES]
    assert bed.desired() == 1


async def test_an_adopted_instance_is_tagged_before_it_leaves_so_that_it_is_found_outside() -> None:
    bed = Bed()
    bed.group(desired=1)
    bed.pass_time(30)
    pool = bed.pool()
    (instance,) = await listed(pool)
    bed.sim.fail_next("CreateTags", "RequestLimitExceeded")
    with pytest.raises(PoolUnavailable):
        await pool.detach(a_detach(instance))
    assert bed.calls("DetachInstances") == 0
    await pool.detach(a_detach(instance))
    bed.pass_time(10)
    (left,) = await listed(bed.restarted())
    assert (left.instance_id, left.replica_id, left.attached) == (instance.instance_id, instance.replica_id, False)


async def test_one_that_is_not_in_service_yet_is_detached_later(bed: Bed) -> None:
    pool = bed.pool()
    await pool.launch(a_launch("t-1"))
    (instance,) = await listed(pool)
    with pytest.raises(NotYet, match="not in service"):
        await pool.detach(a_detach(instance))
    assert await until_settled(lambda: pool.detach(a_detach(instance)), bed) == (instance.instance_id,)


@pytest.mark.parametrize("act", ["terminate", "detach"])
async def test_one_that_waits_in_a_termination_hook_is_let_through(bed: Bed, act: str) -> None:
    fleet = await a_fleet(bed, 1)
    for name, transition in (("drain", "TERMINATING"), ("start", "LAUNCHING")):
        bed.sim.call(
            "autoscaling",
            "PutLifecycleHook",
            AutoScalingGroupName="rollout",
            LifecycleHookName=name,
            LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
        )
    one = fleet["t-0"]
    bed.sim.call(
        "autoscaling",
        "TerminateInstanceInAutoScalingGroup",
        InstanceId=one.instance_id,
        ShouldDecrementDesiredCapacity=True,
    )
    bed.pass_time(5)
    pool = bed.pool()
    done = await (pool.terminate(an_end(one)) if act == "terminate" else pool.detach(a_detach(one)))
    assert done == (one.instance_id,)
    bed.pass_time(30)
    assert bed.running() == []
    assert bed.calls("DetachInstances") == bed.calls("TerminateInstanceInAutoScalingGroup") == 0


async def test_two_hundred_leave_in_batches_that_aws_takes(bed: Bed) -> None:
    bed.sim.call("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="rollout", MaxSize=300)
    pool = bed.pool(nodes_per_replica=25)
    await asyncio.gather(*(pool.launch(a_launch(f"t-{n}")) for n in range(8)))
    bed.pass_time(60)
    replicas: dict[str, list[Instance]] = {}
    for instance in await listed(pool):
        replicas.setdefault(instance.replica_id, []).append(instance)
    left = await asyncio.gather(*(pool.detach(a_detach(*instances)) for instances in replicas.values()))
    assert sum(map(len, left)) == 200
    assert bed.desired() == 0
    assert all(len(call.parameters["InstanceIds"]) <= 20 for call in bed.sim.log.of("DetachInstances"))


@pytest.mark.parametrize("gone", [150, 151, 196, 201])
async def test_however_many_have_left_they_are_listed_on(gone: int) -> None:
    bed = Bed()
    bed.group(desired=gone, high=gone)
    bed.pass_time(60)
    pool = bed.pool()
    await asyncio.gather(*(pool.detach(a_detach(one)) for one in await listed(pool)))
    bed.pass_time(5)
    assert [one.attached for one in await listed(pool)] == [False] * gone
