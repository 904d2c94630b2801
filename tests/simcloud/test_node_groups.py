"""EKS managed node groups. Sources are in `tests.simcloud.eks` and `keeper`."""

from typing import Any

import pytest

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.worlds import World


class Managed(World):
    """A world with the node group `pool` of the cluster `c`."""

    def __init__(
        self, *, capacity_type: str = "SPOT", desired: int = 2, subnets: tuple[str, ...] = ("subnet-useast1a",)
    ) -> None:
        super().__init__()
        sizes = {"minSize": 0, "maxSize": 20, "desiredSize": desired}
        self.eks("CreateNodegroup", subnets=list(subnets), capacityType=capacity_type, scalingConfig=sizes)
        self.settle()

    def eks(self, operation: str, **more: Any) -> Json:
        return self.sim.call("eks", operation, clusterName="c", nodegroupName="pool", **more)

    @property
    def pool(self) -> Json:
        found: Json = self.eks("DescribeNodegroup")["nodegroup"]
        return found

    @property
    def behind(self) -> str:
        return str(self.pool["resources"]["autoScalingGroups"][0]["name"])

    def nodes(self) -> list[str]:
        return [one.instance_id for one in self.sim.running(self.behind)]


def test_a_spot_group_has_capacity_rebalancing_on_and_marks_its_instances() -> None:
    world = Managed()
    [found] = world.sim.call("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[world.behind])[
        "AutoScalingGroups"
    ]
    assert found["CapacityRebalance"] is True
    assert found["NewInstancesProtectedFromScaleIn"] is False
    tags = world.sim.running(world.behind)[0].tags
    assert (tags["eks:cluster-name"], tags["eks:nodegroup-name"]) == ("c", "pool")


def test_its_group_has_eks_own_hooks_which_let_everything_through() -> None:
    """As groups of managed node groups show them: 1800 s, CONTINUE, told to a topic of EKS's."""
    world = Managed()
    found = world.sim.call("autoscaling", "DescribeLifecycleHooks", AutoScalingGroupName=world.behind)
    told = {
        (one["LifecycleHookName"], one["HeartbeatTimeout"], one["DefaultResult"]) for one in found["LifecycleHooks"]
    }
    assert told == {("Launch-LC-Hook", 1800, "CONTINUE"), ("Terminate-LC-Hook", 1800, "CONTINUE")}
    assert len(world.nodes()) == 2


def test_what_goes_waits_in_a_hook_that_is_told_of_while_eks_drains() -> None:
    world = Managed()
    world.sim.call("sqs", "CreateQueue", QueueName="notices")
    world.sim.bus.subscribe("notices", frozenset({"EC2 Instance-terminate Lifecycle Action"}))
    victim = world.nodes()[0]
    world.end(victim)
    member = world.sim.groups.get(world.behind).members[victim]
    assert (member.lifecycle, member.instance.state) == ("Terminating:Wait", "running")
    assert member.instance.eks_draining
    assert len(world.sim.queues.by_name["notices"].messages) == 1
    world.settle()
    assert world.how(victim) == "terminate_named"


def test_a_node_without_pods_is_let_go_at_once() -> None:
    world = Managed()
    world.sim.settings.eks_drain_s = 900.0
    victim = world.nodes()[0]
    world.end(victim)
    world.settle()
    assert world.state(victim) == "running"
    world.sim.eks.emptied(victim)
    world.settle()
    assert world.how(victim) == "terminate_named"


def test_an_update_takes_its_time_and_another_is_refused_meanwhile() -> None:
    world = Managed()
    update = world.eks("UpdateNodegroupConfig", scalingConfig={"desiredSize": 4})["update"]
    assert world.pool["status"] == "UPDATING"
    with pytest.raises(CloudError) as refused:
        world.eks("UpdateNodegroupConfig", scalingConfig={"desiredSize": 5})
    assert (refused.value.code, refused.value.status) == ("ResourceInUseException", 409)
    about = {"name": "c", "nodegroupName": "pool", "updateId": update["id"]}
    assert world.sim.call("eks", "DescribeUpdate", **about)["update"]["status"] == "InProgress"
    world.settle()
    assert world.sim.call("eks", "DescribeUpdate", **about)["update"]["status"] == "Successful"
    assert (world.pool["status"], len(world.nodes())) == ("ACTIVE", 4)


