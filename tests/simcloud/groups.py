"""What an Auto Scaling group is made of, and how Describe calls show it. Shapes: Auto Scaling API reference."""

from dataclasses import dataclass, field
from typing import Any

from tests.simcloud.asked import Json
from tests.simcloud.catalogue import subnet_of, zone_id
from tests.simcloud.errors import missing
from tests.simcloud.instances import Instance
from tests.simcloud.journal import EndedBy
from tests.simcloud.kernel import Kernel, Timer, as_date, iso

PENDING, IN_SERVICE, STANDBY = "Pending", "InService", "Standby"
COUNTED = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})
"""Lifecycle states that stand for desired capacity."""
PROCESSES = (
    "Launch",
    "Terminate",
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)
LAUNCHING, TERMINATING = "autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"


@dataclass(slots=True, kw_only=True)
class Hook:
    """A lifecycle hook."""

    name: str
    transition: str
    timeout_s: int = 3600
    default_result: str = "ABANDON"
    metadata: str = ""
    target_arn: str = ""
    role_arn: str = ""


@dataclass(slots=True, kw_only=True)
class Wait:
    """A hook that an instance waits for."""

    hook: Hook
    token: str
    timer: Timer
    began_at_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """An instance in a group."""

    instance: Instance
    lifecycle: str = PENDING
    healthy: bool = True
    protected: bool = False
    waits: dict[str, Wait] = field(default_factory=dict)
    """By hook name."""
    ending: EndedBy | None = None
    caller: str = ""
    activity: "Activity | None" = None
    """Its launch, or its end, while that goes on."""

    @property
    def counted(self) -> bool:
        """Whether it stands for desired capacity."""
        return self.lifecycle in COUNTED


@dataclass(slots=True, kw_only=True)
class Activity:
    """A scaling activity."""

    activity_id: str
    description: str
    cause: str
    started_at_s: float
    details: str
    status: str = "InProgress"
    message: str = ""
    progress: int = 50
    ended_at_s: float | None = None

    def close(self, at_s: float, status: str = "Successful", message: str = "") -> None:
        """It is over."""
        self.status, self.message, self.progress, self.ended_at_s = status, message, 100, at_s


@dataclass(slots=True, kw_only=True)
class Remembered:
    """What LaunchInstances answered to a client token."""

    parameters: Json
    answer: Json
    at_s: float


@dataclass(slots=True, kw_only=True)
class Replacement:
    """A new instance that stands in for an old one until that goes: the group is larger by one meanwhile."""

    old: Member
    new: Member
    by: EndedBy


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """An Auto Scaling group."""

    name: str
    arn: str
    zones: tuple[str, ...]
    template: Json | None
    mixed: Json | None
    min_size: int
    max_size: int
    desired: int
    created_at_s: float
    protected: bool = False
    """New instances are protected from scale-in."""
    capacity_rebalance: bool = False
    max_lifetime_s: int | None = None
    grace_s: int = 0
    cooldown_s: int = 300
    termination_policies: tuple[str, ...] = ("Default",)
    suspended: dict[str, str] = field(default_factory=dict)
    tags: list[Json] = field(default_factory=list)
    hooks: dict[str, Hook] = field(default_factory=dict)
    policies: dict[str, Json] = field(default_factory=dict)
    scheduled: dict[str, Json] = field(default_factory=dict)
    warm_pool: Json | None = None
    refreshes: list[Json] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    replacements: list[Replacement] = field(default_factory=list)
    launches: dict[str, Remembered] = field(default_factory=dict)
    """By client token."""
    contended_until_s: float = 0.0
    changed_by: str = ""
    """Who wrote its size last."""
    why: str = ""
    """The cause of what it does about its size."""
    planned: Timer | None = None
    managed: Json | None = None
    """`{"cluster": ..., "nodegroup": ...}` of an EKS managed node group."""
    deleting: bool = False

    def counted(self) -> list[Member]:
        """Members that stand for desired capacity."""
        return [member for member in self.members.values() if member.counted]

    def resized(self, before: int, at_s: float) -> str:
        """The cause of what follows an update."""
        changed = f" changing the desired capacity from {before} to {self.desired}" if before != self.desired else ""
        return (
            f"At {iso(at_s)} a user request update of AutoScalingGroup constraints to min: {self.min_size}, "
            f"max: {self.max_size}, desired: {self.desired}{changed}."
        )

    def in_zone(self, zone: str) -> int:
        """How many of these a zone has."""
        return sum(member.counted and member.instance.zone == zone for member in self.members.values())

    def runs(self, process: str) -> bool:
        """Whether a process is not suspended."""
        return process not in self.suspended

    def choices(self) -> list[tuple[Json, Json]]:
        """(launch template, override), in the order of the policy; one where there is no mixed policy."""
        if self.mixed is None:
            return [(self.template or {}, {})]
        mixed = self.mixed["LaunchTemplate"]
        chosen = mixed["LaunchTemplateSpecification"]
        overrides = mixed.get("Overrides") or [{}]
        return [(one.get("LaunchTemplateSpecification", chosen), one) for one in overrides]

    def on_demand_share(self) -> tuple[int, int] | None:
        """(base, percentage above it) of a mixed policy; None: the template says."""
        if self.mixed is None:
            return None
        spread = self.mixed.get("InstancesDistribution", {})
        return spread.get("OnDemandBaseCapacity", 0), spread.get("OnDemandPercentageAboveBaseCapacity", 100)


