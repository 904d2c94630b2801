from typing import Any

import pytest

from scaler.act.base import InstanceState, LaunchResult, NotYet, PoolUnavailable
from scaler.act.eks_node_group import EksNodeGroupPool, EksNodeGroupSettings
from scaler.act.registry import make_actor
from scaler.model.capacity import CapacityType
from tests.builders.ec2_pools import (
    FLEET,
    TYPE,
    ZONE_A,
    ZONE_B,
    Bed,
    a_detach,
    a_launch,
    an_end,
    an_offering,
    by_token,
    check_endings,
    listed,
    until_settled,
)
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.journal import EndedBy
from tests.simcloud.market import SPOT, Offering

HERE = Offering(TYPE, ZONE_A, SPOT)


class EksBed(Bed):
    """A node group on Spot in one zone, unless told otherwise."""

    def node_group(self, *, desired: int = 0, zones: tuple[str, ...] = (ZONE_A,), **more: Any) -> None:
        given = {"capacityType": "SPOT", "instanceTypes": [TYPE]} | more
        self.sim.call(
            "eks",
            "CreateNodegroup",
            clusterName="ml",
            nodegroupName="rollout",
            subnets=[subnet_of(zone) for zone in zones],
            nodeRole="arn:aws:iam::123456789012:role/node",
            scalingConfig={"minSize": 0, "maxSize": 50, "desiredSize": desired},
            **given,
        )
        self.pass_time(30)

    def eks_pool(self, **more: Any) -> EksNodeGroupPool:
        given: dict[str, Any] = {
            "offerings": (an_offering(),),
            "nodes": self.nodes,
            "places": self.places,
            "accept_autoscaler_tags": True,
        }
        settings = EksNodeGroupSettings(aws=self.aws, fleet=FLEET, cluster="ml", node_group="rollout", **(given | more))
        return EksNodeGroupPool(settings, pool="spot", clock=self.clock)

    @property
    def eks_group(self) -> str:
        return self.sim.eks.by_name["ml", "rollout"].group.name


@pytest.fixture
def eks() -> EksBed:
    bed = EksBed()
    bed.node_group()
    return bed


async def test_a_launch_is_relative_on_the_groups_own_auto_scaling_group(eks: EksBed) -> None:
    pool = eks.eks_pool()
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.LAUNCHED
    eks.pass_time(30)
    assert await by_token(pool) == {"t-1": InstanceState.RUNNING}
    assert eks.calls("UpdateNodegroupConfig") == eks.calls("SetDesiredCapacity") == 0
    assert eks.desired(eks.eks_group) == 1


async def test_where_the_region_does_not_know_the_call_the_size_is_written_under_the_rules(eks: EksBed) -> None:
    pool = eks.eks_pool()
    eks.sim.fail_next("LaunchInstances", "InvalidAction", times=99)
    outcome = await until_settled(lambda: pool.launch(a_launch("t-1")), eks)
    assert outcome.result in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
    assert eks.calls("SetDesiredCapacity") == 1
    await until_settled(lambda: pool.launch(a_launch("t-2")), eks)
    assert eks.calls("LaunchInstances") == 1
    assert eks.desired(eks.eks_group) == 2


async def test_a_named_node_ends_with_decrement(eks: EksBed) -> None:
    pool = eks.eks_pool()
    instances = {instance.launch_token: instance for instance in await eks.up(pool, "t-1", "t-2")}
    await pool.terminate(an_end(instances["t-1"]))
    eks.pass_time(90)
    assert list(await by_token(pool)) == ["t-2"]
    assert eks.desired(eks.eks_group) == 1
    check_endings(eks)


async def test_an_instance_that_eks_drains_is_left_to_its_hook(eks: EksBed) -> None:
    pool = eks.eks_pool()
    eks.sim.settings.eks_drain_s = 900.0
    (instance,) = await eks.up(pool, "t-1")
    assert await pool.terminate(an_end(instance)) == (instance.instance_id,)
    eks.pass_time(120)
    assert eks.sim.groups.get(eks.eks_group).members[instance.instance_id].lifecycle == "Terminating:Wait"
    assert await pool.terminate(an_end(instance)) == ()
    assert eks.calls("CompleteLifecycleAction") == 0
    eks.sim.eks.emptied(instance.instance_id)
    eks.pass_time(30)
    assert await listed(pool) == ()
    assert eks.desired(eks.eks_group) == 0


