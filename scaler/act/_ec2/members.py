"""Instances of an Auto Scaling group as AWS tells them: two lists, Auto Scaling's and EC2's, joined by instance id.

Invariants: an instance counts by its lifecycle state, never by the group's desired capacity (CA#5728). What EC2 says of life and
death goes before what Auto Scaling says, which is slower. Tags and the launch time are EC2's.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scaler.kube.facts import FLEET_LABEL, POOL_LABEL, REPLICA_LABEL, TOKEN_ANNOTATION
from scaler.model.capacity import CapacityType
from scaler.model.pool import InstanceState

FLEET_TAG = FLEET_LABEL
POOL_TAG = POOL_LABEL
REPLICA_TAG = REPLICA_LABEL
TOKEN_TAG = TOKEN_ANNOTATION
GROUP_TAG = "headrace.dev/group"
"""The group that launched it: by this tag an instance is found that has left its group."""
PROTECTED_TAG = "headrace.dev/protected"
"""Scale-in protection was set by us, so that it is ours to take away."""
AWS_GROUP_TAG = "aws:autoscaling:groupName"
"""Auto Scaling's own; taken away when an instance is detached."""

_CAPACITY_TYPES = {"spot": CapacityType.SPOT, "capacity-block": CapacityType.CAPACITY_BLOCK}
_GOING = frozenset({"shutting-down", "stopping", "stopped", "terminated"})
_LEAVING = ("Terminating", "Terminating:Proceed", "Terminated")
_UNCOUNTED = ("Terminating", "Standby", "EnteringStandby", "Detach", "Terminated", "Warmed")
_YOUNG_S = 120.0
"""So long an instance with Auto Scaling's tag may be missing in Auto Scaling's list: the two lists are not of one moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One instance. `lifecycle` is Auto Scaling's state, empty outside its group; `ec2_state` is empty where EC2 shows none."""

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: CapacityType
    launched_at_s: float
    """On AWS's clock."""
    ec2_state: str
    lifecycle: str
    attached: bool
    protected: bool
    tags: Mapping[str, str]
    client_token: str
    weighted: bool = False

    @property
    def offering_id(self) -> str:
        """As `scaler.model.capacity.Offering.offering_id`."""
        return f"{self.instance_type}/{self.zone}/{self.capacity_type}"

    @property
    def state(self) -> InstanceState:
        """As the model has it. One that waits in a termination hook still runs: its work can be handed over."""
        if self.going or self.lifecycle in _LEAVING:
            return InstanceState.SHUTTING_DOWN
        if self.ec2_state in ("pending", "") or self.lifecycle.startswith("Pending"):
            return InstanceState.PENDING
        return InstanceState.RUNNING

    @property
    def going(self) -> bool:
        """EC2 ends it, or has stopped it, whoever wanted that."""
        return self.ec2_state in _GOING

    @property
    def counted(self) -> bool:
        """Whether its group's desired capacity counts it."""
        return self.attached and not self.going and not self.lifecycle.startswith(_UNCOUNTED)

    @property
    def standby(self) -> bool:
        """Somebody has put it aside by hand."""
        return self.lifecycle in ("Standby", "EnteringStandby")

    @property
    def in_termination_hook(self) -> bool:
        """Its group ends it and waits for a hook to be completed."""
        return self.lifecycle == "Terminating:Wait"


def join(group: Mapping[str, Any] | None, instances: Iterable[Mapping[str, Any]], now_s: float) -> dict[str, Member]:
    """All members by id. `now_s` is on AWS's clock."""
    listed = {raw["InstanceId"]: raw for raw in group.get("Instances", ())} if group else {}
    seen = {raw["InstanceId"]: raw for raw in instances}
    name = group["AutoScalingGroupName"] if group else ""
    members = [_member(seen.get(i), listed.get(i), name, now_s) for i in sorted(listed.keys() | seen.keys())]
    return {member.instance_id: member for member in members if _exists(member)}


def _exists(member: Member) -> bool:
    """One that EC2 does not show is either too new to be shown or gone."""
    return member.ec2_state != "" or member.lifecycle.startswith("Pending")


def _member(seen: Mapping[str, Any] | None, listed: Mapping[str, Any] | None, group: str, now_s: float) -> Member:
    ec2, scaling = seen or {}, listed or {}
    tags = {tag["Key"]: tag["Value"] for tag in ec2.get("Tags", ())}
    launched_at_s = seconds(ec2.get("LaunchTime"), now_s)
    young = now_s - launched_at_s < _YOUNG_S and bool(group) and tags.get(AWS_GROUP_TAG) == group
    lifecycle = str(scaling.get("LifecycleState", ""))
    return Member(
        instance_id=str(ec2.get("InstanceId") or scaling["InstanceId"]),
        instance_type=str(ec2.get("InstanceType") or scaling.get("InstanceType", "")),
        zone=str(ec2.get("Placement", {}).get("AvailabilityZone") or scaling.get("AvailabilityZone", "")),
        capacity_type=_CAPACITY_TYPES.get(str(ec2.get("InstanceLifecycle", "")), CapacityType.ON_DEMAND),
        launched_at_s=launched_at_s,
        ec2_state=str(ec2.get("State", {}).get("Name", "")),
        lifecycle=lifecycle,
        attached=lifecycle not in ("Detaching", "Detached", "Terminating:Retained") if listed else young,
        protected=bool(scaling.get("ProtectedFromScaleIn", False)),
        tags=tags,
        client_token=str(ec2.get("ClientToken", "")),
        weighted=scaling.get("WeightedCapacity") not in (None, "1"),
    )


def seconds(moment: object, otherwise_s: float) -> float:
    """A time of boto3's (a datetime with a zone) as UTC seconds."""
    return moment.timestamp() if isinstance(moment, datetime) else otherwise_s


def zone_of_activity(activity: Mapping[str, Any]) -> str:
    """The zone that a scaling activity was about; empty where it does not say."""
    try:
        return str(json.loads(activity.get("Details") or "{}").get("Availability Zone", ""))
    except (ValueError, AttributeError):
        return ""
