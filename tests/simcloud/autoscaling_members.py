"""Auto Scaling's calls about named instances: launch, terminate, detach, protect, standby, health, lifecycle actions.

Sources: API reference; user guide, "Launch instances synchronously" (client tokens live 8 hours and bring the first answer
back; partial success is normal; warm pools and mixed markets are refused; a success raises the desired capacity, a failure
does so only with `retry-with-group-configuration`).
"""

from tests.simcloud.activities import Activities
from tests.simcloud.asked import Asked, Json
from tests.simcloud.autoscaling_groups import uncontended
from tests.simcloud.catalogue import subnet_of, zone_id
from tests.simcloud.errors import CloudError
from tests.simcloud.groups import IN_SERVICE, STANDBY, Activity, Group, Groups, Member, Remembered, activity_view
from tests.simcloud.hooks import HookWaits
from tests.simcloud.instances import Instance, Instances, LaunchSpec
from tests.simcloud.journal import EndedBy
from tests.simcloud.keeper import Keeper
from tests.simcloud.kernel import Kernel, iso
from tests.simcloud.market import ON_DEMAND, SPOT, Refusal
from tests.simcloud.settings import Settings
from tests.simcloud.starting import Starter

_LAUNCH_LIMIT, _TERMINATE_LIMIT, _DETACH_LIMIT, _PROTECT_LIMIT = 100, 100, 20, 50


