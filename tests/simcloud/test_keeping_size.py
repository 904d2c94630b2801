"""What a group does by itself. Sources are in `tests.simcloud.keeper` and `victims`."""

import re
from collections.abc import Callable

import pytest

from tests.simcloud.errors import CloudError
from tests.simcloud.market import SPOT, Offering
from tests.simcloud.worlds import World

_HERE = Offering("p5.48xlarge", "us-east-1a", SPOT)


def test_what_is_lost_is_replaced_only_after_the_health_check_has_seen_it() -> None:
    """User guide, "Health checks": an instance that EC2 ends is found unhealthy, then replaced."""
    world = World(desired=2)
    victim, other = world.members
    world.sim.fate.reclaim(ids=[victim], noticed=False)
    world.wait(2.0)
    assert world.group["Instances"][0]["HealthStatus"] == "Healthy"
    assert len(world.sim.running()) == 1
    world.settle()
    assert len(world.members) == 2
    assert other in world.members
    assert victim not in world.members
    assert world.desired == 2
    assert world.how(victim) == "spot"
    causes = [one["Cause"] for one in world.activities()]
    assert any("EC2 health check indicating it has been terminated or stopped" in cause for cause in causes)


def test_without_replacing_the_unhealthy_they_stay_listed_as_such() -> None:
    """User guide, "Suspend and resume processes": they are still marked."""
    world = World(desired=1)
    [victim] = world.members
    world.scaling("SuspendProcesses", ScalingProcesses=["ReplaceUnhealthy"])
    world.sim.fate.fail([victim])
    world.settle()
    assert [(one["InstanceId"], one["HealthStatus"]) for one in world.group["Instances"]] == [(victim, "Unhealthy")]
    world.scaling("ResumeProcesses", ScalingProcesses=["ReplaceUnhealthy"])
    world.settle()
    assert len(world.members) == 1
    assert victim not in world.members


def test_without_launching_what_is_lost_stays_lost() -> None:
    world = World(desired=2)
    world.scaling("SuspendProcesses", ScalingProcesses=["Launch"])
    world.sim.fate.fail(world.members[:1])
    world.settle()
    assert (world.desired, len(world.members)) == (2, 1)


def test_refused_launches_are_failed_activities_and_are_tried_again() -> None:
    world = World()
    world.sim.market.set_capacity(_HERE, 1)
    world.scaling("SetDesiredCapacity", DesiredCapacity=3)
    world.settle()
    failed = [one for one in world.activities() if one["StatusCode"] == "Failed"]
    assert len(failed) >= 2
    assert {one["StatusMessage"].split(" - ")[0] for one in failed} == {
        "Could not launch Spot Instances. UnfulfillableCapacity"
    }
    world.sim.market.set_capacity(_HERE, None)
    world.settle()
    assert len(world.members) == 3


def test_a_refusing_zone_is_made_up_for_in_another() -> None:
    world = World(zones=("us-east-1a", "us-east-1b"))
    world.sim.market.set_capacity(_HERE, 0)
    world.scaling("SetDesiredCapacity", DesiredCapacity=4)
    world.settle()
    assert {one.zone for one in world.sim.running()} == {"us-east-1b"}
    assert len(world.members) == 4


def test_instances_are_spread_evenly_over_zones() -> None:
    world = World(zones=("us-east-1a", "us-east-1b", "us-east-1c"), desired=7)
    zones = [one.zone for one in world.sim.running()]
    assert sorted(zones.count(zone) for zone in set(zones)) == [2, 2, 3]


def test_a_lowered_desired_capacity_picks_victims_that_nobody_named() -> None:
    """User guide, "Default termination policy": the fullest zone first; by whose call is on record."""
    world = World(zones=("us-east-1a", "us-east-1b"), protected=False)
    world.launch(3, "a", AvailabilityZones=["us-east-1a"])
    world.launch(1, "b", AvailabilityZones=["us-east-1b"])
    world.settle()
    world.sim.call(
        "autoscaling", "SetDesiredCapacity", AutoScalingGroupName="rollout", DesiredCapacity=2, caller="them"
    )
    world.settle()
    ended = world.sim.ended_by_us()
    assert [(one.by.value, one.caller) for one in ended] == [("scale_in", "them")] * 2
    assert sorted(one.zone for one in world.sim.running()) == ["us-east-1a", "us-east-1b"]


def test_the_oldest_template_goes_first() -> None:
    world = World(desired=2, protected=False)
    old = world.members
    data = {"InstanceType": "p4d.24xlarge", "InstanceMarketOptions": {"MarketType": "spot"}}
    world.sim.call("ec2", "CreateLaunchTemplateVersion", LaunchTemplateName="of-rollout", LaunchTemplateData=data)
    world.scaling("SetDesiredCapacity", DesiredCapacity=4)
    world.settle()
    world.scaling("SetDesiredCapacity", DesiredCapacity=2)
    world.settle()
    assert sorted(one.instance_id for one in world.sim.ended()) == sorted(old)


