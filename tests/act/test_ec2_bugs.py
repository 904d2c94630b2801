"""Bug reports of other autoscalers that can happen to pools on Auto Scaling groups: none may be ours.

Numbers are those of `tests.bug_reports`; each test says what went wrong there, and where.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from scaler.act.base import InstanceState, LaunchResult, NotYet, PoolUnavailable
from scaler.kube.facts import FLEET_LABEL
from scaler.model.pool import Instance
from tests.builders.ec2_pools import (
    TYPE,
    ZONE_A,
    Bed,
    Deployment,
    a_detach,
    a_launch,
    an_end,
    by_token,
    listed,
    until_settled,
)
from tests.simcloud.journal import EndedBy
from tests.simcloud.market import SPOT, Offering

HERE = Offering(TYPE, ZONE_A, SPOT)
BOTH_WAYS = pytest.mark.parametrize("up", ["launch_instances", "set_desired_capacity"])


async def a_fleet(bed: Bed, size: int, **more: Any) -> dict[str, Instance]:
    pool = bed.pool(**more)
    for number in range(size):
        await until_settled(lambda n=number: pool.launch(a_launch(f"t-{n}")), bed, every_s=5.0)
    bed.pass_time(30)
    return {instance.launch_token: instance for instance in await listed(pool)}


def resize(bed: Bed, desired: int) -> None:
    """Somebody else writes the size."""
    bed.sim.call(
        "autoscaling", "SetDesiredCapacity", caller="OPERATOR", AutoScalingGroupName="rollout", DesiredCapacity=desired
    )


@BOTH_WAYS
async def test_bug_041_a_launch_that_fails_takes_nothing_back_from_the_group(bed: Bed, up: str) -> None:
    """CA#9182: placeholders rolled back by an absolute write ended 32 machines, some with running jobs."""
    fleet = await a_fleet(bed, 4, up=up)
    pool = bed.pool(up=up)
    bed.sim.market.set_capacity(HERE, 4)
    outcome = await until_settled(lambda: pool.launch(a_launch("t-9")), bed)
    assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
    bed.pass_time(300)
    assert sorted(await by_token(pool)) == sorted(fleet)
    written = [call.parameters["DesiredCapacity"] for call in bed.sim.log.of("SetDesiredCapacity")]
    assert written == sorted(written)
    assert bed.sim.ended() == []


@BOTH_WAYS
async def test_bug_042_capacity_that_comes_between_reading_and_writing_costs_nobody(bed: Bed, up: str) -> None:
    """CA#10147: the group filled up between Describe and Set, and the set value was one too low."""
    await a_fleet(bed, 3, up=up)
    pool = bed.pool(up=up)
    bed.sim.market.set_capacity(HERE, 4)
    outcomes = [await until_settled(lambda n=n: pool.launch(a_launch(f"u-{n}")), bed) for n in range(3)]
    assert LaunchResult.INSUFFICIENT_CAPACITY in {outcome.result for outcome in outcomes}
    bed.sim.market.set_capacity(HERE, None)
    bed.pass_time(120)
    assert bed.sim.ended() == []
    assert bed.desired() == len(bed.running())


async def test_bug_043_a_broken_template_costs_no_healthy_node(bed: Bed) -> None:
    """CA#6795: nodes that never registered were taken off the count, and the oldest went."""
    fleet = await a_fleet(bed, 3)
    pool = bed.pool()
    bed.sim.fail_next("LaunchInstances", "InvalidLaunchTemplateId.NotFound", times=5)
    for number in range(5):
        assert (await pool.launch(a_launch(f"b-{number}"))).result is LaunchResult.CONFIGURATION
    bed.pass_time(300)
    assert sorted(await by_token(pool)) == sorted(fleet)


async def test_bug_044_a_replacement_that_the_group_is_making_is_counted(bed: Bed) -> None:
    """CA#4071: scaled up although the group was replacing the lost node already."""
    fleet = await a_fleet(bed, 2)
    pool = bed.pool()
    bed.sim.settings.launch_delay_s = (40.0, 40.0)
    bed.sim.fate.fail([fleet["t-0"].instance_id])
    bed.pass_time(25)
    assert await by_token(pool) == {"t-1": InstanceState.RUNNING, "": InstanceState.PENDING}


