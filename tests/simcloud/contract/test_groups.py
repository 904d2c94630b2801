from tests.simcloud.contract.conftest import Cloud


def test_a_group_is_filled_up_to_its_desired_capacity_with_instances_that_say_whose_they_are(cloud: Cloud) -> None:
    tag = {"Key": "team", "Value": "rl", "PropagateAtLaunch": True, "ResourceId": "workers"}
    cloud.group(desired=2, Tags=[tag | {"ResourceType": "auto-scaling-group"}])
    group = cloud.described()
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (0, 10, 2)
    assert group["AvailabilityZones"] == ["us-east-1a"]
    assert group["NewInstancesProtectedFromScaleIn"] is False
    assert [(tag["Key"], tag["Value"]) for tag in group["Tags"]] == [("team", "rl")]
    for instance_id in cloud.in_service():
        tags = {tag["Key"]: tag["Value"] for tag in cloud.instance(instance_id)["Tags"]}
        assert tags["aws:autoscaling:groupName"] == "workers"
        assert tags["team"] == "rl"


def test_members_are_listed_with_type_zone_health_and_protection(cloud: Cloud) -> None:
    cloud.group(desired=1, NewInstancesProtectedFromScaleIn=True)
    member = cloud.described()["Instances"][0]
    shown = {key: member[key] for key in ("InstanceType", "AvailabilityZone", "HealthStatus", "ProtectedFromScaleIn")}
    assert shown == {
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "HealthStatus": "Healthy",
        "ProtectedFromScaleIn": True,
    }


def test_a_raised_desired_capacity_is_met(cloud: Cloud) -> None:
    cloud.group(desired=1)
    cloud("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=3)
    cloud.until(lambda: len(cloud.in_service()) == 3)


def test_a_lowered_desired_capacity_takes_unprotected_members_only(cloud: Cloud) -> None:
    cloud.group(desired=3)
    kept = cloud.in_service()[:2]
    scaling = cloud("autoscaling")
    scaling.set_instance_protection(InstanceIds=kept, AutoScalingGroupName="workers", ProtectedFromScaleIn=True)
    scaling.set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=1)
    cloud.until(lambda: len(cloud.described()["Instances"]) == 2)
    assert sorted(cloud.in_service()) == sorted(kept)
    assert cloud.described()["DesiredCapacity"] == 1


def test_ending_a_named_member_with_decrement_lowers_the_desired_capacity(cloud: Cloud) -> None:
    cloud.group(desired=2)
    victim, other = cloud.in_service()
    cloud("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=victim, ShouldDecrementDesiredCapacity=True
    )
    cloud.until(lambda: [member["InstanceId"] for member in cloud.described()["Instances"]] == [other])
    assert cloud.described()["DesiredCapacity"] == 1
    cloud.until(lambda: cloud.instance(victim)["State"]["Name"] == "terminated")


def test_ending_a_named_member_without_decrement_has_it_replaced(cloud: Cloud) -> None:
    cloud.group(desired=1)
    [victim] = cloud.in_service()
    cloud("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=victim, ShouldDecrementDesiredCapacity=False
    )
    cloud.until(lambda: cloud.in_service() not in ([], [victim]))
    assert cloud.described()["DesiredCapacity"] == 1


def test_protection_from_scale_in_does_not_hold_against_who_names_the_instance(cloud: Cloud) -> None:
    cloud.group(desired=1, NewInstancesProtectedFromScaleIn=True)
    [victim] = cloud.in_service()
    cloud("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=victim, ShouldDecrementDesiredCapacity=True
    )
    cloud.until(lambda: cloud.described()["Instances"] == [])


def test_a_detached_member_runs_on_outside_the_group(cloud: Cloud) -> None:
    cloud.group(desired=2)
    leaving, staying = cloud.in_service()
    cloud("autoscaling").detach_instances(
        InstanceIds=[leaving], AutoScalingGroupName="workers", ShouldDecrementDesiredCapacity=True
    )
    cloud.until(lambda: [member["InstanceId"] for member in cloud.described()["Instances"]] == [staying])
    assert cloud.described()["DesiredCapacity"] == 1
    assert cloud.instance(leaving)["State"]["Name"] == "running"
    assert "aws:autoscaling:groupName" not in {tag["Key"] for tag in cloud.instance(leaving).get("Tags", [])}


def test_a_member_ended_through_ec2_is_replaced(cloud: Cloud) -> None:
    cloud.group(desired=1)
    [victim] = cloud.in_service()
    cloud("ec2").terminate_instances(InstanceIds=[victim])
    cloud.until(lambda: cloud.in_service() not in ([], [victim]))