def test_a_lowered_desired_size_ends_instances_that_nobody_named() -> None:
    world = Managed(desired=4)
    world.eks("UpdateNodegroupConfig", scalingConfig={"desiredSize": 1}, caller="US")
    world.settle()
    assert [(one.by.value, one.caller) for one in world.sim.ended_by_us()] == [("scale_in", "US")] * 3


def test_a_recommendation_brings_a_replacement_and_ends_the_old_one_after_its_drain() -> None:
    """EKS user guide: Spot node groups launch a replacement on a rebalance recommendation, then drain the node."""
    world = Managed()
    at_risk = world.nodes()[0]
    world.sim.fate.recommend([at_risk])
    assert len(world.nodes()) == 3
    world.wait(20.0)
    assert world.sim.instances.get(at_risk).eks_draining
    assert world.state(at_risk) == "running"
    world.settle()
    assert world.how(at_risk) == "eks"
    assert len(world.nodes()) == 2


def test_a_notice_brings_a_replacement_and_a_drain_at_once() -> None:
    world = Managed()
    victim = world.nodes()[0]
    world.sim.fate.reclaim(ids=[victim])
    assert world.sim.instances.get(victim).eks_draining
    assert len(world.nodes()) == 3
    world.wait(200.0)
    assert len(world.nodes()) == 2
    assert world.pool["scalingConfig"]["desiredSize"] == 2


def test_a_recommendation_and_then_a_notice_bring_one_replacement() -> None:
    world = Managed()
    victim = world.nodes()[0]
    world.sim.fate.recommend([victim])
    world.sim.fate.reclaim(ids=[victim])
    assert len(world.nodes()) == 3
    world.wait(300.0)
    assert len(world.nodes()) == 2


def test_an_on_demand_group_does_nothing_about_recommendations() -> None:
    world = Managed(capacity_type="ON_DEMAND")
    before = world.nodes()
    world.sim.fate.recommend(before)
    world.wait(100.0)
    assert world.nodes() == before


def test_a_named_end_works_on_the_group_behind() -> None:
    world = Managed(desired=3)
    victim = world.nodes()[0]
    world.end(victim)
    world.settle()
    assert (world.how(victim), len(world.nodes())) == ("terminate_named", 2)
    assert world.pool["scalingConfig"]["desiredSize"] == 2


def test_over_several_zones_it_rebalances_between_them() -> None:
    """aws/containers-roadmap#1453: it cannot be turned off."""
    world = Managed(desired=4, subnets=("subnet-useast1a", "subnet-useast1b"))
    there = [one.instance_id for one in world.sim.running(world.behind) if one.zone == "us-east-1b"]
    world.end(*there)
    world.wait(200.0)
    zones = [one.zone for one in world.sim.running(world.behind)]
    assert sorted(zones) == ["us-east-1a", "us-east-1b"]
    assert "az_rebalance" in {one.by.value for one in world.sim.ended()}


@pytest.mark.parametrize("sizes", [{"desiredSize": 21}, {"minSize": 5, "maxSize": 4}, {"minSize": 3, "desiredSize": 2}])
def test_sizes_out_of_bounds_are_invalid(sizes: dict[str, int]) -> None:
    with pytest.raises(CloudError) as refused:
        Managed().eks("UpdateNodegroupConfig", scalingConfig=sizes)
    assert refused.value.code == "InvalidParameterException"


def test_labels_and_taints_are_changed_by_key() -> None:
    world = Managed()
    taint = {"key": "rollout", "value": "1", "effect": "NO_SCHEDULE"}
    world.eks(
        "UpdateNodegroupConfig",
        labels={"addOrUpdateLabels": {"a": "1", "b": "2"}},
        taints={"addOrUpdateTaints": [taint]},
    )
    world.settle()
    world.eks("UpdateNodegroupConfig", labels={"removeLabels": ["a"]}, taints={"removeTaints": [taint]})
    assert (world.pool["labels"], world.pool["taints"]) == ({"b": "2"}, [])
