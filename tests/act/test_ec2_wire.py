"""The same pool over the wire: boto3 against the simulated region over HTTP, moto's server, and requests written down."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from scaler.act.auto_scaling_group import AutoScalingGroupPool, AutoScalingGroupSettings
from scaler.act.base import InstanceState, LaunchResult, NotYet, PoolUnavailable
from scaler.act.eks_node_group import EksNodeGroupPool, EksNodeGroupSettings
from scaler.aws.client import BotoAws
from scaler.model.capacity import CapacityType
from tests.builders.aws import opened, stubbed
from tests.builders.clock import FakeClock
from tests.builders.ec2_pools import FLEET, ZONE_A, Bed, a_detach, a_launch, an_end, an_offering, by_token, listed
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.server import serve

pytestmark = pytest.mark.usefixtures("aws_environment")

ACTIONS = {
    ("autoscaling", "DescribeAutoScalingGroups"),
    ("autoscaling", "DescribePolicies"),
    ("autoscaling", "DescribeScheduledActions"),
    ("autoscaling", "DescribeInstanceRefreshes"),
    ("autoscaling", "DescribeScalingActivities"),
    ("autoscaling", "LaunchInstances"),
    ("autoscaling", "TerminateInstanceInAutoScalingGroup"),
    ("autoscaling", "DetachInstances"),
    ("ec2", "DescribeInstances"),
    ("ec2", "DescribeAvailabilityZones"),
    ("ec2", "DescribeSpotPriceHistory"),
    ("ec2", "GetSpotPlacementScores"),
    ("ec2", "CreateTags"),
    ("ec2", "TerminateInstances"),
}


@pytest_asyncio.fixture
async def wired() -> AsyncIterator[tuple[Bed, BotoAws]]:
    """A region over HTTP and our client on it, on one clock that is passed by hand."""
    bed = Bed()
    bed.group()
    with serve(bed.sim) as server:
        async with opened(server.address, bed.clock) as aws:
            yield bed, aws


def pool_on(bed: Bed, aws: BotoAws, **more: Any) -> AutoScalingGroupPool:
    settings = AutoScalingGroupSettings(
        aws=aws, group="rollout", fleet=FLEET, offerings=(an_offering(),), nodes=bed.nodes, **more
    )
    return AutoScalingGroupPool(settings, pool="spot", clock=bed.clock)


async def test_a_life_over_http_and_the_actions_that_it_needs(wired: tuple[Bed, BotoAws]) -> None:
    bed, aws = wired
    pool = pool_on(bed, aws)
    outcomes = await asyncio.gather(*(pool.launch(a_launch(f"t-{n}")) for n in range(4)))
    assert {outcome.result for outcome in outcomes} == {LaunchResult.LAUNCHED}
    assert (await pool.launch(a_launch("t-0"))).result is LaunchResult.ALREADY
    bed.pass_time(30)
    fleet = {instance.launch_token: instance for instance in await listed(pool)}
    assert {instance.state for instance in fleet.values()} == {InstanceState.RUNNING}
    assert fleet["t-0"].offering_id == an_offering().offering_id
    await pool.terminate(an_end(fleet["t-0"]))
    await pool.detach(a_detach(fleet["t-1"]))
    bed.pass_time(60)
    await pool.terminate(an_end(fleet["t-1"]))
    bed.pass_time(60)
    assert sorted(await by_token(pool)) == ["t-2", "t-3"]
    facts = pool.facts()[an_offering().offering_id]
    assert (facts.price_usd_per_h, facts.placement_score) == (10.0, 9)
    assert set(aws.counts()) == ACTIONS
    assert aws.ahead_s() == pytest.approx(0, abs=1)


async def test_a_token_is_asked_for_again_over_broken_connections_and_launches_once(
    wired: tuple[Bed, BotoAws],
) -> None:
    bed, aws = wired
    pool = pool_on(bed, aws)
    bed.sim.drop_next("LaunchInstances", times=1)
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.LAUNCHED
    assert len(bed.running()) == 1
    assert len(bed.sim.log.of("LaunchInstances")) == 2


async def test_errors_over_http_are_told_apart(wired: tuple[Bed, BotoAws]) -> None:
    bed, aws = wired
    pool = pool_on(bed, aws)
    bed.sim.fail_next("LaunchInstances", "InsufficientInstanceCapacity", times=9, status=400)
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.INSUFFICIENT_CAPACITY
    bed.sim.faults.script("DescribeAutoScalingGroups", bed.sim.faults.of("ec2", "none"), 0)
    bed.pass_time(5)
    bed.sim.fail_next("DescribeAutoScalingGroups", "AccessDenied", status=403)
    with pytest.raises(PoolUnavailable, match="AccessDenied"):
        await pool.observe()
    assert (await pool.observe()).refused_reason is None


async def test_the_clouds_clock_is_read_from_its_answers(wired: tuple[Bed, BotoAws]) -> None:
    bed, aws = wired
    bed.sim.kernel.skew_s = -300.0
    await pool_on(bed, aws).observe()
    assert aws.ahead_s() == pytest.approx(-300, abs=1)


async def test_an_eks_node_group_over_http(wired: tuple[Bed, BotoAws]) -> None:
    bed, aws = wired
    bed.sim.call(
        "eks",
        "CreateNodegroup",
        clusterName="ml",
        nodegroupName="rollout",
        subnets=[subnet_of(ZONE_A)],
        nodeRole="arn:aws:iam::123456789012:role/node",
        capacityType="SPOT",
        instanceTypes=["p5.48xlarge"],
        scalingConfig={"minSize": 0, "maxSize": 5, "desiredSize": 0},
    )
    settings = EksNodeGroupSettings(
        aws=aws,
        cluster="ml",
        node_group="rollout",
        fleet=FLEET,
        offerings=(an_offering(),),
        accept_autoscaler_tags=True,
    )
    pool = EksNodeGroupPool(settings, pool="spot", clock=bed.clock)
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.LAUNCHED
    bed.pass_time(30)
    (instance,) = await listed(pool)
    assert await pool.terminate(an_end(instance)) == (instance.instance_id,)
    assert ("eks", "DescribeNodegroup") in aws.counts()


class WithoutRefreshes:
    """Moto has no instance refreshes, activities that are always empty, and no placement scores."""

    def __init__(self, aws: BotoAws) -> None:
        self._aws = aws

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        return await self._aws.call(service, operation, **parameters)

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        if operation == "DescribeInstanceRefreshes":
            return ()
        return await self._aws.pages(service, operation, key, **parameters)

    def ahead_s(self) -> float | None:
        return 0.0

    def counts(self) -> Mapping[tuple[str, str], int]:
        return self._aws.counts()

    async def close(self) -> None:
        await self._aws.close()


async def moto_group(aws: BotoAws, name: str, desired: int) -> None:
    template = await aws.call(
        "ec2",
        "CreateLaunchTemplate",
        LaunchTemplateName=f"of-{name}",
        LaunchTemplateData={"InstanceType": "t3.micro", "ImageId": "ami-12c6146b"},
    )
    await aws.call(
        "autoscaling",
        "CreateAutoScalingGroup",
        AutoScalingGroupName=name,
        LaunchTemplate={"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"},
        MinSize=0,
        MaxSize=10,
        DesiredCapacity=desired,
        AvailabilityZones=[ZONE_A],
        NewInstancesProtectedFromScaleIn=True,
    )


async def test_listing_raising_and_ending_on_moto(moto_server: str) -> None:
    clock = FakeClock()
    offering = an_offering(instance_type="t3.micro", capacity_type=CapacityType.ON_DEMAND)
    async with opened(moto_server, clock) as boto:
        await moto_group(boto, "on-moto", desired=1)
        settings = AutoScalingGroupSettings(
            aws=WithoutRefreshes(boto), group="on-moto", fleet=FLEET, offerings=(offering,), up="set_desired_capacity"
        )
        pool = AutoScalingGroupPool(settings, pool="spot", clock=clock)
        (adopted,) = await listed(pool)
        assert (adopted.replica_id, adopted.offering_id) == (adopted.instance_id, offering.offering_id)
        with pytest.raises(PoolUnavailable, match="not yet"):
            await pool.launch(a_launch("t-1", offering))
        assert (await pool.launch(a_launch("t-1", offering))).result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
        fleet = {instance.launch_token: instance for instance in await listed(pool)}
        assert set(fleet) == {"", "t-1"}
        assert await pool.detach(a_detach(fleet["t-1"])) == (fleet["t-1"].instance_id,)
        left = {instance.launch_token: instance.attached for instance in await listed(pool)}
        assert left == {"": True, "t-1": False}
        assert await pool.terminate(an_end(fleet["t-1"])) == (fleet["t-1"].instance_id,)
        assert await pool.terminate(an_end(fleet[""])) == (fleet[""].instance_id,)
        assert await listed(pool) == ()


async def test_a_minimum_size_holds_on_moto(moto_server: str) -> None:
    clock = FakeClock()
    offering = an_offering(instance_type="t3.micro", capacity_type=CapacityType.ON_DEMAND)
    async with opened(moto_server, clock) as boto:
        await moto_group(boto, "with-minimum", desired=1)
        await boto.call("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="with-minimum", MinSize=1)
        settings = AutoScalingGroupSettings(
            aws=WithoutRefreshes(boto), group="with-minimum", fleet=FLEET, offerings=(offering,)
        )
        pool = AutoScalingGroupPool(settings, pool="spot", clock=clock)
        (instance,) = await listed(pool)
        with pytest.raises(NotYet, match="minimum size"):
            await pool.terminate(an_end(instance))


async def test_the_launch_request_is_what_the_api_wants() -> None:
    """Checked by botocore against the service's model: names, types, and at most 64 letters of token."""
    aws, group = stubbed("autoscaling", FakeClock())
    token = "x" * 64
    expected = {
        "AutoScalingGroupName": "rollout",
        "RequestedCapacity": 2,
        "ClientToken": token,
        "AvailabilityZones": [ZONE_A],
        "RetryStrategy": "none",
    }
    group.add_response("launch_instances", {"Instances": [], "Errors": []}, expected)
    assert await aws.call("autoscaling", "LaunchInstances", **expected) == {"Instances": [], "Errors": []}
    group.assert_no_pending_responses()
