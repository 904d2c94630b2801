"""Auto Scaling's calls about groups: make, describe, size, processes. Shapes and texts: Auto Scaling API reference."""

from typing import Any

from tests.simcloud.asked import Asked, Json, filters, page, tags_match
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.errors import CloudError
from tests.simcloud.groups import PROCESSES, Activity, Group, Groups, activity_view, group_view, member_view
from tests.simcloud.instances import Instances
from tests.simcloud.journal import EndedBy
from tests.simcloud.keeper import Keeper
from tests.simcloud.kernel import Kernel, iso
from tests.simcloud.settings import Settings
from tests.simcloud.views import Views

_GROUPS_A_PAGE = 50
_ACTIVITIES_A_PAGE = 100


def uncontended(group: Group, now_s: float) -> Group:
    """The group, where nothing else holds it now.

    Raises:
        CloudError: ResourceContention.
    """
    if now_s < group.contended_until_s:
        message = "You already have a pending update to an Amazon EC2 Auto Scaling resource."
        raise CloudError("ResourceContention", message, status=500)
    return group


class AutoScalingGroups:
    """See the module's docstring."""

    def __init__(
        self, kernel: Kernel, settings: Settings, groups: Groups, keeper: Keeper, instances: Instances
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._groups = groups
        self._keeper = keeper
        self._instances = instances
        self.views: Views[Json] = Views(kernel, settings)

    def note(self) -> None:
        """Something may have changed: leave versions behind, where they are kept."""
        if self.views.kept:
            for name, view in self.current().items():
                self.views.note(name, view)

    def current(self) -> dict[str, Json]:
        """Every group as it is."""
        return {name: group_view(group) for name, group in self._groups.by_name.items()}

    def _group(self, asked: Asked) -> Group:
        return uncontended(self._groups.get(asked.p["AutoScalingGroupName"]), self._kernel.now_s())

    def create_auto_scaling_group(self, asked: Asked) -> Json:
        name = asked.p["AutoScalingGroupName"]
        if name in self._groups.by_name:
            raise CloudError(
                "AlreadyExists",
                f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
            )
        region, account = self._settings.region, self._settings.account
        arn = (
            f"arn:aws:autoscaling:{region}:{account}:autoScalingGroup:{self._kernel.uuid()}:autoScalingGroupName/{name}"
        )
        group = Group(
            name=name,
            arn=arn,
            zones=self._zones(asked) or (self._settings.zones[0],),
            template=asked.p.get("LaunchTemplate"),
            mixed=asked.p.get("MixedInstancesPolicy"),
            min_size=asked.p["MinSize"],
            max_size=asked.p["MaxSize"],
            desired=asked.p.get("DesiredCapacity", asked.p["MinSize"]),
            created_at_s=self._kernel.now_s(),
        )
        self._apply(group, asked)
        _check_bounds(group)
        self._groups.by_name[name] = group
        self._say(group, 0, asked.caller)
        return {}

    def _zones(self, asked: Asked) -> tuple[str, ...]:
        subnets = [one for one in asked.p.get("VPCZoneIdentifier", "").split(",") if one]
        of_subnet = {subnet_of(zone): zone for zone in self._settings.zones}
        unknown = [one for one in subnets if one not in of_subnet]
        if unknown:
            raise CloudError("ValidationError", f"The subnet ID '{unknown[0]}' does not exist")
        return tuple(of_subnet[one] for one in subnets) or tuple(asked.p.get("AvailabilityZones", ()))

    def update_auto_scaling_group(self, asked: Asked) -> Json:
        group = self._group(asked)
        before = group.desired
        zones = self._zones(asked)
        low, high = asked.p.get("MinSize", group.min_size), asked.p.get("MaxSize", group.max_size)
        desired = asked.p.get("DesiredCapacity", min(max(group.desired, low), high))
        _check_sizes(low, high, desired)
        group.min_size, group.max_size, group.desired, group.zones = low, high, desired, zones or group.zones
        self._apply(group, asked)
        self._say(group, before, asked.caller)
        return {}

    def _apply(self, group: Group, asked: Asked) -> None:
        names = {
            "NewInstancesProtectedFromScaleIn": "protected",
            "CapacityRebalance": "capacity_rebalance",
            "MaxInstanceLifetime": "max_lifetime_s",
            "HealthCheckGracePeriod": "grace_s",
            "DefaultCooldown": "cooldown_s",
            "LaunchTemplate": "template",
            "MixedInstancesPolicy": "mixed",
        }
        for name, own in names.items():
            if name in asked.p:
                setattr(group, own, asked.p[name])
        if "TerminationPolicies" in asked.p:
            group.termination_policies = tuple(asked.p["TerminationPolicies"])
        if "Tags" in asked.p:
            _tag(group, asked.p["Tags"])
        if group.template is None and group.mixed is None:
            raise CloudError(
                "ValidationError",
                "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or "
                "MixedInstancesPolicy parameter.",
            )

    def _say(self, group: Group, before: int, caller: str) -> None:
        group.changed_by = caller
        group.why = group.resized(before, self._kernel.now_s())
        self._keeper.touch(group)

    def set_desired_capacity(self, asked: Asked) -> Json:
        group, wanted = self._group(asked), asked.p["DesiredCapacity"]
        _check_desired(group, wanted)
        before, group.desired, group.changed_by = group.desired, wanted, asked.caller
        if before != wanted:
            at = iso(self._kernel.now_s())
            group.why = (
                f"At {at} a user request explicitly set group desired capacity changing the desired capacity from "
                f"{before} to {wanted}."
            )
        self._keeper.touch(group)
        return {}

    def delete_auto_scaling_group(self, asked: Asked) -> Json:
        group = self._group(asked)
        if group.members and not asked.p.get("ForceDelete", False):
            raise CloudError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
                "still in the group.",
            )
        group.deleting = True
        for member in list(group.members.values()):
            self._instances.end(member.instance, EndedBy.GROUP_DELETED, asked.caller)
        self._groups.by_name.pop(group.name)
        self.views.note(group.name, None)
        return {}

    def describe_auto_scaling_groups(self, asked: Asked) -> Json:
        names, wanted = asked.p.get("AutoScalingGroupNames"), filters(asked)
        seen = self.views.seen()
        if seen is None:
            seen = {n: group_view(g) for n, g in self._groups.by_name.items() if not names or n in names}
        found = [view for name, view in seen.items() if (not names or name in names) and _fits(view, wanted)]
        limit = min(100, asked.p.get("MaxRecords", _GROUPS_A_PAGE))
        shown, token = page(found, asked.p.get("NextToken"), limit)
        if asked.p.get("IncludeInstances") is False:
            shown = [view | {"Instances": []} for view in shown]
        return {"AutoScalingGroups": shown, "NextToken": token}

    def describe_auto_scaling_instances(self, asked: Asked) -> Json:
        ids = asked.p.get("InstanceIds")
        found = [
            member_view(member) | {"AutoScalingGroupName": group.name}
            for group in self._groups.by_name.values()
            for member in group.members.values()
            if not ids or member.instance.instance_id in ids
        ]
        shown, token = page(found, asked.p.get("NextToken"), asked.p.get("MaxRecords", 50))
        return {"AutoScalingInstances": shown, "NextToken": token}

    def describe_scaling_activities(self, asked: Asked) -> Json:
        """Newest first, those in progress before all others."""
        name = asked.p.get("AutoScalingGroupName")
        groups = [self._groups.get(name)] if name else list(self._groups.by_name.values())
        wanted, ids = filters(asked), asked.p.get("ActivityIds")
        found = [
            (one, activity_view(group, one))
            for group in groups
            for one in reversed(group.activities)
            if (not ids or one.activity_id in ids) and _activity_fits(one, wanted)
        ]
        found.sort(key=lambda pair: (pair[0].ended_at_s is not None, -pair[0].started_at_s))
        limit = min(_ACTIVITIES_A_PAGE, asked.p.get("MaxRecords", _ACTIVITIES_A_PAGE))
        shown, token = page([view for _, view in found], asked.p.get("NextToken"), limit)
        return {"Activities": shown, "NextToken": token}

    def suspend_processes(self, asked: Asked) -> Json:
        group = self._group(asked)
        for name in _processes(asked):
            group.suspended[name] = f"User suspended at {iso(self._kernel.now_s())}"
        return {}

    def resume_processes(self, asked: Asked) -> Json:
        group = self._group(asked)
        for name in _processes(asked):
            group.suspended.pop(name, None)
        for member in list(group.members.values()):
            self._keeper.check_health(group, member)
        self._keeper.touch(group)
        return {}

    def create_or_update_tags(self, asked: Asked) -> Json:
        for tag in asked.p["Tags"]:
            _tag(self._groups.get(tag["ResourceId"]), [tag])
        return {}

    def delete_tags(self, asked: Asked) -> Json:
        for gone in asked.p["Tags"]:
            group = self._groups.get(gone["ResourceId"])
            group.tags = [tag for tag in group.tags if tag["Key"] != gone["Key"]]
        return {}

    def describe_tags(self, asked: Asked) -> Json:
        wanted = filters(asked)
        rows = [
            tag | {"ResourceId": group.name, "ResourceType": "auto-scaling-group"}
            for group in self._groups.by_name.values()
            for tag in group.tags
            if group.name in wanted.get("auto-scaling-group", [group.name])
            and tag["Key"] in wanted.get("key", [tag["Key"]])
            and tag["Value"] in wanted.get("value", [tag["Value"]])
        ]
        return {"Tags": rows}


