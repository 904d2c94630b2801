"""LaunchInstances, as the user guide's "Launch instances synchronously" has it."""

from typing import Any

import pytest

from tests.simcloud.errors import CloudError
from tests.simcloud.market import ON_DEMAND, SPOT, Offering, Refusal
from tests.simcloud.worlds import World

_HERE = Offering("p5.48xlarge", "us-east-1a", SPOT)


def test_instances_are_told_at_once_are_pending_protected_and_raise_the_desired_capacity() -> None:
    world = World()
    answer = world.launch(2)
    [found] = answer["Instances"]
    assert answer["Errors"] == []
    assert (found["InstanceType"], found["MarketType"], found["AvailabilityZone"]) == (
        "p5.48xlarge",
        "Spot",
        "us-east-1a",
    )
    assert [world.state(one) for one in found["InstanceIds"]] == ["pending", "pending"]
    assert {one["LifecycleState"] for one in world.group["Instances"]} == {"Pending"}
    assert all(one["ProtectedFromScaleIn"] for one in world.group["Instances"])
    assert world.desired == 2
    world.settle()
    assert sorted(world.members) == sorted(found["InstanceIds"])


def test_a_token_brings_its_first_answer_back_for_eight_hours_and_then_launches_anew() -> None:
    world = World()
    first = world.launch(1)
    world.wait(3600.0)
    assert world.launch(1) == first
    assert world.desired == 1
    world.clock.pass_time(7.1 * 3600)
    assert world.launch(1)["Instances"] != first["Instances"]
    assert world.desired == 2


def test_a_token_with_other_parameters_is_a_mismatch() -> None:
    world = World()
    world.launch(1)
    with pytest.raises(CloudError) as refused:
        world.launch(2)
    assert refused.value.code == "IdempotentParameterMismatch"
    assert world.desired == 1


def test_a_token_of_a_refusal_brings_the_refusal_back_though_there_is_capacity_now() -> None:
    world = World()
    world.sim.market.set_capacity(_HERE, 0)
    first = world.launch(1)
    world.sim.market.set_capacity(_HERE, 10)
    assert world.launch(1) == first
    assert world.launch(1, "t-2")["Errors"] == []


def test_part_of_a_request_may_be_granted_and_the_rest_is_an_error_and_a_failed_activity() -> None:
    world = World()
    world.sim.market.set_capacity(_HERE, 2)
    answer = world.launch(5)
    assert len(answer["Instances"][0]["InstanceIds"]) == 2
    [error] = answer["Errors"]
    assert (error["ErrorCode"], error["MarketType"], error["AvailabilityZone"]) == (
        "UnfulfillableCapacity",
        "Spot",
        "us-east-1a",
    )
    assert world.desired == 2
    [failed] = [one for one in world.activities() if one["StatusCode"] == "Failed"]
    assert failed["StatusMessage"].startswith("Could not launch Spot Instances. UnfulfillableCapacity - ")
    assert failed["StatusMessage"].endswith("Launching EC2 instance failed.")


def test_a_refusal_leaves_the_desired_capacity_and_nothing_is_launched_later() -> None:
    world = World()
    world.sim.market.set_capacity(_HERE, 0)
    assert world.launch(3)["Instances"] == []
    world.sim.market.set_capacity(_HERE, None)
    world.settle()
    assert (world.desired, world.members) == (0, [])


def test_with_the_groups_own_retries_a_refusal_raises_the_desired_capacity_and_is_tried_again() -> None:
    world = World()
    world.sim.market.set_capacity(_HERE, 0)
    world.launch(2, RetryStrategy="retry-with-group-configuration")
    assert world.desired == 2
    world.settle()
    world.sim.market.set_capacity(_HERE, None)
    world.settle()
    assert len(world.members) == 2


@pytest.mark.parametrize(
    ("market", "expected"),
    [(SPOT, "MaxSpotInstanceCountExceeded"), (ON_DEMAND, "VcpuLimitExceeded")],
)
def test_a_quota_is_another_error_than_lack_of_capacity(market: str, expected: str) -> None:
    world = World(market=market)
    world.sim.market.set_quota(market, 2 * 192)
    answer = world.launch(3)
    assert len(answer["Instances"][0]["InstanceIds"]) == 2
    assert [error["ErrorCode"] for error in answer["Errors"]] == [expected]


def test_lack_of_capacity_on_demand_has_a_code_of_its_own() -> None:
    world = World(market=ON_DEMAND)
    world.sim.market.set_capacity(Offering("p5.48xlarge", "us-east-1a", ON_DEMAND), 0)
    [error] = world.launch(1)["Errors"]
    assert (error["ErrorCode"], error["MarketType"]) == ("InsufficientInstanceCapacity", "OnDemand")


def test_any_other_refusal_can_be_scripted() -> None:
    world = World()
    world.sim.market.set_refusal(_HERE, Refusal(code="SomethingNew", message="Nobody knows."))
    assert [error["ErrorCode"] for error in world.launch(1)["Errors"]] == ["SomethingNew"]


def test_a_type_that_the_zone_lacks_is_unsupported() -> None:
    world = World(instance_type="p6-b200.48xlarge")
    assert [error["ErrorCode"] for error in world.launch(1)["Errors"]] == ["Unsupported"]


