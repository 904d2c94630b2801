"""Every reason why a group may not be acted on, and that its remedy lifts it."""

from collections.abc import Callable
from typing import Any

import pytest

from scaler.act._ec2.checks import Surroundings, refused
from scaler.act._ec2.reading import Reading
from scaler.model.capacity import CapacityType
from tests.builders.ec2_pools import TYPE, ZONE_A, ZONE_B, Bed, an_offering
from tests.simcloud.helpers import described, make_template


def scaling(bed: Bed, operation: str, **parameters: Any) -> None:
    bed.sim.call("autoscaling", operation, AutoScalingGroupName="rollout", **parameters)


def tag(bed: Bed, operation: str) -> None:
    tagged = {"ResourceId": "rollout", "ResourceType": "auto-scaling-group", "Key": "k8s.io/cluster-autoscaler/enabled"}
    bed.sim.call("autoscaling", operation, Tags=[tagged | {"Value": "true", "PropagateAtLaunch": False}])


def update(**parameters: Any) -> Callable[[Bed], None]:
    return lambda bed: scaling(bed, "UpdateAutoScalingGroup", **parameters)


def cancel_refresh(bed: Bed) -> None:
    scaling(bed, "CancelInstanceRefresh")


CASES: dict[str, tuple[Callable[[Bed], None], Callable[[Bed], None], str]] = {
    "new instances without scale-in protection": (
        update(NewInstancesProtectedFromScaleIn=False),
        update(NewInstancesProtectedFromScaleIn=True),
        "not protected from scale-in: set --new-instances-protected-from-scale-in",
    ),
    "AZRebalance over several zones": (
        lambda bed: scaling(bed, "ResumeProcesses", ScalingProcesses=["AZRebalance"]),
        lambda bed: scaling(bed, "SuspendProcesses", ScalingProcesses=["AZRebalance"]),
        "suspend that process, or use one zone",
    ),
    "Capacity Rebalancing": (
        update(CapacityRebalance=True),
        update(CapacityRebalance=False),
        "Capacity Rebalancing replaces instances by itself: turn it off",
    ),
    "a scaling policy": (
        lambda bed: scaling(bed, "PutScalingPolicy", PolicyName="target"),
        lambda bed: scaling(bed, "DeletePolicy", PolicyName="target"),
        "another owner: scaling policies (target): delete or disable",
    ),
    "a scheduled action": (
        lambda bed: scaling(bed, "PutScheduledUpdateGroupAction", ScheduledActionName="night", DesiredCapacity=0),
        lambda bed: scaling(bed, "DeleteScheduledAction", ScheduledActionName="night"),
        "another owner: scheduled actions (night): delete",
    ),
    "a maximum instance lifetime": (
        update(MaxInstanceLifetime=86400),
        update(MaxInstanceLifetime=0),
        "maximum instance lifetime ends instances that work: set it to 0",
    ),
    "a warm pool": (
        lambda bed: scaling(bed, "PutWarmPool", MinSize=1),
        lambda bed: scaling(bed, "DeleteWarmPool"),
        "a warm pool moves instances by itself: delete it",
    ),
    "Cluster Autoscaler's tag": (
        lambda bed: tag(bed, "CreateOrUpdateTags"),
        lambda bed: tag(bed, "DeleteTags"),
        "another owner: the tag k8s.io/cluster-autoscaler/enabled offers the group to Cluster Autoscaler: take it away",
    ),
    "an instance refresh": (
        lambda bed: scaling(bed, "StartInstanceRefresh"),
        cancel_refresh,
        "an instance refresh is under way",
    ),
    "a suspended process Launch": (
        lambda bed: scaling(bed, "SuspendProcesses", ScalingProcesses=["Launch"]),
        lambda bed: scaling(bed, "ResumeProcesses", ScalingProcesses=["Launch"]),
        "process Launch is suspended: resume it",
    ),
}


@pytest.mark.parametrize(("set_up", "remedy", "text"), CASES.values(), ids=CASES.keys())
async def test_a_group_with(set_up: Callable[[Bed], None], remedy: Callable[[Bed], None], text: str) -> None:
    bed = Bed()
    bed.group(zones=(ZONE_A, ZONE_B))
    pool = bed.pool()
    assert (await pool.observe()).refused_reason is None
    set_up(bed)
    bed.pass_time(90)
    assert text in ((await pool.observe()).refused_reason or "")
    remedy(bed)
    bed.pass_time(90)
    assert (await pool.observe()).refused_reason is None


