import asyncio
import subprocess
import sys
from email.utils import formatdate
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from scaler.aws.client import ONCE, open_aws
from scaler.aws.contract import AwsError, AwsFault
from tests.builders.aws import REGION, answered_at, opened, stubbed
from tests.builders.clock import FakeClock

pytestmark = pytest.mark.usefixtures("aws_environment")


async def test_a_call_goes_out_by_its_names_and_is_counted(moto_server: str) -> None:
    async with opened(moto_server, FakeClock()) as aws:
        answer = await aws.call("ec2", "DescribeAvailabilityZones")
        zones = {zone["ZoneName"] for zone in answer["AvailabilityZones"]}
        assert "us-east-1a" in zones
        assert aws.counts() == {("ec2", "DescribeAvailabilityZones"): 1}


async def test_pages_are_followed_to_the_end_under_either_name_of_their_token() -> None:
    aws, ec2 = stubbed("ec2", FakeClock())
    ec2.add_response("describe_instances", {"Reservations": [{"ReservationId": "r-1"}], "NextToken": "more"}, {})
    ec2.add_response("describe_instances", {"Reservations": [{"ReservationId": "r-2"}]}, {"NextToken": "more"})
    found = await aws.pages("ec2", "DescribeInstances", "Reservations")
    assert [item["ReservationId"] for item in found] == ["r-1", "r-2"]
    aws, eks = stubbed("eks", FakeClock())
    eks.add_response("list_nodegroups", {"nodegroups": ["a"], "nextToken": "more"}, {"clusterName": "c"})
    eks.add_response("list_nodegroups", {"nodegroups": ["b"]}, {"clusterName": "c", "nextToken": "more"})
    assert await aws.pages("eks", "ListNodegroups", "nodegroups", clusterName="c") == ("a", "b")


async def test_pages_are_whole_or_an_error() -> None:
    aws, ec2 = stubbed("ec2", FakeClock())
    ec2.add_response("describe_instances", {"Reservations": [{"ReservationId": "r-1"}], "NextToken": "more"}, {})
    ec2.add_client_error("describe_instances", "RequestLimitExceeded", "Request limit exceeded.", 503)
    with pytest.raises(AwsError) as caught:
        await aws.pages("ec2", "DescribeInstances", "Reservations")
    assert caught.value.fault is AwsFault.THROTTLED


async def test_a_server_that_gives_the_same_page_for_ever_is_an_error() -> None:
    aws, ec2 = stubbed("ec2", FakeClock())
    for parameters in ({}, {"NextToken": "more"}):
        ec2.add_response("describe_instances", {"Reservations": [], "NextToken": "more"}, parameters)
    with pytest.raises(AwsError, match="same page"):
        await aws.pages("ec2", "DescribeInstances", "Reservations")


async def test_an_error_carries_code_fault_and_operation() -> None:
    aws, group = stubbed("autoscaling", FakeClock())
    group.add_client_error("launch_instances", "InsufficientInstanceCapacity", "no room", 500)
    with pytest.raises(AwsError) as caught:
        await aws.call("autoscaling", "LaunchInstances", AutoScalingGroupName="g", RequestedCapacity=1, ClientToken="t")
    error = caught.value
    assert (error.fault, error.code, error.operation) == (
        AwsFault.INSUFFICIENT_CAPACITY,
        "InsufficientInstanceCapacity",
        "LaunchInstances",
    )
    assert "no room" in str(error)


async def test_parameters_that_cannot_be_sent_are_configuration() -> None:
    aws, group = stubbed("autoscaling", FakeClock())
    group.deactivate()
    with pytest.raises(AwsError) as caught:
        await aws.call("autoscaling", "LaunchInstances", AutoScalingGroupName=7)
    assert caught.value.fault is AwsFault.CONFIGURATION


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ReadTimeoutError(endpoint_url="https://ec2"), AwsFault.UNREACHABLE),
        (ConnectTimeoutError(endpoint_url="https://ec2"), AwsFault.UNREACHABLE),
        (EndpointConnectionError(endpoint_url="https://ec2"), AwsFault.UNREACHABLE),
        (NoCredentialsError(), AwsFault.AUTHORISATION),
    ],
    ids=["no answer", "no connection", "no server", "no credentials"],
)
async def test_a_call_without_an_answer_is_told_apart(error: Exception, fault: AwsFault) -> None:
    aws, ec2 = stubbed("ec2", FakeClock())

    def fail(**_: object) -> None:
        raise error

    ec2.deactivate()
    ec2.client.meta.events.register("before-send.ec2.DescribeInstances", fail)
    with pytest.raises(AwsError) as caught:
        await aws.call("ec2", "DescribeInstances")
    assert caught.value.fault is fault


async def test_nobody_listening_is_unreachable_and_does_not_hang() -> None:
    async with opened("http://127.0.0.1:1", FakeClock()) as aws:
        with pytest.raises(AwsError) as caught:
            await aws.call("sqs", "ListQueues")
    assert caught.value.fault is AwsFault.UNREACHABLE


