"""What tests with a SimCloud begin with: quick settings, groups, boto3 clients."""

from typing import Any

import boto3
from botocore.config import Config

from tests.simcloud.asked import Json
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.market import ON_DEMAND, SPOT
from tests.simcloud.settings import Settings
from tests.simcloud.sim import SimCloud


def quick() -> Settings:
    """Everything takes tens of milliseconds: for servers over real time."""
    return Settings(
        launch_delay_s=(0.02, 0.06),
        in_service_delay_s=(0.01, 0.02),
        shutdown_delay_s=(0.02, 0.04),
        reconcile_delay_s=(0.01, 0.03),
        health_check_delay_s=(0.05, 0.1),
        retry_delay_s=(0.1, 0.2),
        rebalance_check_delay_s=(0.05, 0.1),
        eks_update_delay_s=(0.1, 0.2),
        eks_join_delay_s=(0.01, 0.02),
        eks_drain_s=0.2,
    )


def client(
    address: str, service: str, *, caller: str = "HEADRACE", attempts: int = 1, region: str = "us-east-1"
) -> Any:
    """A boto3 client of a served SimCloud, which makes each call once unless told otherwise."""
    make: Any = boto3.client
    return make(
        service,
        region_name=region,
        endpoint_url=address,
        aws_access_key_id=caller,
        aws_secret_access_key="none",
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}, max_pool_connections=32),
    )


def make_template(
    sim: SimCloud, name: str, *, instance_type: str = "p5.48xlarge", market: str = SPOT, reservation_id: str = ""
) -> Json:
    """A launch template; returns what CreateLaunchTemplate answers."""
    data: Json = {"InstanceType": instance_type, "ImageId": "ami-0123456789abcdef0"}
    if market != ON_DEMAND:
        data["InstanceMarketOptions"] = {"MarketType": market}
    if reservation_id:
        target = {"CapacityReservationId": reservation_id}
        data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    made = sim.call("ec2", "CreateLaunchTemplate", LaunchTemplateName=name, LaunchTemplateData=data)
    template: Json = made["LaunchTemplate"]
    return template


def make_group(
    sim: SimCloud,
    name: str = "rollout",
    *,
    desired: int = 0,
    low: int = 0,
    high: int = 100,
    zones: tuple[str, ...] = ("us-east-1a",),
    instance_type: str = "p5.48xlarge",
    market: str = SPOT,
    protected: bool = True,
    balanced: bool = False,
    reservation_id: str = "",
    **more: Any,
) -> None:
    """A group as Headrace wants it: new instances protected, AZRebalance suspended, unless told otherwise."""
    template = make_template(
        sim, f"of-{name}", instance_type=instance_type, market=market, reservation_id=reservation_id
    )
    sim.call(
        "autoscaling",
        "CreateAutoScalingGroup",
        AutoScalingGroupName=name,
        LaunchTemplate={"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"},
        MinSize=low,
        MaxSize=high,
        DesiredCapacity=desired,
        VPCZoneIdentifier=",".join(subnet_of(zone) for zone in zones),
        NewInstancesProtectedFromScaleIn=protected,
        **more,
    )
    if not balanced:
        sim.call("autoscaling", "SuspendProcesses", AutoScalingGroupName=name, ScalingProcesses=["AZRebalance"])


def described(sim: SimCloud, name: str = "rollout") -> Json:
    """The group as DescribeAutoScalingGroups shows it."""
    found = sim.call("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[name])["AutoScalingGroups"]
    group: Json = found[0]
    return group


def in_service(sim: SimCloud, name: str = "rollout") -> list[str]:
    """Ids of members in service."""
    return [one["InstanceId"] for one in described(sim, name)["Instances"] if one["LifecycleState"] == "InService"]