async def test_a_missing_group_is_refused_by_name_of_the_setting(bed: Bed) -> None:
    observed = await bed.pool(group="rolout").observe()
    assert "there is no Auto Scaling group of this name" in (observed.refused_reason or "")
    assert "`group`" in (observed.refused_reason or "")
    assert observed.instances == ()


async def test_one_zone_needs_no_suspended_rebalancing() -> None:
    bed = Bed()
    bed.group(balanced=True)
    assert (await bed.pool().observe()).refused_reason is None


def mixed(bed: Bed, overrides: list[dict[str, str]], **distribution: int) -> None:
    template = make_template(bed.sim, f"mixed-{len(overrides)}-{distribution}")
    chosen = {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"}
    policy = {
        "LaunchTemplate": {"LaunchTemplateSpecification": chosen, "Overrides": overrides},
        "InstancesDistribution": distribution,
    }
    scaling(bed, "UpdateAutoScalingGroup", MixedInstancesPolicy=policy)


ALL_SPOT = {"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 0}


@pytest.mark.parametrize(
    ("overrides", "distribution", "text"),
    [
        ([{"InstanceType": TYPE}, {"InstanceType": "p4d.24xlarge"}], ALL_SPOT, "several instance types"),
        ([{"InstanceType": TYPE, "WeightedCapacity": "8"}], ALL_SPOT, "weights"),
        ([{"InstanceType": TYPE}], {"OnDemandPercentageAboveBaseCapacity": 50}, "mixes Spot and on-demand"),
        ([{"InstanceType": TYPE}], ALL_SPOT | {"OnDemandBaseCapacity": 2}, "mixes Spot and on-demand"),
        ([{"InstanceType": "p4d.24xlarge"}], ALL_SPOT, "make them agree"),
        ([{"InstanceType": TYPE}], ALL_SPOT, None),
    ],
)
async def test_a_mixed_policy_must_leave_nothing_to_choose(
    bed: Bed, overrides: list[dict[str, str]], distribution: dict[str, int], text: str | None
) -> None:
    mixed(bed, overrides, **distribution)
    reason = (await bed.pool().observe()).refused_reason
    assert reason is None if text is None else text in (reason or "")


async def test_offerings_must_fit_the_group_and_each_other(bed: Bed) -> None:
    elsewhere = bed.pool(offerings=(an_offering(ZONE_B),))
    assert "not in us-east-1b" in ((await elsewhere.observe()).refused_reason or "")
    types = bed.pool(offerings=(an_offering(), an_offering(instance_type="p4d.24xlarge")))
    assert "several instance types" in ((await types.observe()).refused_reason or "")
    ways = bed.pool(offerings=(an_offering(), an_offering(capacity_type=CapacityType.ON_DEMAND)))
    assert "mix ways of buying" in ((await ways.observe()).refused_reason or "")


async def test_not_being_allowed_to_look_is_refused_with_the_call_that_is_missing(bed: Bed) -> None:
    bed.sim.fail_next("DescribePolicies", "AccessDenied")
    reason = (await bed.pool().observe()).refused_reason or ""
    assert "DescribePolicies" in reason
    assert "allow" in reason


async def test_surroundings_are_looked_at_once_a_minute(bed: Bed) -> None:
    pool = bed.pool()
    for _ in range(5):
        await pool.observe()
        bed.pass_time(5)
    assert bed.calls("DescribePolicies") == 1


async def test_a_throttled_look_around_keeps_what_was_known_for_a_while(bed: Bed) -> None:
    pool = bed.pool()
    await pool.observe()
    bed.pass_time(90)
    bed.sim.fail_next("DescribePolicies", "Throttling")
    assert (await pool.observe()).refused_reason is None


def reading(bed: Bed, **changes: object) -> Reading:
    return Reading(listed_at_s=0.0, begun_s=0.0, mark=0, group=described(bed.sim) | changes, members={})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"Operator": {"Principal": "eks.amazonaws.com"}}, "another owner: the group is managed by eks.amazonaws.com"),
        ({"Status": "Delete in progress"}, "is being deleted"),
        ({"LaunchTemplate": None, "LaunchConfigurationName": "old"}, "needs a launch template"),
    ],
)
def test_what_only_aws_can_set_is_refused_as_well(bed: Bed, changes: dict[str, object], text: str) -> None:
    found = refused(reading(bed, **changes), Surroundings(), (an_offering(),), sync=True)
    assert text in (found or "")


def test_disabled_policies_harm_nobody(bed: Bed) -> None:
    assert refused(reading(bed), Surroundings(), (an_offering(),), sync=True) is None