@pytest.mark.parametrize("comes", [True, False], ids=["it comes", "it does not come"])
async def test_bug_044_a_launch_under_way_without_an_instance_answers_ours(bed: Bed, *, comes: bool) -> None:
    pool = bed.pool()
    bed.sim.market.set_capacity(HERE, 0)
    resize(bed, 1)
    bed.pass_time(30)
    under_way = {
        "ActivityId": "a-1",
        "Description": "Launching a new EC2 instance",
        "StatusCode": "WaitingForSpotInstanceId",
        "StartTime": datetime.fromtimestamp(bed.clock.now_s(), UTC),
    }
    original = bed.aws.call

    async def call(service: str, operation: str, /, **parameters: Any) -> Any:
        return (
            {"Activities": [under_way]}
            if operation == "DescribeScalingActivities"
            else await original(service, operation, **parameters)
        )

    bed.aws.call = call  # type: ignore[method-assign]
    with pytest.raises(PoolUnavailable, match="has been told to launch"):
        await pool.launch(a_launch("t-1"))
    assert bed.calls("LaunchInstances") == 0
    bed.sim.market.set_capacity(HERE, 1)
    if not comes:
        bed.sim.call("autoscaling", "SuspendProcesses", AutoScalingGroupName="rollout", ScalingProcesses=["Launch"])
        bed.pass_time(121)
        bed.sim.call("autoscaling", "ResumeProcesses", AutoScalingGroupName="rollout", ScalingProcesses=["Launch"])
    outcome = await until_settled(lambda: pool.launch(a_launch("t-1")), bed, every_s=5.0)
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert bed.calls("LaunchInstances") == (0 if comes else 1)
    assert list(await by_token(pool)) == ["t-1"]