class AutoScalingMembers:
    """See the module's docstring."""

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        groups: Groups,
        keeper: Keeper,
        starter: Starter,
        hooks: HookWaits,
        activities: Activities,
        instances: Instances,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._groups = groups
        self._keeper = keeper
        self._starter = starter
        self._hooks = hooks
        self._activities = activities
        self._instances = instances

    def _group(self, name: str) -> Group:
        return uncontended(self._groups.get(name), self._kernel.now_s())

    def launch_instances(self, asked: Asked) -> Json:
        group = self._group(asked.p["AutoScalingGroupName"])
        token, asked_for = asked.p["ClientToken"], dict(asked.p)
        known = group.launches.get(token)
        if known is not None and self._kernel.now_s() - known.at_s < self._settings.token_life_s:
            if known.parameters != asked_for:
                message = "The request has the same client token as an earlier one, but other parameters."
                raise CloudError("IdempotentParameterMismatch", message)
            return known.answer
        zone = self._launch_zone(group, asked)
        _check_launch(group, asked.p["RequestedCapacity"])
        answer = self._launch(group, zone, asked)
        group.launches[token] = Remembered(parameters=asked_for, answer=answer, at_s=self._kernel.now_s())
        return answer

    def _launch_zone(self, group: Group, asked: Asked) -> str:
        by_name = {zone: zone for zone in group.zones}
        of_id = {zone_id(zone): zone for zone in group.zones}
        of_subnet = {subnet_of(zone): zone for zone in group.zones}
        named = (
            ("AvailabilityZones", by_name),
            ("AvailabilityZoneIds", of_id),
            ("SubnetIds", of_subnet),
        )
        places = [known.get(place) for field, known in named for place in asked.p.get(field) or []]
        zones = set(places) if places else set(group.zones)
        zone = zones.pop() if len(zones) == 1 else None
        if zone is None:
            raise CloudError("ValidationError", "Exactly one Availability Zone of the group must be specified.")
        return zone

    def _launch(self, group: Group, zone: str, asked: Asked) -> Json:
        made: list[Instance] = []
        refused: tuple[LaunchSpec, Refusal] | None = None
        number = asked.p["RequestedCapacity"]
        while len(made) < number and refused is None:
            found = self._launch_one(group, zone, asked)
            if isinstance(found, Instance):
                made.append(found)
            else:
                refused = found
        if asked.p.get("RetryStrategy") == "retry-with-group-configuration":
            group.desired += number - len(made)
            group.changed_by = asked.caller
        self._keeper.touch(group)
        return {
            "AutoScalingGroupName": group.name,
            "ClientToken": asked.p["ClientToken"],
            "Instances": _collections(made),
            "Errors": [] if refused is None else [_launch_error(zone, *refused)],
        }

    def _launch_one(self, group: Group, zone: str, asked: Asked) -> Instance | tuple[LaunchSpec, Refusal]:
        before = group.desired
        found = self._starter.launch(group, zone, asked.p["ClientToken"])
        at = iso(self._kernel.now_s())
        cause = f"At {at} a user request to launch instances, increasing the capacity from {before} to {before + 1}."
        if not isinstance(found, Member):
            spec, refusal = found
            self._activities.not_launched(group, cause, zone, refusal.activity_message(spec.market))
            return found
        group.desired, group.changed_by = before + 1, asked.caller
        instance_id = found.instance.instance_id
        found.activity = self._activities.begin(group, f"Launching a new EC2 instance: {instance_id}", cause, zone)
        return found.instance

    def terminate_instance_in_auto_scaling_group(self, asked: Asked) -> Json:
        """Scale-in protection does not hold against it."""
        ids = asked.p.get("InstanceIds") or [asked.p["InstanceId"]]
        _check_number(ids, _TERMINATE_LIMIT)
        decrement = asked.p["ShouldDecrementDesiredCapacity"]
        pairs = [self._member(instance_id, asked.p.get("AutoScalingGroupName")) for instance_id in ids]
        group = pairs[0][0]
        fresh = [member for _, member in pairs if member.ending is None]
        if decrement:
            _check_floor(group, sum(member.lifecycle != STANDBY for member in fresh))
        done = [self._end(group, member, asked.caller, decrement=decrement) for _, member in pairs]
        views = [activity_view(group, one) for one in done]
        return {"Activities": views} if "InstanceIds" in asked.p else {"Activity": views[0]}

    def _member(self, instance_id: str, name: str | None) -> tuple[Group, Member]:
        instance = self._instances.by_id.get(instance_id)
        found = self._groups.of(instance) if instance is not None else None
        if found is None or (name is not None and found[0].name != name):
            raise CloudError(
                "ValidationError", f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
            )
        uncontended(found[0], self._kernel.now_s())
        return found

    def _end(self, group: Group, member: Member, caller: str, *, decrement: bool) -> Activity:
        if member.ending is not None and member.activity is not None:
            return member.activity
        instance_id = member.instance.instance_id
        cause = self._activities.request_cause(group, instance_id, "taken out of service", decrement=decrement)
        if decrement and member.lifecycle != STANDBY:
            group.desired -= 1
        group.changed_by = caller
        self._keeper.end(group, member, EndedBy.TERMINATE_NAMED, caller, cause)
        return group.activities[-1]

    def detach_instances(self, asked: Asked) -> Json:
        group = self._group(asked.p["AutoScalingGroupName"])
        members = self._named(group, asked.p.get("InstanceIds") or [], _DETACH_LIMIT)
        for member in members:
            _check_lifecycle(member, {IN_SERVICE, STANDBY})
        decrement = asked.p["ShouldDecrementDesiredCapacity"]
        counted = sum(member.counted for member in members)
        if decrement:
            _check_floor(group, counted)
        return {"Activities": [self._detach(group, one, asked.caller, decrement=decrement) for one in members]}

    def _detach(self, group: Group, member: Member, caller: str, *, decrement: bool) -> Json:
        cause = self._activities.request_cause(group, member.instance.instance_id, "detached", decrement=decrement)
        if decrement and member.counted:
            group.desired -= 1
        group.changed_by = caller
        description = f"Detaching EC2 instance: {member.instance.instance_id}"
        one = self._activities.begin(group, description, cause, member.instance.zone)
        view = activity_view(group, one)
        member.lifecycle = "Detaching"
        self._kernel.after(0.5, lambda: self._detached(group, member, one))
        self._keeper.touch(group)
        return view

    def _detached(self, group: Group, member: Member, one: Activity) -> None:
        one.close(self._kernel.now_s())
        self._keeper.leave(group, member)

    def enter_standby(self, asked: Asked) -> Json:
        group = self._group(asked.p["AutoScalingGroupName"])
        members = self._named(group, asked.p.get("InstanceIds") or [], _DETACH_LIMIT)
        for member in members:
            _check_lifecycle(member, {IN_SERVICE})
        if asked.p["ShouldDecrementDesiredCapacity"]:
            _check_floor(group, len(members))
            group.desired -= len(members)
        return {
            "Activities": [self._move(group, member, STANDBY, "Moving EC2 instance to Standby") for member in members]
        }

    def exit_standby(self, asked: Asked) -> Json:
        group = self._group(asked.p["AutoScalingGroupName"])
        members = self._named(group, asked.p.get("InstanceIds") or [], _DETACH_LIMIT)
        for member in members:
            _check_lifecycle(member, {STANDBY})
        group.desired += len(members)
        return {"Activities": [self._move(group, m, IN_SERVICE, "Moving EC2 instance out of Standby") for m in members]}

    def _move(self, group: Group, member: Member, lifecycle: str, what: str) -> Json:
        instance_id = member.instance.instance_id
        cause = self._activities.request_cause(group, instance_id, "moved", decrement=False)
        one = self._activities.begin(group, f"{what}: {instance_id}", cause, member.instance.zone)
        view = activity_view(group, one)
        member.lifecycle = lifecycle
        one.close(self._kernel.now_s())
        self._keeper.touch(group)
        return view

    def set_instance_protection(self, asked: Asked) -> Json:
        group = self._group(asked.p["AutoScalingGroupName"])
        members = self._named(group, asked.p["InstanceIds"], _PROTECT_LIMIT)
        for member in members:
            _check_lifecycle(member, {IN_SERVICE, STANDBY, "Pending", "Pending:Wait", "Pending:Proceed"})
        for member in members:
            member.protected = member.instance.protected = asked.p["ProtectedFromScaleIn"]
        return {}

    def set_instance_health(self, asked: Asked) -> Json:
        group, member = self._member(asked.p["InstanceId"], None)
        member.healthy = asked.p["HealthStatus"] == "Healthy"
        if not member.healthy and group.runs("ReplaceUnhealthy"):
            at = iso(self._kernel.now_s())
            cause = f"At {at} an instance was taken out of service in response to a user health-check."
            self._keeper.end(group, member, EndedBy.UNHEALTHY, asked.caller, cause)
        return {}

    def _named(self, group: Group, ids: list[str], limit: int) -> list[Member]:
        _check_number(ids, limit)
        unknown = [one for one in ids if one not in group.members]
        if unknown:
            raise CloudError(
                "ValidationError", f"The instance {unknown[0]} is not part of Auto Scaling group {group.name}."
            )
        return [group.members[one] for one in ids]

    def complete_lifecycle_action(self, asked: Asked) -> Json:
        result = asked.p["LifecycleActionResult"]
        if result not in {"CONTINUE", "ABANDON"}:
            raise CloudError(
                "ValidationError", f"The lifecycle action result {result} is invalid. Please use CONTINUE or ABANDON."
            )
        member = self._waiting(asked)
        self._hooks.complete(member, asked.p["LifecycleHookName"], asked.p.get("LifecycleActionToken"), result)
        return {}

    def record_lifecycle_action_heartbeat(self, asked: Asked) -> Json:
        member = self._waiting(asked)
        self._hooks.heartbeat(member, asked.p["LifecycleHookName"], asked.p.get("LifecycleActionToken"))
        return {}

    def _waiting(self, asked: Asked) -> Member:
        group = self._group(asked.p["AutoScalingGroupName"])
        instance_id, token = asked.p.get("InstanceId"), asked.p.get("LifecycleActionToken")
        for member in group.members.values():
            tokens = {wait.token for wait in member.waits.values()}
            if member.instance.instance_id == instance_id or (not instance_id and token in tokens):
                return member
        which = f"instance ID {instance_id}" if instance_id else f"token {token}"
        raise CloudError("ValidationError", f"No active Lifecycle Action found with {which}")


