import asyncio

import pytest

from scaler.act.base import InstanceState, LaunchResult, PoolUnavailable
from scaler.kube.facts import FLEET_LABEL
from scaler.model.capacity import CapacityType
from tests.builders.ec2_pools import (
    FLEET,
    OTHER_FLEET,
    TYPE,
    ZONE_A,
    ZONE_B,
    Bed,
    a_launch,
    an_offering,
    by_token,
    check_endings,
    listed,
    until_settled,
)
from tests.simcloud.market import SPOT, Offering, Refusal

HERE = Offering(TYPE, ZONE_A, SPOT)


async def test_a_launch_brings_one_instance_of_the_offering_tagged_and_listed(bed: Bed) -> None:
    pool = bed.pool()
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.LAUNCHED
    (instance,) = await listed(pool)
    assert instance.instance_id == outcome.instance_id
    assert (instance.launch_token, instance.state) == ("t-1", InstanceState.PENDING)
    assert instance.offering_id == an_offering().offering_id
    bed.pass_time(30)
    assert await by_token(pool) == {"t-1": InstanceState.RUNNING}
    (running,) = bed.running()
    assert running.tags["headrace.dev/fleet"] == FLEET
    assert running.tags["headrace.dev/launch-token"] == "t-1"
    assert running.tags["headrace.dev/replica"] == instance.replica_id
    assert running.protected


async def test_the_same_token_never_launches_twice_whichever_controller_repeats_it(bed: Bed) -> None:
    first = await bed.pool().launch(a_launch("t-1"))
    again = await bed.pool().launch(a_launch("t-1"))
    elsewhere = await bed.restarted().launch(a_launch("t-1"))
    assert again.result is elsewhere.result is LaunchResult.ALREADY
    assert first.instance_id == again.instance_id == elsewhere.instance_id
    assert len(bed.running()) == 1


async def test_the_launch_goes_to_the_offerings_zone() -> None:
    bed = Bed()
    bed.group(zones=(ZONE_A, ZONE_B))
    pool = bed.pool(offerings=(an_offering(ZONE_A), an_offering(ZONE_B)))
    await bed.up(pool, "t-1", "t-2", "t-3", offering=an_offering(ZONE_B))
    assert [instance.zone for instance in bed.running()] == [ZONE_B] * 3


async def test_launches_side_by_side_each_bring_their_own(bed: Bed) -> None:
    pool = bed.pool()
    outcomes = await asyncio.gather(*(pool.launch(a_launch(f"t-{n}")) for n in range(20)))
    assert {outcome.result for outcome in outcomes} == {LaunchResult.LAUNCHED}
    assert len({outcome.instance_id for outcome in outcomes}) == 20
    assert sorted(await by_token(pool)) == sorted(f"t-{n}" for n in range(20))
    assert bed.desired() == 20


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("InsufficientInstanceCapacity", LaunchResult.INSUFFICIENT_CAPACITY),
        ("UnfulfillableCapacity", LaunchResult.INSUFFICIENT_CAPACITY),
        ("MaxSpotInstanceCountExceeded", LaunchResult.QUOTA),
        ("VcpuLimitExceeded", LaunchResult.QUOTA),
        ("SpotMaxPriceTooLow", LaunchResult.CONFIGURATION),
        ("ValidationError", LaunchResult.CONFIGURATION),
        ("UnauthorizedOperation", LaunchResult.AUTHORISATION),
        ("RequestLimitExceeded", LaunchResult.THROTTLED),
        ("Throttling", LaunchResult.THROTTLED),
        ("NobodyKnowsThis", LaunchResult.FAILED),
    ],
)
async def test_a_refusal_is_told_as_what_it_is_wherever_aws_puts_it(bed: Bed, code: str, result: LaunchResult) -> None:
    pool = bed.pool()
    bed.sim.fail_next("LaunchInstances", code)
    assert (await pool.launch(a_launch("t-1"))).result is result
    bed.sim.market.set_refusal(HERE, Refusal(code=code, message="in the answer's Errors"))
    outcome = await pool.launch(a_launch("t-2"))
    assert outcome.result is result
    assert code in outcome.message
    assert bed.running() == []
    assert bed.desired() == 0


async def test_an_unknown_offering_is_a_fault_of_the_configuration(bed: Bed) -> None:
    outcome = await bed.pool().launch(a_launch("t-1", an_offering(ZONE_B)))
    assert outcome.result is LaunchResult.CONFIGURATION
    assert bed.calls("LaunchInstances") == 0


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_launch_whose_answer_is_lost_is_asked_for_again_and_is_one(bed: Bed, *, carried_out: bool) -> None:
    pool = bed.pool()
    bed.sim.drop_next("LaunchInstances", carried_out=carried_out)
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-1"))
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert list(await by_token(pool)) == ["t-1"]
    assert len(bed.running()) == 1


async def test_what_a_lost_answer_brought_is_not_adopted_under_another_name_meanwhile(bed: Bed) -> None:
    pool = bed.pool()
    bed.sim.drop_next("LaunchInstances")
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-1"))
    assert [instance.launch_token for instance in await listed(pool)] in ([], ["t-1"])


async def test_contention_is_no_refusal_and_the_token_comes_again(bed: Bed) -> None:
    pool = bed.pool()
    bed.sim.contend("rollout", 15)
    outcome = await until_settled(lambda: pool.launch(a_launch("t-1")), bed)
    assert outcome.result is LaunchResult.LAUNCHED
    assert len(bed.running()) == 1