async def test_a_rebalanced_node_is_replaced_before_eks_ends_it(eks: EksBed) -> None:
    pool = eks.eks_pool()
    instances = {instance.launch_token: instance for instance in await eks.up(pool, "t-1", "t-2")}
    eks.sim.fate.recommend([instances["t-1"].instance_id])
    eks.pass_time(10)
    assert len(await listed(pool)) == 3
    eks.pass_time(120)
    after = await listed(pool)
    assert [instance.launch_token for instance in after if instance.launch_token] == ["t-2"]
    assert len(after) == eks.desired(eks.eks_group) == 2
    assert {ended.by for ended in eks.sim.ended()} == {EndedBy.EKS}


async def test_what_aws_launches_in_a_noticed_nodes_place_is_the_replacement(eks: EksBed) -> None:
    pool = eks.eks_pool()
    instances = {instance.launch_token: instance for instance in await eks.up(pool, "t-1", "t-2")}
    eks.sim.fate.reclaim(ids=[instances["t-1"].instance_id])
    eks.pass_time(15)
    assert len(await listed(pool)) == 3
    assert await pool.detach(a_detach(instances["t-1"])) == ()
    eks.pass_time(300)
    after = await listed(pool)
    assert len(after) == eks.desired(eks.eks_group) == 2
    (replacement,) = [instance for instance in after if not instance.launch_token]
    assert replacement.replica_id == replacement.instance_id
    assert {ended.by for ended in eks.sim.ended()} <= {EndedBy.EKS, EndedBy.SPOT}


async def test_nodes_that_eks_does_not_protect_are_protected_by_us(eks: EksBed) -> None:
    pool = eks.eks_pool()
    await eks.up(pool, "t-1")
    await pool.launch(a_launch("t-2"))
    eks.sim.call(
        "eks",
        "UpdateNodegroupConfig",
        caller="TERRAFORM",
        clusterName="ml",
        nodegroupName="rollout",
        scalingConfig={"desiredSize": 0},
    )
    eks.pass_time(60)
    assert "t-1" in await by_token(pool)


async def test_bug_054_a_group_that_is_not_active_is_held(eks: EksBed) -> None:
    pool = eks.eks_pool()
    (instance,) = await eks.up(pool, "t-1")
    group = eks.sim.eks.by_name["ml", "rollout"]
    group.status = "DEGRADED"
    group.issues = [{"code": "Ec2SubnetInvalidConfiguration", "message": "no addresses", "resourceIds": []}]
    eks.pass_time(15)
    observed = await pool.observe()
    assert "DEGRADED (Ec2SubnetInvalidConfiguration: no addresses)" in (observed.refused_reason or "")
    assert len(observed.instances) == 1
    assert (await pool.launch(a_launch("t-2"))).result is LaunchResult.CONFIGURATION
    with pytest.raises(NotYet, match="DEGRADED"):
        await pool.terminate(an_end(instance))
    group.status = "ACTIVE"
    eks.pass_time(15)
    assert (await pool.observe()).refused_reason is None


async def test_bug_054_a_group_that_eks_updates_is_held_until_it_has(eks: EksBed) -> None:
    pool = eks.eks_pool()
    (instance,) = await eks.up(pool, "t-1")
    about = {"clusterName": "ml", "nodegroupName": "rollout"}
    eks.sim.settings.eks_update_delay_s = (60.0, 60.0)
    eks.sim.call("eks", "UpdateNodegroupConfig", caller="TERRAFORM", scalingConfig={"maxSize": 60}, **about)
    eks.pass_time(15)
    assert (await pool.observe()).refused_reason == "the node group is UPDATING: held until it is ACTIVE"
    refused = await pool.launch(a_launch("t-2"))
    assert (refused.result, "UPDATING" in refused.message) == (LaunchResult.CONFIGURATION, True)
    with pytest.raises(NotYet, match="UPDATING"):
        await pool.terminate(an_end(instance))
    eks.pass_time(60)
    assert (await pool.observe()).refused_reason is None
    assert (await pool.launch(a_launch("t-2"))).result is LaunchResult.LAUNCHED


async def test_a_maximum_below_what_is_wanted_is_told_before_aws_is_asked() -> None:
    bed = EksBed()
    bed.node_group()
    bed.sim.groups.get(bed.eks_group).max_size = 1
    pool = bed.eks_pool()
    await bed.up(pool, "t-1")
    outcome = await pool.launch(a_launch("t-2"))
    assert outcome.result is LaunchResult.NO_ROOM
    assert outcome.message == "1 instances are needed and there is room for 0: raise the maximum or free some"
    assert bed.calls("LaunchInstances") == 1


