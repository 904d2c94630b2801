"""Prices, scores, offerings. Source: EC2 API reference."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.market import SPOT, Offering
from tests.simcloud.worlds import World


def prices(world: World, **more: Any) -> list[Json]:
    asked = {"InstanceTypes": ["p5.48xlarge"], "AvailabilityZone": "us-east-1a", **more}
    found: list[Json] = world.sim.call("ec2", "DescribeSpotPriceHistory", **asked)["SpotPriceHistory"]
    return found


def test_the_price_history_has_the_changes_asked_for_and_the_price_before_them_newest_first() -> None:
    world = World()
    times: list[float] = []
    for usd in (4.0, 5.0, 6.0, 7.0):
        world.sim.market.set_price("p5.48xlarge", "us-east-1a", usd)
        times.append(world.sim.kernel.now_s())
        world.wait(100.0)

    def at(number: int) -> datetime:
        return datetime.fromtimestamp(times[number] + 50.0, UTC)

    assert [float(row["SpotPrice"]) for row in prices(world)] == [7.0, 6.0, 5.0, 4.0]
    assert [float(row["SpotPrice"]) for row in prices(world, StartTime=at(1))] == [7.0, 6.0, 5.0]
    assert [float(row["SpotPrice"]) for row in prices(world, StartTime=at(3))] == [7.0]
    assert [float(row["SpotPrice"]) for row in prices(world, StartTime=at(0), EndTime=at(1))] == [5.0, 4.0]


def test_every_type_and_zone_has_a_price() -> None:
    rows = World().sim.call("ec2", "DescribeSpotPriceHistory")["SpotPriceHistory"]
    assert len({(row["InstanceType"], row["AvailabilityZone"]) for row in rows}) == 9


def test_scores_are_by_zone_or_for_the_region_and_follow_capacity() -> None:
    world = World()
    world.sim.market.set_capacity(Offering("p5.48xlarge", "us-east-1a", SPOT), 0)
    world.sim.market.scores["p5.48xlarge", "us-east-1b"] = 5
    asked: Json = {"InstanceTypes": ["p5.48xlarge"], "TargetCapacity": 8}
    zones = world.sim.call("ec2", "GetSpotPlacementScores", SingleAvailabilityZone=True, **asked)["SpotPlacementScores"]
    assert {row["AvailabilityZoneId"]: row["Score"] for row in zones} == {"use1-az1": 1, "use1-az2": 5, "use1-az3": 9}
    [region] = world.sim.call("ec2", "GetSpotPlacementScores", **asked)["SpotPlacementScores"]
    assert (region["Region"], region["Score"]) == ("us-east-1", 9)


def test_offerings_are_by_zone_zone_id_or_region() -> None:
    world = World()
    for kind, place in (
        ("availability-zone", "us-east-1b"),
        ("availability-zone-id", "use1-az2"),
        ("region", "us-east-1"),
    ):
        filters = [{"Name": "instance-type", "Values": ["p5.*"]}, {"Name": "location", "Values": [place]}]
        asked: Json = {"LocationType": kind, "Filters": filters}
        [row] = world.sim.call("ec2", "DescribeInstanceTypeOfferings", **asked)["InstanceTypeOfferings"]
        assert (row["InstanceType"], row["Location"], row["LocationType"]) == ("p5.48xlarge", place, kind)


def test_what_is_unknown_is_an_error_of_its_own() -> None:
    world = World()
    with pytest.raises(CloudError) as refused:
        world.sim.call("ec2", "DescribeLaunchTemplates", LaunchTemplateNames=["none"])
    assert refused.value.code == "InvalidLaunchTemplateName.NotFoundException"
    with pytest.raises(CloudError) as refused:
        world.sim.call("ec2", "DescribeInstances", Filters=[{"Name": "nonsense", "Values": ["x"]}])
    assert refused.value.code == "InvalidParameterValue"
    with pytest.raises(CloudError) as refused:
        world.sim.call("ec2", "CreateVpc")
    assert refused.value.code == "InvalidAction"


def test_tags_of_aws_cannot_be_set_and_there_are_at_most_fifty() -> None:
    world = World(desired=1)
    for tags, code in (
        ([{"Key": "aws:autoscaling:groupName", "Value": "x"}], "InvalidParameterValue"),
        ([{"Key": f"k{n}", "Value": ""} for n in range(50)], "TagLimitExceeded"),
    ):
        with pytest.raises(CloudError) as refused:
            world.sim.call("ec2", "CreateTags", Resources=world.members, Tags=tags)
        assert refused.value.code == code


def test_pages_go_on_by_their_tokens_and_a_bad_one_is_an_error() -> None:
    world = World(desired=12)
    seen: list[str] = []
    token = None
    while True:
        more: Json = {"NextToken": token} if token else {}
        answer = world.sim.call("ec2", "DescribeInstances", MaxResults=5, **more)
        seen += [reservation["Instances"][0]["InstanceId"] for reservation in answer["Reservations"]]
        token = answer["NextToken"]
        if token is None:
            break
    assert len(seen) == len(set(seen)) == 12
    with pytest.raises(CloudError):
        world.sim.call("ec2", "DescribeInstances", MaxResults=5, NextToken="nonsense")
    with pytest.raises(CloudError) as refused:
        world.sim.call("ec2", "DescribeInstances", MaxResults=5, InstanceIds=seen[:1])
    assert refused.value.code == "InvalidParameterCombination"


def test_terminated_instances_are_shown_for_an_hour() -> None:
    world = World(desired=1)
    [member] = world.members
    world.end(member)
    world.wait(600.0)
    assert world.state(member) == "terminated"
    world.clock.pass_time(3600.0)
    with pytest.raises(CloudError):
        world.state(member)