def test_protection_is_set_and_taken(cloud: Cloud) -> None:
    cloud.group(desired=1)
    scaling, ids = cloud("autoscaling"), cloud.in_service()
    for wanted in (True, False):
        scaling.set_instance_protection(AutoScalingGroupName="workers", InstanceIds=ids, ProtectedFromScaleIn=wanted)
        assert [member["ProtectedFromScaleIn"] for member in cloud.described()["Instances"]] == [wanted]


def test_suspended_processes_are_shown_until_resumed(cloud: Cloud) -> None:
    cloud.group()
    scaling = cloud("autoscaling")
    names = ["AZRebalance", "ReplaceUnhealthy"]
    scaling.suspend_processes(AutoScalingGroupName="workers", ScalingProcesses=names)
    assert sorted(one["ProcessName"] for one in cloud.described()["SuspendedProcesses"]) == names
    scaling.resume_processes(AutoScalingGroupName="workers", ScalingProcesses=["AZRebalance"])
    assert [one["ProcessName"] for one in cloud.described()["SuspendedProcesses"]] == ["ReplaceUnhealthy"]


def test_an_unknown_group_is_an_empty_list_to_describe(cloud: Cloud) -> None:
    found = cloud("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["none"])
    assert found["AutoScalingGroups"] == []


def test_hooks_policies_schedules_and_warm_pools_are_to_be_seen(cloud: Cloud) -> None:
    cloud.group()
    scaling = cloud("autoscaling")
    about = {"AutoScalingGroupName": "workers"}
    scaling.put_lifecycle_hook(
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=60,
        **about,
    )
    scaling.put_scaling_policy(
        PolicyName="cpu", PolicyType="SimpleScaling", AdjustmentType="ChangeInCapacity", ScalingAdjustment=1, **about
    )
    scaling.put_scheduled_update_group_action(
        ScheduledActionName="night", StartTime="2031-01-01T00:00:00Z", DesiredCapacity=0, **about
    )
    scaling.put_warm_pool(MinSize=1, **about)
    [hook] = scaling.describe_lifecycle_hooks(**about)["LifecycleHooks"]
    assert (hook["LifecycleHookName"], hook["HeartbeatTimeout"]) == ("drain", 60)
    assert [one["PolicyName"] for one in scaling.describe_policies(**about)["ScalingPolicies"]] == ["cpu"]
    actions = scaling.describe_scheduled_actions(**about)["ScheduledUpdateGroupActions"]
    assert [one["ScheduledActionName"] for one in actions] == ["night"]
    assert scaling.describe_warm_pool(**about)["WarmPoolConfiguration"]["MinSize"] == 1


def test_a_group_is_updated_in_part(cloud: Cloud) -> None:
    cloud.group(desired=1)
    cloud("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName="workers", MaxSize=20, NewInstancesProtectedFromScaleIn=True
    )
    group = cloud.described()
    assert (group["MaxSize"], group["MinSize"], group["DesiredCapacity"]) == (20, 0, 1)
    assert group["NewInstancesProtectedFromScaleIn"] is True


def test_a_deleted_group_takes_its_instances_with_it_when_forced(cloud: Cloud) -> None:
    cloud.group(desired=1)
    [member] = cloud.in_service()
    cloud("autoscaling").delete_auto_scaling_group(AutoScalingGroupName="workers", ForceDelete=True)
    found = cloud("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["workers"])
    assert found["AutoScalingGroups"] == []
    cloud.until(lambda: cloud.instance(member)["State"]["Name"] == "terminated")


def test_a_hook_like_those_of_eks_is_shown_as_it_was_made(cloud: Cloud) -> None:
    cloud.group()
    scaling = cloud("autoscaling")
    made = {
        "LifecycleHookName": "Terminate-LC-Hook",
        "AutoScalingGroupName": "workers",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "HeartbeatTimeout": 1800,
        "DefaultResult": "CONTINUE",
    }
    scaling.put_lifecycle_hook(**made)
    [hook] = scaling.describe_lifecycle_hooks(AutoScalingGroupName="workers")["LifecycleHooks"]
    assert {key: hook[key] for key in made} == made


def test_capacity_rebalancing_is_shown(cloud: Cloud) -> None:
    cloud.group("rebalanced", CapacityRebalance=True)
    cloud.group("plain", CapacityRebalance=False)
    shown = [cloud.described(name)["CapacityRebalance"] for name in ("rebalanced", "plain")]
    assert shown == [True, False]