async def test_tags_that_could_not_be_written_are_written_with_the_next_try(bed: Bed) -> None:
    pool = bed.pool()
    bed.sim.fail_next("CreateTags", "InvalidInstanceID.NotFound")
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-1"))
    assert list(await by_token(pool)) == ["t-1"]
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.ALREADY
    (running,) = bed.running()
    assert running.tags[FLEET_LABEL] == FLEET


async def test_a_controller_that_died_before_it_tagged_is_made_good_by_the_next(bed: Bed) -> None:
    bed.sim.fail_next("CreateTags", "RequestLimitExceeded")
    with pytest.raises(PoolUnavailable):
        await bed.pool().launch(a_launch("t-1"))
    pool = bed.restarted()
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert list(await by_token(pool)) == ["t-1"]
    assert len(bed.running()) == 1


async def test_k_nodes_come_together_as_one_replica(bed: Bed) -> None:
    pool = bed.pool(nodes_per_replica=4)
    instances = await bed.up(pool, "t-1", "t-2")
    assert len(instances) == 8
    assert len({instance.replica_id for instance in instances}) == 2
    assert bed.desired() == 8


async def test_a_replica_that_comes_in_part_is_ended_and_refused(bed: Bed) -> None:
    pool = bed.pool(nodes_per_replica=4)
    bed.sim.market.set_capacity(HERE, 3)
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
    assert {instance.launch_token for instance in await listed(pool)} <= {""}
    assert all(instance.state is InstanceState.SHUTTING_DOWN for instance in await listed(pool))
    bed.pass_time(30)
    assert bed.running() == []
    assert bed.desired() == 0


async def test_a_part_that_could_not_be_ended_is_ended_with_the_next_try(bed: Bed) -> None:
    pool = bed.pool(nodes_per_replica=2)
    bed.sim.market.set_capacity(HERE, 1)
    bed.sim.fail_next("TerminateInstanceInAutoScalingGroup", "Throttling")
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-1"))
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.INSUFFICIENT_CAPACITY
    bed.pass_time(30)
    assert bed.running() == []


async def test_what_was_not_asked_for_is_not_kept() -> None:
    bed = Bed()
    bed.group(market="on-demand")
    outcome = await bed.pool().launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.CONFIGURATION
    assert "OnDemand" in outcome.message
    bed.pass_time(30)
    assert bed.running() == []
    check_endings(bed)


async def test_a_group_at_its_maximum_says_so_before_aws_is_asked() -> None:
    bed = Bed()
    bed.group(high=2)
    pool = bed.pool()
    outcomes = await asyncio.gather(*(pool.launch(a_launch(f"t-{n}")) for n in range(5)))
    assert sorted(outcome.result for outcome in outcomes) == [LaunchResult.LAUNCHED] * 2 + [LaunchResult.NO_ROOM] * 3
    assert any("room for 0" in outcome.message for outcome in outcomes)
    assert bed.calls("LaunchInstances") == 2


async def test_a_refused_group_launches_nothing(bed: Bed) -> None:
    pool = bed.pool()
    bed.sim.call("autoscaling", "PutScalingPolicy", AutoScalingGroupName="rollout", PolicyName="target")
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.CONFIGURATION
    assert outcome.message.startswith("another owner:")
    assert bed.calls("LaunchInstances") == 0


async def test_instances_that_were_there_unprotected_are_protected_before_anything_is_launched() -> None:
    bed = Bed()
    bed.group(protected=False, desired=2)
    bed.pass_time(30)
    bed.sim.call(
        "autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="rollout", NewInstancesProtectedFromScaleIn=True
    )
    pool = bed.pool()
    await pool.launch(a_launch("t-1"))
    assert all(instance.protected for instance in bed.running())


async def test_another_fleets_instances_are_never_tagged_over() -> None:
    bed = Bed()
    bed.group(desired=1)
    bed.pass_time(30)
    (theirs,) = bed.running()
    theirs.tags[FLEET_LABEL] = OTHER_FLEET
    await bed.up(bed.pool(), "t-1")
    assert theirs.tags[FLEET_LABEL] == OTHER_FLEET


async def test_while_lists_lag_every_launch_is_listed_once_and_under_its_own_token(bed: Bed) -> None:
    bed.sim.set_describe_lag(3.0)
    pool = bed.pool()
    for number in range(5):
        await until_settled(lambda n=number: pool.launch(a_launch(f"t-{n}")), bed, every_s=1.0)
        tokens = [instance.launch_token for instance in await listed(pool)]
        assert "" not in tokens
        assert len(tokens) == len(set(tokens))
        bed.pass_time(1.0)
    bed.pass_time(30)
    assert sorted(await by_token(pool)) == [f"t-{n}" for n in range(5)]
    assert len(bed.running()) == 5


async def test_on_demand_is_told_from_spot() -> None:
    bed = Bed()
    bed.group(market="on-demand")
    offering = an_offering(capacity_type=CapacityType.ON_DEMAND)
    (instance,) = await bed.up(bed.pool(offerings=(offering,)), "t-1", offering=offering)
    assert instance.offering_id == f"{TYPE}/{ZONE_A}/on-demand"