class Groups:
    """All groups by name."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.by_name: dict[str, Group] = {}

    def get(self, name: str) -> Group:
        """One of them.

        Raises:
            CloudError: ValidationError, as Auto Scaling answers.
        """
        found = self.by_name.get(name)
        if found is None:
            raise missing("AutoScalingGroup name", name)
        return found

    def of(self, instance: Instance) -> tuple[Group, Member] | None:
        """The group that has the instance."""
        group = self.by_name.get(instance.group)
        member = group.members.get(instance.instance_id) if group else None
        return (group, member) if group and member else None


def member_view(member: Member) -> Json:
    """As DescribeAutoScalingGroups lists it."""
    one = member.instance
    return {
        "InstanceId": one.instance_id,
        "InstanceType": one.spec.instance_type,
        "AvailabilityZone": one.zone,
        "AvailabilityZoneId": zone_id(one.zone),
        "LifecycleState": member.lifecycle,
        "HealthStatus": "Healthy" if member.healthy else "Unhealthy",
        "ProtectedFromScaleIn": member.protected,
        "LaunchTemplate": {
            "LaunchTemplateId": one.spec.template_id,
            "LaunchTemplateName": "",
            "Version": one.spec.template_version,
        },
    }


def group_view(group: Group) -> Json:
    """As DescribeAutoScalingGroups shows it."""
    view: Json = {
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "MinSize": group.min_size,
        "MaxSize": group.max_size,
        "DesiredCapacity": group.desired,
        "DefaultCooldown": group.cooldown_s,
        "AvailabilityZones": list(group.zones),
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": group.grace_s,
        "Instances": [member_view(member) for member in group.members.values()],
        "CreatedTime": as_date(group.created_at_s),
        "SuspendedProcesses": [{"ProcessName": name, "SuspensionReason": why} for name, why in group.suspended.items()],
        "VPCZoneIdentifier": ",".join(subnet_of(zone) for zone in group.zones),
        "EnabledMetrics": [],
        "Tags": [tag | {"ResourceId": group.name, "ResourceType": "auto-scaling-group"} for tag in group.tags],
        "TerminationPolicies": list(group.termination_policies),
        "NewInstancesProtectedFromScaleIn": group.protected,
        "ServiceLinkedRoleARN": f"arn:aws:iam::{group.arn.split(':')[4]}:role/AWSServiceRoleForAutoScaling",
        "CapacityRebalance": group.capacity_rebalance,
        "TrafficSources": [],
    }
    return view | _optional(group)


def _optional(group: Group) -> Json:
    view: dict[str, Any] = {}
    if group.template is not None:
        view["LaunchTemplate"] = group.template
    if group.mixed is not None:
        view["MixedInstancesPolicy"] = group.mixed
    if group.max_lifetime_s is not None:
        view["MaxInstanceLifetime"] = group.max_lifetime_s
    if group.warm_pool is not None:
        view |= {"WarmPoolConfiguration": group.warm_pool, "WarmPoolSize": 0}
    if group.deleting:
        view["Status"] = "Delete in progress"
    return view


def activity_view(group: Group, one: Activity) -> Json:
    """As DescribeScalingActivities shows it."""
    view: Json = {
        "ActivityId": one.activity_id,
        "AutoScalingGroupName": group.name,
        "Description": one.description,
        "Cause": one.cause,
        "StartTime": as_date(one.started_at_s),
        "StatusCode": one.status,
        "Progress": one.progress,
        "Details": one.details,
        "AutoScalingGroupARN": group.arn,
    }
    if one.message:
        view["StatusMessage"] = one.message
    if one.ended_at_s is not None:
        view["EndTime"] = as_date(one.ended_at_s)
    return view
