"""What EC2 and Auto Scaling tell of a trainer's instances: on moto's server, and from written answers where moto has none."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from scaler.aws.client import BotoAws
from scaler.aws.contract import AwsError, AwsFault
from scaler.model.trainer_facts import Group, GroupMember, Reservation, ScheduledEvent, Shape, Source, TrainerInstance
from scaler.observe.trainer_cloud import TrainerCloud
from scaler.observe.trainer_instances import (
    describe_events,
    describe_groups,
    describe_instances,
    describe_members,
    describe_reservations,
    describe_shapes,
    describe_termination,
)
from tests.builders.aws import aws_environment, moto_server, opened, stubbed
from tests.builders.clock import FakeClock
from tests.builders.trainers import a_trainer_node

__all__ = ["aws_environment", "moto_server"]

pytestmark = pytest.mark.usefixtures("aws_environment")
GONE = "i-0123456789abcdef0"


@pytest.fixture
async def aws(moto_server: str) -> AsyncIterator[BotoAws]:
    async with opened(moto_server, FakeClock()) as client:
        yield client


async def a_group(aws: BotoAws, count: int, **more: Any) -> tuple[str, list[str]]:
    """A new group with its instances."""
    name = f"trainers-{uuid4().hex[:8]}"
    await aws.call(
        "ec2",
        "CreateLaunchTemplate",
        LaunchTemplateName=name,
        LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "p5en.48xlarge"},
    )
    template = {"LaunchTemplateName": name, "Version": "$Latest"}
    how: Mapping[str, Any] = more or {"LaunchTemplate": template}
    if "MixedInstancesPolicy" in how:
        how["MixedInstancesPolicy"]["LaunchTemplate"] = {"LaunchTemplateSpecification": template}
    await aws.call(
        "autoscaling",
        "CreateAutoScalingGroup",
        AutoScalingGroupName=name,
        MinSize=count,
        MaxSize=count,
        AvailabilityZones=["us-east-1a"],
        **how,
    )
    groups = await aws.pages(
        "autoscaling", "DescribeAutoScalingGroups", "AutoScalingGroups", AutoScalingGroupNames=[name]
    )
    return name, [each["InstanceId"] for each in groups[0]["Instances"]]


async def test_a_group_and_its_instances_as_moto_serves_them(aws: BotoAws) -> None:
    name, ids = await a_group(aws, 2)
    first, second = ids
    await aws.call(
        "autoscaling",
        "SetInstanceProtection",
        AutoScalingGroupName=name,
        InstanceIds=[first],
        ProtectedFromScaleIn=True,
    )
    asked = frozenset([*ids, GONE])
    assert await describe_instances(aws, asked) == {
        each: TrainerInstance(instance_id=each, lifecycle="on-demand") for each in ids
    }
    assert await describe_members(aws, frozenset(ids)) == {
        each: GroupMember(instance_id=each, group=name, lifecycle_state="InService", protected=each == first)
        for each in (first, second)
    }
    assert await describe_groups(aws, frozenset([name])) == {name: Group(name=name, buys_spot=False)}
    assert await describe_events(aws, frozenset(ids)) == ()


async def test_a_spot_instance_is_told_as_one(aws: BotoAws) -> None:
    answer = await aws.call(
        "ec2",
        "RunInstances",
        ImageId="ami-12c6146b",
        MinCount=1,
        MaxCount=1,
        InstanceMarketOptions={"MarketType": "spot"},
    )
    (instance,) = answer["Instances"]
    found = await describe_instances(aws, frozenset([instance["InstanceId"]]))
    assert found[instance["InstanceId"]].lifecycle == "spot"


async def test_a_group_that_mixes_in_spot_is_told_as_one(aws: BotoAws) -> None:
    """CA#6787: the group keeps its shares by ending one kind."""
    policy = {"InstancesDistribution": {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 50}}
    name, _ = await a_group(aws, 1, MixedInstancesPolicy=policy)
    assert (await describe_groups(aws, frozenset([name])))[name].buys_spot


