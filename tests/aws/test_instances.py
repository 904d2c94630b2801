"""DescribeInstances by our reader: the SDK's values in a fraction of its time, or the SDK's own reading."""

from collections.abc import Mapping
from typing import Any

import boto3
import pytest

from scaler.aws.instances import EVENT, read_instances
from tests.builders.aws import REGION, opened
from tests.builders.clock import FakeClock
from tests.simcloud.helpers import make_group
from tests.simcloud.server import serve
from tests.simcloud.sim import SimCloud

pytestmark = pytest.mark.usefixtures("aws_environment")

_USED = (
    "InstanceId",
    "InstanceType",
    "InstanceLifecycle",
    "ClientToken",
    "CapacityReservationId",
    "LaunchTime",
    "Tags",
)
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?><DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
)
_ONE = """<requestId>r-7</requestId><reservationSet><item><reservationId>r-1</reservationId><instancesSet><item>
<instanceId>i-1</instanceId><instanceType>p5.48xlarge</instanceType><launchTime>2026-11-30T02:36:27.000Z</launchTime>
<placement><availabilityZone>us-east-1a</availabilityZone><tenancy>default</tenancy></placement><clientToken/>
<instanceState><code>16</code><name>running</name></instanceState><capacityReservationId>cr-1</capacityReservationId>
<blockDeviceMapping><item><deviceName>/dev/xvda</deviceName></item></blockDeviceMapping>
<tagSet><item><key>a&amp;b</key><value>c</value></item><item><key>empty</key><value/></item></tagSet>
</item></instancesSet></item></reservationSet>"""


def read(body: str, status: int = 200) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a body becomes: what was read, and what is left to the SDK."""
    left, found = {"status_code": status, "body": body.encode()}, dict[str, Any]()
    read_instances(left, found)
    return found, left


def used(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Of an instance, what is asked for anywhere."""
    found = {name: instance[name] for name in _USED if name in instance}
    return found | {"state": instance["State"]["Name"], "zone": instance["Placement"]["AvailabilityZone"]}


@pytest.mark.parametrize("server", ["moto", "simcloud"])
async def test_it_tells_what_the_sdk_tells(server: str, moto_server: str) -> None:
    clock = FakeClock()
    sim = SimCloud(clock, 0)
    make_group(sim, "pool", desired=3, zones=("us-east-1a",), Tags=[{"Key": "k", "Value": "v & w"}])
    clock.pass_time(60.0)
    with serve(sim) as served:
        url = moto_server if server == "moto" else served.address
        theirs = boto3.client("ec2", region_name=REGION, endpoint_url=url)
        if server == "moto":
            theirs.run_instances(ImageId="ami-12c6146b", MinCount=2, MaxCount=2, InstanceType="m5.large")
        expected = [one for each in theirs.describe_instances()["Reservations"] for one in each["Instances"]]
        async with opened(url, FakeClock()) as aws:
            answer = await aws.call("ec2", "DescribeInstances")
    found = [one for each in answer["Reservations"] for one in each["Instances"]]
    assert len(expected) >= 2
    assert [used(one) for one in found] == [used(one) for one in expected]
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_every_field_is_read_and_nothing_else() -> None:
    found, left = read(_HEAD + _ONE + "<nextToken>more</nextToken></DescribeInstancesResponse>")
    (instance,) = found["Reservations"][0]["Instances"]
    assert instance.pop("LaunchTime").timestamp() == 1_796_006_187.0
    assert instance == {
        "InstanceId": "i-1",
        "InstanceType": "p5.48xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "ClientToken": "",
        "State": {"Name": "running"},
        "CapacityReservationId": "cr-1",
        "Tags": [{"Key": "a&b", "Value": "c"}, {"Key": "empty", "Value": ""}],
    }
    assert found["NextToken"] == "more"
    assert b"r-7" in left["body"]
    assert b"instanceId" not in left["body"]


def test_no_instances_are_an_answer_too() -> None:
    found, _ = read(_HEAD + "<requestId>r</requestId><reservationSet/></DescribeInstancesResponse>")
    assert found == {"Reservations": []}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (_HEAD + _ONE + "</DescribeInstancesResponse>", 503),
        (_HEAD + _ONE, 200),
        (_HEAD + _ONE.replace("02:36:27.000Z", "soon") + "</DescribeInstancesResponse>", 200),
        ("", 200),
    ],
    ids=["an error", "cut off", "a time that is none", "empty"],
)
def test_what_is_no_whole_answer_is_left_to_the_sdk(body: str, status: int) -> None:
    found, left = read(body, status)
    assert found == {}
    assert left["body"] == body.encode()


async def test_it_reads_for_the_client_that_is_used(moto_server: str) -> None:
    read_by: list[str] = []
    async with opened(moto_server, FakeClock()) as aws:
        client = aws._clients["ec2"]
        client.meta.events.register_last(
            EVENT, lambda customized_response_dict, **_: read_by.append(str(list(customized_response_dict)))
        )
        await aws.call("ec2", "DescribeInstances")
    assert read_by == ["['Reservations']"]