def _processes(asked: Asked) -> list[str]:
    names = asked.p.get("ScalingProcesses") or list(PROCESSES)
    unknown = [name for name in names if name not in PROCESSES]
    if unknown:
        raise CloudError("ValidationError", f"Invalid process type: {unknown[0]}")
    return list(names)


def _tag(group: Group, tags: list[Json]) -> None:
    for tag in tags:
        kept = {
            "Key": tag["Key"],
            "Value": tag.get("Value", ""),
            "PropagateAtLaunch": bool(tag.get("PropagateAtLaunch")),
        }
        group.tags = [known for known in group.tags if known["Key"] != kept["Key"]] + [kept]


def _check_bounds(group: Group) -> None:
    _check_sizes(group.min_size, group.max_size, group.desired)


def _check_sizes(low: int, high: int, desired: int) -> None:
    if low > high:
        raise CloudError("ValidationError", f"Max bound, {high}, must be greater than or equal to min bound, {low}")
    if not low <= desired <= high:
        raise CloudError(
            "ValidationError",
            f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}",
        )


def _check_desired(group: Group, wanted: int) -> None:
    if wanted > group.max_size:
        raise CloudError(
            "ValidationError",
            f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} for the AutoScalingGroup.",
        )
    if wanted < group.min_size:
        raise CloudError(
            "ValidationError",
            f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} for the AutoScalingGroup.",
        )


def _fits(view: Json, wanted: dict[str, list[str]]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in view["Tags"]}
    return all(tags_match(tags, name, patterns) for name, patterns in wanted.items())


def _activity_fits(one: Activity, wanted: dict[str, list[str]]) -> bool:
    bounds: dict[str, Any] = {
        "Status": lambda values: one.status in values,
        "StartTimeLowerBound": lambda values: iso(one.started_at_s) >= values[0],
        "StartTimeUpperBound": lambda values: iso(one.started_at_s) <= values[0],
    }
    return all(bounds[name](values) for name, values in wanted.items())