async def test_termination_protection_is_asked_for_each_and_the_gone_are_left_out(aws: BotoAws) -> None:
    _, ids = await a_group(aws, 2)
    await aws.call("ec2", "ModifyInstanceAttribute", InstanceId=ids[0], DisableApiTermination={"Value": True})
    assert await describe_termination(aws, frozenset([*ids, GONE])) == {ids[0]: True, ids[1]: False}


async def test_ec2s_own_word_on_devices(aws: BotoAws) -> None:
    assert await describe_shapes(aws, frozenset({"p5en.48xlarge", "trn1.32xlarge", "m5.large"})) == {
        "p5en.48xlarge": Shape(efa=16, accelerators=8),
        "trn1.32xlarge": Shape(efa=8, accelerators=16),
        "m5.large": Shape(efa=0, accelerators=0),
    }


async def test_events_that_are_over_are_none() -> None:
    aws, ec2 = stubbed("ec2", FakeClock())
    at = datetime(2026, 12, 1, 10, tzinfo=UTC)
    events = [
        {"Code": "instance-retirement", "Description": "hardware", "NotBefore": at},
        {"Code": "system-reboot", "Description": "[Completed] reboot", "NotBefore": at},
        {"Code": "system-maintenance", "Description": "[Canceled] network", "NotBefore": at},
        {"Code": "instance-stop"},
    ]
    ec2.add_response(
        "describe_instance_status",
        {"InstanceStatuses": [{"InstanceId": GONE, "Events": events}]},
        {"InstanceIds": [GONE]},
    )
    assert await describe_events(aws, frozenset([GONE])) == (
        ScheduledEvent(
            instance_id=GONE, code="instance-retirement", not_before_s=at.timestamp(), description="hardware"
        ),
        ScheduledEvent(instance_id=GONE, code="instance-stop", not_before_s=None),
    )


async def test_a_capacity_block_and_a_reservation_of_somebody_else() -> None:
    aws, ec2 = stubbed("ec2", FakeClock())
    ends = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
    ec2.add_response(
        "describe_capacity_reservations",
        {
            "CapacityReservations": [
                {"CapacityReservationId": "cr-1", "ReservationType": "capacity-block", "EndDate": ends}
            ]
        },
        {"CapacityReservationIds": ["cr-1"]},
    )
    ec2.add_client_error("describe_capacity_reservations", "InvalidCapacityReservationId.NotFound")
    assert await describe_reservations(aws, frozenset({"cr-1", "cr-2"})) == {
        "cr-1": Reservation(reservation_id="cr-1", capacity_block=True, interruptible=False, ends_at_s=ends.timestamp())
    }


async def test_a_call_that_iam_forbids_is_unread_and_the_others_are_not() -> None:
    class Forbidding:
        """Every call answers nothing but one, which may not be made."""

        async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
            return {"DisableApiTermination": {"Value": True}}

        async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
            if operation == "DescribeInstanceStatus":
                raise AwsError("not authorised", fault=AwsFault.AUTHORISATION, operation=operation)
            return ()

        def ahead_s(self) -> float | None:
            return None

        def counts(self) -> Mapping[tuple[str, str], int]:
            return {}

        async def close(self) -> None:
            return None

    facts = await TrainerCloud(Forbidding(), FakeClock(), every_s=60.0).look([a_trainer_node(0)])
    assert facts.unread == {Source.INSTANCE_STATUS: "not authorised"}
    assert facts.termination_protected == {a_trainer_node(0).instance_id: True}


async def test_without_access_to_aws_all_of_it_is_unread_but_only_where_there_are_instances() -> None:
    cloud = TrainerCloud(None, FakeClock(), every_s=60.0)
    assert (await cloud.look([a_trainer_node(0, instance_id="")])).unread == {}
    unread = (await cloud.look([a_trainer_node(0)])).unread
    assert set(unread) == {each for each in Source if ":" in each}