def test_a_bid_below_the_price_is_too_low() -> None:
    world = World()
    market = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "5.0"}}
    data = {"InstanceType": "p5.48xlarge", "InstanceMarketOptions": market}
    world.sim.call("ec2", "CreateLaunchTemplateVersion", LaunchTemplateName="of-rollout", LaunchTemplateData=data)
    world.sim.market.set_price("p5.48xlarge", "us-east-1a", 6.0)
    assert [error["ErrorCode"] for error in world.launch(1)["Errors"]] == ["SpotMaxPriceTooLow"]
    world.sim.market.set_price("p5.48xlarge", "us-east-1a", 4.0)
    assert world.launch(1, "t-2")["Errors"] == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"RequestedCapacity": 101}, "between 1 and 100"),
        ({"RequestedCapacity": 0}, "between 1 and 100"),
        ({"RequestedCapacity": 11}, "max size"),
        ({"AvailabilityZones": ["us-east-1c"]}, "Availability Zone"),
        ({"AvailabilityZones": ["us-east-1a"], "SubnetIds": ["subnet-useast1b"]}, "Availability Zone"),
        ({}, "Availability Zone"),
    ],
)
def test_what_cannot_be_is_a_validation_error(asked: dict[str, object], words: str) -> None:
    world = World(zones=("us-east-1a", "us-east-1b"), high=10)
    zone = {} if "RequestedCapacity" not in asked else {"AvailabilityZones": ["us-east-1a"]}
    with pytest.raises(CloudError, match=words) as refused:
        world.scaling("LaunchInstances", **{"RequestedCapacity": 1, "ClientToken": "t", **zone, **asked})
    assert refused.value.code == "ValidationError"
    assert world.sim.running() == []


@pytest.mark.parametrize(
    "place",
    [{"AvailabilityZones": ["us-east-1b"]}, {"AvailabilityZoneIds": ["use1-az2"]}, {"SubnetIds": ["subnet-useast1b"]}],
)
def test_a_zone_is_named_by_name_id_or_subnet(place: dict[str, Any]) -> None:
    world = World(zones=("us-east-1a", "us-east-1b"))
    world.launch(1, **place)
    assert [one.zone for one in world.sim.running()] == ["us-east-1b"]


def test_a_group_with_a_warm_pool_refuses() -> None:
    world = World()
    world.scaling("PutWarmPool", MinSize=1)
    with pytest.raises(CloudError) as refused:
        world.launch(1)
    assert refused.value.code == "UnsupportedOperation"


def test_instances_carry_the_token_by_which_they_are_found() -> None:
    """User guide: "use describe-instances with the client token to check launched instances"."""
    world = World()
    [found] = world.launch(2, "t-7")["Instances"]
    filters = [{"Name": "client-token", "Values": ["t-7"]}]
    reservations = world.sim.call("ec2", "DescribeInstances", Filters=filters)["Reservations"]
    assert sorted(r["Instances"][0]["InstanceId"] for r in reservations) == sorted(found["InstanceIds"])


def test_launches_zone_by_zone_with_zone_rebalancing_on_lead_to_launches_of_its_own() -> None:
    """User guide: with AZ rebalancing "sequential calls across different AZs may trigger additional asynchronous launches"."""
    world = World(zones=("us-east-1a", "us-east-1b"), balanced=True, protected=False)
    world.launch(4, AvailabilityZones=["us-east-1a"])
    world.settle()
    world.settle()
    assert [one.by.value for one in world.sim.ended()] == ["az_rebalance", "az_rebalance"]
    assert world.desired == 4


def mixed(template_id: str, on_demand_percentage: int) -> dict[str, object]:
    overrides = [{"InstanceType": "p5.48xlarge"}, {"InstanceType": "p4d.24xlarge"}]
    return {
        "LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateId": template_id}, "Overrides": overrides},
        "InstancesDistribution": {
            "OnDemandBaseCapacity": 0,
            "OnDemandPercentageAboveBaseCapacity": on_demand_percentage,
            "SpotAllocationStrategy": "price-capacity-optimized",
        },
    }


def test_a_mixed_group_of_one_market_launches_the_cheapest_type_that_there_is() -> None:
    world = World()
    template = world.sim.call("ec2", "DescribeLaunchTemplates")["LaunchTemplates"][0]["LaunchTemplateId"]
    world.scaling("UpdateAutoScalingGroup", MixedInstancesPolicy=mixed(template, 0))
    world.sim.market.set_price("p4d.24xlarge", "us-east-1a", 3.0)
    world.sim.market.set_capacity(Offering("p4d.24xlarge", "us-east-1a", SPOT), 1)
    kinds = {one["InstanceType"]: len(one["InstanceIds"]) for one in world.launch(3)["Instances"]}
    assert kinds == {"p4d.24xlarge": 1, "p5.48xlarge": 2}


def test_a_mixed_group_of_both_markets_refuses_and_fills_itself_by_its_share() -> None:
    world = World()
    template = world.sim.call("ec2", "DescribeLaunchTemplates")["LaunchTemplates"][0]["LaunchTemplateId"]
    world.scaling("UpdateAutoScalingGroup", MixedInstancesPolicy=mixed(template, 25), DesiredCapacity=5)
    with pytest.raises(CloudError, match="fully On-Demand or fully Spot"):
        world.launch(1)
    world.settle()
    markets = [one.spec.market for one in world.sim.running()]
    assert (markets.count(ON_DEMAND), markets.count(SPOT)) == (2, 3)