def test_where_all_are_protected_a_lowered_desired_capacity_ends_nothing_and_says_so() -> None:
    world = World(desired=3, protected=True)
    world.scaling("SetDesiredCapacity", DesiredCapacity=1)
    world.settle()
    assert (world.desired, len(world.members)) == (1, 3)
    assert "protected from scale-in" in world.activities()[0]["StatusMessage"]
    world.scaling("SetInstanceProtection", InstanceIds=world.members, ProtectedFromScaleIn=False)
    world.scaling("SetDesiredCapacity", DesiredCapacity=1)
    world.settle()
    assert len(world.members) == 1


def test_a_named_end_says_so_and_shrinks() -> None:
    world = World(desired=3)
    victim = world.members[0]
    activity = world.end(victim)["Activity"]
    assert activity["Description"] == f"Terminating EC2 instance: {victim}"
    did = (
        f"instance {victim} was taken out of service in response to a user request, shrinking the capacity from 3 to 2"
    )
    assert re.fullmatch(rf"At \S+Z {did}\.", activity["Cause"])
    assert world.lifecycle(victim) == "Terminating"
    world.settle()
    assert (world.desired, len(world.members)) == (2, 2)
    assert world.how(victim) == "terminate_named"


def test_an_end_asked_for_twice_decrements_once_and_a_third_time_is_too_late() -> None:
    world = World(desired=3)
    victim = world.members[0]
    world.end(victim)
    world.end(victim)
    assert world.desired == 2
    world.settle()
    with pytest.raises(CloudError, match="No managed instance found") as refused:
        world.end(victim)
    assert refused.value.code == "ValidationError"
    assert (world.desired, len(world.sim.ended())) == (2, 1)


def test_several_named_ends_in_one_call() -> None:
    world = World(desired=4)
    victims = world.members[:3]
    answer = world.scaling(
        "TerminateInstanceInAutoScalingGroup", InstanceIds=victims, ShouldDecrementDesiredCapacity=True
    )
    assert len(answer["Activities"]) == 3
    world.settle()
    assert world.desired == 1


def test_the_minimum_is_kept_against_every_decrement() -> None:
    world = World(desired=2, low=2)
    for operation, ids in (("DetachInstances", "InstanceIds"), ("EnterStandby", "InstanceIds")):
        with pytest.raises(CloudError, match="min size constraint"):
            world.scaling(operation, ShouldDecrementDesiredCapacity=True, **{ids: world.members[:1]})
    with pytest.raises(CloudError, match="desiredSize equals minSize") as refused:
        world.end(world.members[0])
    assert refused.value.code == "ValidationError"
    world.end(world.members[0], decrement=False)
    world.settle()
    assert (world.desired, len(world.members)) == (2, 2)


def test_a_detached_instance_runs_on_and_the_group_does_not_replace_it() -> None:
    world = World(desired=3)
    leaving = world.members[0]
    [activity] = world.scaling("DetachInstances", InstanceIds=[leaving], ShouldDecrementDesiredCapacity=True)[
        "Activities"
    ]
    assert "was detached in response to a user request, shrinking the capacity from 3 to 2." in activity["Cause"]
    assert world.lifecycle(leaving) == "Detaching"
    world.settle()
    assert (world.desired, len(world.members), world.state(leaving)) == (2, 2, "running")
    world.sim.fate.reclaim(ids=[leaving], noticed=False)
    world.settle()
    assert (world.desired, len(world.members)) == (2, 2)


def test_detached_without_decrement_it_is_replaced() -> None:
    world = World(desired=2)
    world.scaling("DetachInstances", InstanceIds=world.members[:1], ShouldDecrementDesiredCapacity=False)
    world.settle()
    assert (world.desired, len(world.members), len(world.sim.running())) == (2, 2, 3)


@pytest.mark.parametrize(
    ("operation", "number", "more"),
    [
        ("DetachInstances", 21, {"ShouldDecrementDesiredCapacity": True}),
        ("SetInstanceProtection", 51, {"ProtectedFromScaleIn": True}),
        ("TerminateInstanceInAutoScalingGroup", 101, {"ShouldDecrementDesiredCapacity": True}),
    ],
)
def test_calls_take_only_so_many_ids(operation: str, number: int, more: dict[str, bool]) -> None:
    """API reference: 20, 50 and 100."""
    world = World(desired=1)
    with pytest.raises(CloudError, match="length less than or equal to") as refused:
        world.scaling(operation, InstanceIds=world.members * number, **more)
    assert refused.value.code == "ValidationError"


def test_who_is_not_in_service_cannot_be_detached() -> None:
    world = World()
    [found] = world.launch(1)["Instances"]
    with pytest.raises(CloudError, match="is not in InService"):
        world.scaling("DetachInstances", InstanceIds=found["InstanceIds"], ShouldDecrementDesiredCapacity=True)