def _check_number(ids: list[str], limit: int) -> None:
    if len(ids) > limit:
        raise CloudError(
            "ValidationError",
            "1 validation error detected: Value at 'instanceIds' failed to satisfy constraint: Member must have length "
            f"less than or equal to {limit}",
        )


def _check_launch(group: Group, number: int) -> None:
    if group.warm_pool is not None:
        raise CloudError(
            "UnsupportedOperation", "LaunchInstances is not supported for Auto Scaling groups with warm pools."
        )
    share = group.on_demand_share()
    if share is not None and share not in {(0, 0), (0, 100)}:
        raise CloudError(
            "ValidationError", "LaunchInstances supports fully On-Demand or fully Spot mixed instances policies only."
        )
    if not 1 <= number <= _LAUNCH_LIMIT:
        raise CloudError("ValidationError", f"RequestedCapacity must be between 1 and {_LAUNCH_LIMIT}.")
    if group.desired + number > group.max_size:
        raise CloudError(
            "ValidationError", f"Launching {number} instance(s) would exceed the group's max size ({group.max_size})."
        )


def _check_floor(group: Group, fewer: int) -> None:
    if group.desired - fewer < group.min_size:
        message = (
            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement will "
            "violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower "
            "group's min size."
        )
        raise CloudError("ValidationError", message)


def _check_lifecycle(member: Member, allowed: set[str]) -> None:
    if member.lifecycle not in allowed:
        names = " or ".join(sorted(allowed))
        raise CloudError("ValidationError", f"The instance {member.instance.instance_id} is not in {names}.")


def _market_name(market: str) -> str:
    return {SPOT: "Spot", ON_DEMAND: "OnDemand"}.get(market, market)


def _collections(made: list[Instance]) -> list[Json]:
    found: dict[tuple[str, str], list[str]] = {}
    for one in made:
        found.setdefault((one.spec.instance_type, one.spec.market), []).append(one.instance_id)
    zone = made[0].zone if made else ""
    return [
        {"InstanceType": instance_type, "MarketType": _market_name(market), "InstanceIds": ids, **_place(zone)}
        for (instance_type, market), ids in found.items()
    ]


def _launch_error(zone: str, spec: LaunchSpec, refusal: Refusal) -> Json:
    return {
        "InstanceType": spec.instance_type,
        "MarketType": _market_name(spec.market),
        "ErrorCode": refusal.code,
        "ErrorMessage": refusal.message,
        **_place(zone),
    }


def _place(zone: str) -> Json:
    return {"SubnetId": subnet_of(zone), "AvailabilityZone": zone, "AvailabilityZoneId": zone_id(zone)}