async def test_bug_053_several_zones_are_refused_unless_accepted() -> None:
    bed = EksBed()
    bed.node_group(zones=(ZONE_A, ZONE_B))
    assert "acceptAZRebalance" in ((await bed.eks_pool().observe()).refused_reason or "")
    assert (await bed.eks_pool(accept_az_rebalance=True).observe()).refused_reason is None


async def test_discovery_tags_are_refused_unless_accepted(eks: EksBed) -> None:
    reason = (await eks.eks_pool(accept_autoscaler_tags=False).observe()).refused_reason or ""
    assert reason.startswith("another owner: the tag k8s.io/cluster-autoscaler/enabled")
    tagged = {"ResourceId": eks.eks_group, "ResourceType": "auto-scaling-group"}
    eks.sim.call("autoscaling", "DeleteTags", Tags=[tagged | {"Key": "k8s.io/cluster-autoscaler/enabled"}])
    eks.pass_time(5)
    assert (await eks.eks_pool(accept_autoscaler_tags=False).observe()).refused_reason is None


async def test_another_way_of_buying_than_the_offerings_say_is_refused() -> None:
    bed = EksBed()
    bed.node_group(capacityType="ON_DEMAND")
    assert "ON_DEMAND" in ((await bed.eks_pool().observe()).refused_reason or "")
    on_demand = (an_offering(capacity_type=CapacityType.ON_DEMAND),)
    assert (await bed.eks_pool(offerings=on_demand).observe()).refused_reason is None


async def test_several_types_are_refused() -> None:
    bed = EksBed()
    bed.node_group(instanceTypes=[TYPE, "p4d.24xlarge"])
    assert "several instance types" in ((await bed.eks_pool().observe()).refused_reason or "")


@pytest.mark.parametrize("operation", ["PutScalingPolicy", "PutScheduledUpdateGroupAction", "StartInstanceRefresh"])
async def test_what_else_sizes_or_replaces_is_refused_here_too(eks: EksBed, operation: str) -> None:
    names = {"PutScalingPolicy": {"PolicyName": "p"}, "PutScheduledUpdateGroupAction": {"ScheduledActionName": "s"}}
    more = names.get(operation, {})
    eks.sim.call("autoscaling", operation, AutoScalingGroupName=eks.eks_group, **more)
    assert (await eks.eks_pool().observe()).refused_reason is not None


async def test_capacity_rebalancing_is_eks_own_and_no_reason(eks: EksBed) -> None:
    assert eks.sim.groups.get(eks.eks_group).capacity_rebalance
    assert (await eks.eks_pool().observe()).refused_reason is None


async def test_a_missing_node_group_is_refused_by_name(eks: EksBed) -> None:
    settings = EksNodeGroupSettings(
        aws=eks.aws, fleet=FLEET, cluster="ml", node_group="rolout", offerings=(an_offering(),)
    )
    pool = make_actor("eks_node_group", settings, pool="spot", clock=eks.clock)
    observed = await pool.observe()
    assert observed.refused_reason == "cluster ml has no node group rolout: create or correct it"
    assert (await pool.launch(a_launch("t-1"))).result is LaunchResult.CONFIGURATION
    assert pool.facts() == {}
    await pool.close()


async def test_a_node_group_that_cannot_be_asked_for_is_unavailable(eks: EksBed) -> None:
    pool = eks.eks_pool()
    eks.sim.fail_next("DescribeNodegroup", "ServerException")
    with pytest.raises(PoolUnavailable):
        await pool.observe()
    assert (await pool.observe()).refused_reason is None


async def test_lack_of_capacity_is_told_at_once(eks: EksBed) -> None:
    eks.sim.market.set_capacity(HERE, 0)
    outcome = await eks.eks_pool().launch(a_launch("t-1"))
    assert outcome.result is LaunchResult.INSUFFICIENT_CAPACITY
    assert eks.desired(eks.eks_group) == 0


async def test_facts_are_the_groups(eks: EksBed) -> None:
    pool = eks.eks_pool()
    await eks.up(pool, "t-1")
    assert pool.facts()[an_offering().offering_id].price_usd_per_h == 10.0


@pytest.mark.parametrize("provider", ["auto_scaling_group", "eks_node_group"])
def test_settings_of_another_provider_are_refused(provider: str, eks: EksBed) -> None:
    with pytest.raises(TypeError, match="takes"):
        make_actor(provider, object(), pool="spot", clock=eks.clock)