async def test_a_service_without_a_client_is_refused() -> None:
    aws, _ = stubbed("ec2", FakeClock())
    with pytest.raises(AwsError, match="no client"):
        await aws.call("s3", "ListBuckets")


@pytest.mark.parametrize("ahead_s", [-3600, -2, 0, 400])
async def test_aws_clock_is_known_from_the_date_of_any_answer(ahead_s: int) -> None:
    clock = FakeClock(1_800_000_000.0)
    aws, ec2 = stubbed("ec2", clock)
    assert aws.ahead_s() is None
    date = formatdate(clock.now_s() + ahead_s, usegmt=True)
    ec2.add_response("describe_instances", {"Reservations": [], "ResponseMetadata": answered_at(date)})
    await aws.call("ec2", "DescribeInstances")
    assert aws.ahead_s() == pytest.approx(ahead_s, abs=1)


async def test_an_unreadable_date_changes_nothing() -> None:
    aws, ec2 = stubbed("ec2", FakeClock())
    ec2.add_response("describe_instances", {"Reservations": [], "ResponseMetadata": answered_at("yesterday")})
    await aws.call("ec2", "DescribeInstances")
    assert aws.ahead_s() is None


async def test_bug_109_an_expired_signature_is_authorisation_and_names_the_clock() -> None:
    """aws-sdk-cpp#560, kubernetes#11371: a clock minutes off looked like a failure of capacity."""
    clock = FakeClock(1_800_000_000.0)
    aws, group = stubbed("autoscaling", clock)
    date = formatdate(clock.now_s() + 400, usegmt=True)
    group.add_client_error(
        "describe_auto_scaling_groups",
        "SignatureDoesNotMatch",
        "Signature expired: 20270115T080000Z is now earlier than 20270115T080140Z",
        403,
        response_meta=dict(answered_at(date)),
    )
    with pytest.raises(AwsError, match=r"\+40[01] s from ours") as caught:
        await aws.call("autoscaling", "DescribeAutoScalingGroups")
    assert caught.value.fault is AwsFault.AUTHORISATION


def test_bug_099_every_client_has_time_outs_and_short_retries() -> None:
    """KP#9318: a call without time-outs hung for ever."""
    aws = open_aws(REGION, clock=FakeClock())
    for name, client in aws._clients.items():
        config: Any = client.meta.config
        assert (config.connect_timeout, config.read_timeout) == (3, 30 if name == "sqs" else 10)
        assert config.retries["mode"] == "standard"
        assert config.retries["total_max_attempts"] == 3
    for service, _ in ONCE:
        config = aws._once[service].meta.config
        assert config.retries["total_max_attempts"] == 1
    asyncio.run(aws.close())


async def test_bug_108_clients_are_made_once_and_shared_by_threads(moto_server: str) -> None:
    """boto3#1592: sessions are not safe between threads; clients are."""
    async with opened(moto_server, FakeClock()) as aws:
        before = dict(aws._clients)
        await asyncio.gather(*(aws.call("ec2", "DescribeAvailabilityZones") for _ in range(40)))
        assert aws._clients == before
        assert aws.counts()["ec2", "DescribeAvailabilityZones"] == 40


async def test_the_end_of_an_instance_is_asked_for_once_whatever_comes_back() -> None:
    clock = FakeClock()
    aws = open_aws(REGION, clock=clock, endpoint_url="http://127.0.0.1:1")
    tries: list[str] = []
    for client in (aws._clients["autoscaling"], aws._once["autoscaling"]):
        client.meta.events.register("before-send.autoscaling.*", lambda request, **_: tries.append(request.url))
    with pytest.raises(AwsError):
        await aws.call(
            "autoscaling",
            "TerminateInstanceInAutoScalingGroup",
            InstanceId="i-1",
            ShouldDecrementDesiredCapacity=True,
        )
    assert len(tries) == 1
    await aws.close()


async def test_who_does_not_lead_any_more_sends_nothing_that_changes_anything() -> None:
    """Asked for each attempt: a process that was stopped in between may have been succeeded."""
    leads = [True, True, False]
    aws = open_aws(REGION, clock=FakeClock(), endpoint_url="http://127.0.0.1:1", may_write=lambda: leads.pop(0))
    sent: list[str] = []
    for client in aws._clients.values():
        client.meta.events.register_last("before-send", lambda event_name, **_: sent.append(event_name))
    with pytest.raises(AwsError, match="LaunchInstances is held back") as caught:
        await aws.call("autoscaling", "LaunchInstances", AutoScalingGroupName="g", RequestedCapacity=1, ClientToken="t")
    assert caught.value.fault is AwsFault.UNREACHABLE, "whether an earlier attempt was carried out is not known"
    with pytest.raises(AwsError):
        await aws.call("ec2", "DescribeInstances")
    operations = [name.rpartition(".")[2] for name in sent]
    assert operations == ["LaunchInstances"] * 2 + ["DescribeInstances"] * 3
    await aws.close()


def test_importing_the_client_does_not_load_boto3() -> None:
    code = "import sys, scaler.aws.client, scaler.act.registry; sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
