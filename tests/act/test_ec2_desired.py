"""Raising a group by its desired capacity, where LaunchInstances is not to be had."""

import asyncio
from typing import Any

import pytest

from scaler.act.base import LaunchOutcome, LaunchResult, PoolUnavailable
from tests.builders.ec2_pools import (
    TYPE,
    ZONE_A,
    ZONE_B,
    Bed,
    a_launch,
    an_end,
    an_offering,
    by_token,
    check_endings,
    listed,
    until_settled,
)
from tests.simcloud.market import SPOT, Offering

BY_SIZE = {"up": "set_desired_capacity"}
HERE = Offering(TYPE, ZONE_A, SPOT)


async def test_the_group_is_raised_by_one_and_its_newcomer_answers_the_token(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    with pytest.raises(PoolUnavailable, match="not yet"):
        await pool.launch(a_launch("t-1"))
    assert bed.desired() == 1
    outcome = await until_settled(lambda: pool.launch(a_launch("t-1")), bed)
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert list(await by_token(pool)) == ["t-1"]
    assert bed.running()[0].tags["headrace.dev/launch-token"] == "t-1"
    assert bed.calls("LaunchInstances") == 0


async def test_repeats_raise_it_once(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    for _ in range(5):
        with pytest.raises(PoolUnavailable):
            await pool.launch(a_launch("t-1"))
    assert bed.desired() == 1
    assert bed.calls("SetDesiredCapacity") == 1


async def test_launches_side_by_side_are_written_one_after_another(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)

    async def launched(number: int) -> LaunchOutcome:
        outcome: LaunchOutcome = await until_settled(lambda: pool.launch(a_launch(f"t-{number}")), bed, every_s=1.0)
        return outcome

    outcomes = await asyncio.gather(*(launched(number) for number in range(10)))
    assert len({outcome.instance_id for outcome in outcomes}) == 10
    assert bed.desired() == len(bed.running()) == 10
    assert sorted(await by_token(pool)) == sorted(f"t-{n}" for n in range(10))


async def test_a_description_that_lags_never_lowers_what_was_written(bed: Bed) -> None:
    bed.sim.set_describe_lag(8.0)
    pool = bed.pool(**BY_SIZE)
    for number in range(6):
        with pytest.raises(PoolUnavailable):
            await pool.launch(a_launch(f"t-{number}"))
        bed.clock.pass_time(0.2)
    written = [call.parameters["DesiredCapacity"] for call in bed.sim.log.of("SetDesiredCapacity")]
    assert written == sorted(written)
    assert bed.desired() == 6


async def test_what_is_told_and_not_there_is_used_up_before_the_group_is_raised_again(bed: Bed) -> None:
    """A group without capacity would otherwise be raised by every try, and come back all at once."""
    pool = bed.pool(**BY_SIZE)
    bed.sim.market.set_capacity(HERE, 0)
    for number in range(4):
        outcome = await until_settled(lambda n=number: pool.launch(a_launch(f"t-{n}")), bed)
        assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
        bed.pass_time(60)
    assert bed.desired() == 1
    bed.sim.market.set_capacity(HERE, None)
    outcome = await until_settled(lambda: pool.launch(a_launch("t-9")), bed)
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert bed.desired() == len(bed.running()) == 1


async def test_failed_activities_are_the_refusals_and_say_which(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    bed.sim.market.set_quota(SPOT, 0)
    outcome = await until_settled(lambda: pool.launch(a_launch("t-1")), bed)
    assert outcome.result is LaunchResult.QUOTA
    assert "MaxSpotInstanceCountExceeded" in outcome.message


async def test_what_we_ended_is_neither_raised_again_nor_waited_for(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    for token in ("t-1", "t-2", "t-3"):
        await until_settled(lambda t=token: pool.launch(a_launch(t)), bed, every_s=5.0)
    bed.pass_time(10)
    first, second, _ = await listed(pool)
    await pool.terminate(an_end(first))
    await pool.terminate(an_end(second))
    began_s = bed.clock.now_s()
    await until_settled(lambda: pool.launch(a_launch("t-4")), bed, every_s=2.0)
    assert bed.clock.now_s() - began_s < 15
    bed.pass_time(60)
    assert bed.desired() == len(bed.running()) == 2


async def test_a_size_that_somebody_lowered_below_what_runs_is_raised_from_what_runs(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    for token in ("t-1", "t-2", "t-3"):
        await until_settled(lambda t=token: pool.launch(a_launch(t)), bed, every_s=5.0)
    bed.pass_time(90)
    bed.sim.call(
        "autoscaling", "SetDesiredCapacity", caller="OPERATOR", AutoScalingGroupName="rollout", DesiredCapacity=1
    )
    bed.pass_time(5)
    await until_settled(lambda: pool.launch(a_launch("t-4")), bed)
    written = [call for call in bed.sim.log.of("SetDesiredCapacity") if call.caller == bed.aws.caller]
    assert written[-1].parameters["DesiredCapacity"] == 4
    assert len(written) == 4
    assert bed.desired() == len(bed.running()) == 4
    assert bed.sim.ended() == []


async def test_a_description_of_before_the_last_write_does_not_lower_it(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    await pool.observe()
    original = bed.aws.call
    before = {
        operation: await original(service, operation)
        for service, operation in (("autoscaling", "DescribeAutoScalingGroups"), ("ec2", "DescribeInstances"))
    }
    for token in ("t-1", "t-2", "t-3"):
        await until_settled(lambda t=token: pool.launch(a_launch(t)), bed, every_s=5.0)

    async def stale(service: str, operation: str, /, **parameters: Any) -> Any:
        return before.get(operation) or await original(service, operation, **parameters)

    bed.aws.call = stale  # type: ignore[method-assign]
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-4"))
    assert bed.desired() >= 3
    bed.aws.call = original  # type: ignore[method-assign]
    await until_settled(lambda: pool.launch(a_launch("t-4")), bed)
    assert bed.desired() == 4


async def test_the_maximum_is_not_written_over() -> None:
    bed = Bed()
    bed.group(high=1)
    pool = bed.pool(**BY_SIZE)
    await until_settled(lambda: pool.launch(a_launch("t-1")), bed)
    outcome = await pool.launch(a_launch("t-2"))
    assert outcome.result is LaunchResult.NO_ROOM
    assert bed.desired() == 1


async def test_a_write_that_aws_refuses_is_told(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    bed.sim.fail_next("SetDesiredCapacity", "AccessDenied")
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.AUTHORISATION
    bed.sim.drop_next("SetDesiredCapacity")
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-2"))
    await until_settled(lambda: pool.launch(a_launch("t-2")), bed)
    assert bed.desired() == len(bed.running()) == 1


async def test_several_zones_cannot_be_chosen_from_so_they_are_refused() -> None:
    bed = Bed()
    bed.group(zones=(ZONE_A, ZONE_B))
    pool = bed.pool(**BY_SIZE, offerings=(an_offering(ZONE_A), an_offering(ZONE_B)))
    assert "choose a zone" in ((await pool.observe()).refused_reason or "")


async def test_a_launch_that_nobody_asks_for_any_more_leaves_its_place_to_the_next(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE)
    bed.sim.market.set_capacity(HERE, 0)
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-1"))
    bed.pass_time(300)
    bed.sim.market.set_capacity(HERE, None)
    outcome = await until_settled(lambda: pool.launch(a_launch("t-2")), bed)
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert bed.desired() == len(bed.running()) == 1
    assert list(await by_token(pool)) == ["t-2"]


async def test_k_nodes_are_raised_and_taken_together(bed: Bed) -> None:
    pool = bed.pool(**BY_SIZE, nodes_per_replica=3)
    await until_settled(lambda: pool.launch(a_launch("t-1")), bed)
    assert bed.desired() == 3
    assert {instance.launch_token for instance in await listed(pool)} == {"t-1"}
    check_endings(bed)


async def test_what_is_listed_under_its_own_id_keeps_it() -> None:
    bed = Bed()
    bed.group(desired=1)
    bed.pass_time(30)
    pool = bed.pool(**BY_SIZE)
    (adopted,) = await listed(pool)
    with pytest.raises(PoolUnavailable):
        await pool.launch(a_launch("t-1"))
    await until_settled(lambda: pool.launch(a_launch("t-1")), bed)
    assert {instance.instance_id: instance.launch_token for instance in await listed(pool)}[adopted.instance_id] == ""
    assert bed.desired() == 2


async def test_what_came_while_no_controller_was_there_is_not_asked_for_twice(bed: Bed) -> None:
    with pytest.raises(PoolUnavailable):
        await bed.pool(**BY_SIZE).launch(a_launch("t-1"))
    bed.pass_time(60)
    pool = bed.restarted(**BY_SIZE)
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.LAUNCHED
    assert list(await by_token(pool)) == ["t-1"]
    assert bed.desired() == 1