def test_standby_leaves_the_count_and_comes_back() -> None:
    world = World(desired=2)
    resting = world.members[0]
    world.scaling("EnterStandby", InstanceIds=[resting], ShouldDecrementDesiredCapacity=True)
    world.settle()
    assert (world.desired, len(world.members), world.lifecycle(resting)) == (1, 1, "Standby")
    world.scaling("ExitStandby", InstanceIds=[resting])
    world.settle()
    assert (world.desired, len(world.members)) == (2, 2)


def test_zone_rebalancing_ends_a_working_instance_after_launching_another() -> None:
    """User guide, "Rebalancing activities"; buildkite elastic-ci-stack#435: it kills what works."""
    world = World(zones=("us-east-1a", "us-east-1b"), desired=4, protected=False, balanced=True)
    there = Offering("p5.48xlarge", "us-east-1b", SPOT)
    world.sim.market.set_capacity(there, 0)
    world.sim.fate.reclaim(zone="us-east-1b", noticed=False)
    world.settle()
    assert {one.zone for one in world.sim.running()} == {"us-east-1a"}
    world.sim.market.set_capacity(there, None)
    world.wait(180.0)
    zones = [one.zone for one in world.sim.running()]
    assert (zones.count("us-east-1a"), zones.count("us-east-1b")) == (2, 2)
    assert [one.by.value for one in world.sim.ended()].count("az_rebalance") == 2


@pytest.mark.parametrize("prevented_by", ["protection", "suspension"])
def test_zone_rebalancing_is_prevented(prevented_by: str) -> None:
    world = World(
        zones=("us-east-1a", "us-east-1b"),
        protected=prevented_by == "protection",
        balanced=prevented_by != "suspension",
    )
    world.launch(4, AvailabilityZones=["us-east-1a"])
    world.wait(300.0)
    assert world.sim.ended() == []
    assert len(world.members) == 4


def test_capacity_rebalancing_launches_first_and_ends_the_one_at_risk_after() -> None:
    """User guide, "Capacity Rebalancing": the group may be larger for a while."""
    world = World(desired=2, CapacityRebalance=True)
    at_risk, other = world.members
    world.sim.fate.recommend([at_risk])
    assert len(world.sim.running()) == 3
    world.settle()
    assert world.how(at_risk) == "capacity_rebalance"
    assert other in world.members
    assert (world.desired, len(world.members)) == (2, 2)


def test_without_capacity_rebalancing_a_recommendation_leads_to_nothing() -> None:
    world = World(desired=2)
    before = world.members
    world.sim.fate.recommend(before)
    world.wait(300.0)
    assert world.members == before


def test_a_group_that_something_else_holds_refuses_changes_for_a_while() -> None:
    world = World(desired=1)
    world.sim.contend("rollout", 30.0)
    changes: list[Callable[[], object]] = [
        lambda: world.end(*world.members),
        lambda: world.launch(1),
        lambda: world.scaling("SuspendProcesses"),
    ]
    for change in changes:
        with pytest.raises(CloudError) as refused:
            change()
        assert refused.value.code == "ResourceContention"
    assert world.desired == 1
    world.wait(31.0)
    world.launch(1)


@pytest.mark.parametrize(("wanted", "words"), [(101, "above max value 100"), (-1, "below min value 0")])
def test_a_desired_capacity_beyond_its_bounds_is_refused(wanted: int, words: str) -> None:
    world = World(desired=1)
    with pytest.raises(CloudError, match=words):
        world.scaling("SetDesiredCapacity", DesiredCapacity=wanted)
    with pytest.raises(CloudError, match="name not found"):
        world.sim.call("autoscaling", "SetDesiredCapacity", AutoScalingGroupName="none", DesiredCapacity=1)


def test_a_refresh_and_a_maximum_lifetime_are_to_be_seen() -> None:
    world = World(desired=1, MaxInstanceLifetime=86_400)
    assert world.group["MaxInstanceLifetime"] == 86_400
    started = world.scaling("StartInstanceRefresh")
    [shown] = world.scaling("DescribeInstanceRefreshes")["InstanceRefreshes"]
    assert (shown["InstanceRefreshId"], shown["Status"]) == (started["InstanceRefreshId"], "InProgress")
    with pytest.raises(CloudError) as refused:
        world.scaling("StartInstanceRefresh")
    assert refused.value.code == "InstanceRefreshInProgress"
    world.scaling("CancelInstanceRefresh")
    assert world.scaling("DescribeInstanceRefreshes")["InstanceRefreshes"][0]["Status"] == "Cancelled"


def test_activities_are_newest_first_those_in_progress_before_all_and_filtered_by_status() -> None:
    world = World(desired=2)
    world.end(world.members[0])
    statuses = [one["StatusCode"] for one in world.activities()]
    assert statuses == ["InProgress", "Successful", "Successful"]
    filters = [{"Name": "Status", "Values": ["Successful"]}]
    found = world.scaling("DescribeScalingActivities", Filters=filters)["Activities"]
    assert len(found) == 2
    assert all("EndTime" in one for one in found)