async def test_bug_045_a_share_of_on_demand_is_refused(bed: Bed) -> None:
    """CA#6787: an on-demand node was ended, and the group launched another to keep its share."""
    policy = {
        "LaunchTemplate": {"LaunchTemplateSpecification": bed.sim.groups.get("rollout").template},
        "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 30},
    }
    bed.sim.call("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="rollout", MixedInstancesPolicy=policy)
    assert "mixes Spot and on-demand" in ((await bed.pool().observe()).refused_reason or "")


async def test_bug_046_a_size_that_somebody_lowers_finds_every_node_protected(bed: Bed) -> None:
    """CA#144: a user changed the desired size, and a node that was not to go went."""
    fleet = await a_fleet(bed, 4)
    resize(bed, 1)
    bed.pass_time(300)
    assert sorted(await by_token(bed.pool())) == sorted(fleet)
    assert bed.sim.ended() == []


async def test_bug_047_instances_count_and_not_the_size(bed: Bed) -> None:
    """CA#5728: a group that ran more than its size was never scaled in."""
    fleet = await a_fleet(bed, 4)
    resize(bed, 2)
    bed.pass_time(60)
    pool = bed.pool()
    assert len(await listed(pool)) == 4
    assert await pool.terminate(an_end(fleet["t-1"])) == (fleet["t-1"].instance_id,)
    bed.pass_time(60)
    assert sorted(await by_token(pool)) == ["t-0", "t-2", "t-3"]


async def test_bug_048_lack_of_capacity_is_told_below_the_minimum_too() -> None:
    """CA#4351: a group below its minimum never came to its back-off."""
    bed = Bed()
    bed.sim.market.set_capacity(HERE, 0)
    bed.group(low=2, desired=2)
    bed.pass_time(60)
    pool = bed.pool()
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
    await pool.observe()
    assert pool.facts()[f"{TYPE}/{ZONE_A}/spot"].refused_at_s is not None


@BOTH_WAYS
async def test_bug_049_a_launch_beside_an_end_makes_no_node_too_many(bed: Bed, up: str) -> None:
    """CA#9813: two notions of what is on its way, and extra nodes where up met down."""
    fleet = await a_fleet(bed, 4, up=up)
    pool = bed.pool(up=up)
    await asyncio.gather(
        pool.terminate(an_end(fleet["t-0"])),
        until_settled(lambda: pool.launch(a_launch("u-0")), bed, every_s=3.0),
        pool.terminate(an_end(fleet["t-1"])),
        until_settled(lambda: pool.launch(a_launch("u-1")), bed, every_s=3.0),
    )
    bed.pass_time(120)
    assert sorted(await by_token(pool)) == ["t-2", "t-3", "u-0", "u-1"]
    assert bed.desired() == len(bed.running()) == 4


async def test_bug_050_the_decrement_has_one_owner_and_is_counted_once(bed: Bed) -> None:
    """buildkite-agent-scaler#350: instance and scaler both decremented for one end."""
    fleet = await a_fleet(bed, 4)
    command = an_end(fleet["t-0"])
    controllers = [bed.pool(), bed.restarted(), bed.restarted()]
    await asyncio.gather(*(pool.terminate(command) for pool in controllers))
    bed.pass_time(60)
    await asyncio.gather(*(pool.terminate(command) for pool in controllers))
    assert bed.desired() == len(bed.running()) == 3


async def test_bug_051_the_minimum_is_looked_at_before_a_pod_is_touched() -> None:
    """nomad-autoscaler#1290: nodes were drained, and then the group refused at its minimum size."""
    bed = Bed()
    bed.group()
    workers = Deployment()
    pool = bed.pool(worker_set=workers)
    (instance,) = await bed.up(pool, "t-1")
    bed.sim.call("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="rollout", MinSize=1)
    bed.pass_time(5)
    workers.schedule(bed.nodes.join(instance.instance_id).name)
    with pytest.raises(NotYet, match="must hold 1: lower its minimum size"):
        await pool.terminate(an_end(instance))
    assert workers.desired == 1
    assert not any(pod.terminating for pod in workers.pods.values())
    assert bed.calls("TerminateInstanceInAutoScalingGroup") == 0
    with pytest.raises(NotYet, match="minimum size"):
        await pool.detach(a_detach(instance))
    assert bed.calls("DetachInstances") == 0


async def test_bug_052_az_rebalance_is_refused_and_never_ends_a_protected_node() -> None:
    """buildkite elastic-ci-stack#435: AZRebalance ended jobs after a Spot loss."""
    bed = Bed()
    bed.group(zones=(ZONE_A, "us-east-1b"), balanced=True)
    assert "AZRebalance" in ((await bed.pool().observe()).refused_reason or "")


async def test_bug_056a_an_end_that_was_throttled_is_asked_for_again(bed: Bed) -> None:
    """buildkite-agent-scaler#340: marked before it was ended, throttled, and skipped for ever."""
    fleet = await a_fleet(bed, 2)
    pool = bed.pool()
    bed.sim.fail_next("TerminateInstanceInAutoScalingGroup", "Throttling", times=3)
    ended = await until_settled(lambda: pool.terminate(an_end(fleet["t-0"])), bed)
    assert ended == (fleet["t-0"].instance_id,)
    bed.pass_time(30)
    assert len(bed.running()) == 1


async def test_bug_056a_an_end_without_effect_may_be_named_again(bed: Bed) -> None:
    fleet = await a_fleet(bed, 1)
    pool = bed.pool()
    original = bed.aws.call

    async def nothing(service: str, operation: str, /, **parameters: Any) -> Any:
        return {} if operation.startswith("Terminate") else await original(service, operation, **parameters)

    bed.aws.call = nothing  # type: ignore[method-assign]
    assert await pool.terminate(an_end(fleet["t-0"])) == (fleet["t-0"].instance_id,)
    bed.aws.call = original  # type: ignore[method-assign]
    assert await pool.terminate(an_end(fleet["t-0"])) == ()
    bed.pass_time(61)
    assert await pool.terminate(an_end(fleet["t-0"])) == (fleet["t-0"].instance_id,)


async def test_bug_059_a_node_is_found_by_instance_id_and_not_by_name(bed: Bed) -> None:
    """KP#2734: names and addresses come again, and instances were lost sight of."""
    pool = bed.pool()
    (old,) = await bed.up(pool, "t-1")
    node = bed.nodes.join(old.instance_id)
    bed.sim.fate.fail([old.instance_id])
    bed.pass_time(60)
    new = await bed.up(pool, "t-2")
    assert all(instance.node_name != node.name for instance in new)


async def test_bug_060_an_instance_that_a_list_leaves_out_for_a_moment_is_not_ended(bed: Bed) -> None:
    """KP#3951: a newer list of the cloud against an older one of the cluster, and live instances were collected."""
    fleet = await a_fleet(bed, 5)
    bed.sim.set_describe_lag(5.0)
    pool = bed.restarted()
    for _ in range(20):
        await pool.observe()
        bed.pass_time(1)
    assert sorted(await by_token(pool)) == sorted(fleet)
    assert bed.sim.ended() == []


async def test_bug_061_a_launch_is_never_lost_whatever_the_controller_lived_through(bed: Bed) -> None:
    """KP#549: a tenth of the instances leaked at 1,000 nodes, as launches were not recorded before a crash."""
    for number in range(12):
        pool = bed.restarted()
        trouble = number % 4
        if trouble == 1:
            bed.sim.drop_next("LaunchInstances")
        elif trouble == 2:
            bed.sim.fail_next("CreateTags", "InternalError")
        elif trouble == 3:
            bed.sim.drop_next("CreateTags", carried_out=False)
        try:
            await pool.launch(a_launch(f"t-{number}"))
        except PoolUnavailable:
            await bed.restarted().launch(a_launch(f"t-{number}"))
        bed.pass_time(3)
    bed.pass_time(30)
    tokens = [instance.launch_token for instance in await listed(bed.restarted())]
    assert sorted(tokens) == sorted(f"t-{n}" for n in range(12))
    assert len(bed.running()) == 12


async def test_bug_062_an_instance_is_never_the_answer_to_two_launches(bed: Bed) -> None:
    """KP#3717: a batch answered two claims with one instance."""
    pool = bed.pool()
    first = await pool.launch(a_launch("t-1"))
    group = bed.sim.groups.get("rollout")
    (remembered,) = group.launches.values()
    original = bed.aws.call

    async def doubled(service: str, operation: str, /, **parameters: Any) -> Any:
        return remembered.answer if operation == "LaunchInstances" else await original(service, operation, **parameters)

    bed.aws.call = doubled  # type: ignore[method-assign]
    second = await pool.launch(a_launch("t-2"))
    assert second.result is LaunchResult.FAILED
    assert first.instance_id is not None
    assert first.instance_id in second.message
    assert list(await by_token(pool)) == ["t-1"]


@pytest.mark.parametrize("code", ["SpotMaxPriceTooLow", "InternalProviderFault", "SomethingNew"])
async def test_bug_065_and_066_an_unknown_error_is_a_refusal_of_this_offering_only(bed: Bed, code: str) -> None:
    """KP#9498, KP#9616: an error that nobody had listed stopped every pool, or was never counted at all."""
    bed.sim.fail_next("LaunchInstances", code)
    outcome = await bed.pool().launch(a_launch("t-1"))
    assert outcome.result in (LaunchResult.CONFIGURATION, LaunchResult.FAILED)
    assert (await bed.pool().launch(a_launch("t-2"))).result is LaunchResult.LAUNCHED


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling", "ThrottlingException"])
async def test_bug_067_and_074_throttling_says_nothing_about_capacity(bed: Bed, code: str) -> None:
    """KP#8923, CA#5271: RequestLimitExceeded made an offering unavailable."""
    bed.sim.fail_next("LaunchInstances", code)
    pool = bed.pool()
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.THROTTLED
    await pool.observe()
    assert all(facts.refused_at_s is None for facts in pool.facts().values())


async def test_bug_068_the_spot_quota_is_a_quota(bed: Bed) -> None:
    """KP#5789: MaxSpotInstanceCountExceeded without a way to on-demand."""
    bed.sim.market.set_quota(SPOT, 0)
    assert (await bed.pool().launch(a_launch("t-1"))).result is LaunchResult.QUOTA


async def test_bug_072_failed_activities_are_read_and_not_waited_out(bed: Bed) -> None:
    """CA#3241: a dry Spot pool was waited for 15 minutes."""
    bed.sim.market.set_capacity(HERE, 0)
    began_s = bed.clock.now_s()
    pool = bed.pool(up="set_desired_capacity")
    outcome = await until_settled(lambda: pool.launch(a_launch("t-1")), bed, every_s=5.0)
    assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
    assert bed.clock.now_s() - began_s < 60


async def test_bug_073_calls_do_not_grow_with_the_fleet(bed: Bed) -> None:
    """CA#252: a Describe per group and loop ran into RequestLimitExceeded."""
    await a_fleet(bed, 40)
    pool = bed.restarted()
    await pool.observe()
    before = len(bed.sim.log.calls)
    for _ in range(10):
        bed.pass_time(10)
        await pool.observe()
    assert len(bed.sim.log.calls) - before < 50


async def test_bug_095_what_is_gone_is_not_listed_from_memory(bed: Bed) -> None:
    """KP#9479: an instance cache without an end showed ghosts for an hour."""
    fleet = await a_fleet(bed, 3)
    pool = bed.pool()
    bed.sim.fate.fail([fleet["t-0"].instance_id])
    bed.pass_time(10)
    assert "t-0" not in await by_token(pool)


async def test_of_an_interruption_without_notice_nothing_is_ended_by_us(bed: Bed) -> None:
    fleet = await a_fleet(bed, 3)
    bed.sim.fate.reclaim(ids=[fleet["t-0"].instance_id], noticed=False)
    bed.pass_time(120)
    assert {ended.by for ended in bed.sim.ended()} == {EndedBy.SPOT}
    states = await by_token(bed.pool())
    assert set(states.values()) == {InstanceState.RUNNING}
    assert "" in states, "what the group launched in its place is adopted"
    assert all(FLEET_LABEL not in r.tags or r.tags[FLEET_LABEL] for r in bed.running())
