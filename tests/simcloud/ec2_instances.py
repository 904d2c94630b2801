"""EC2's calls about instances: describe, tag, terminate, status. Shapes and errors: EC2 API reference."""

from collections.abc import Callable, Iterable
from typing import Any

from tests.simcloud.asked import Asked, Json, filters, matches, page, tags_match
from tests.simcloud.catalogue import zone_id
from tests.simcloud.errors import CloudError
from tests.simcloud.instances import TERMINATED, Instance, Instances
from tests.simcloud.journal import EndedBy
from tests.simcloud.kernel import Kernel, as_date
from tests.simcloud.market import ON_DEMAND, SPOT
from tests.simcloud.settings import Settings
from tests.simcloud.views import Views

_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
_MAX_PAGE = 1000
_LIMIT_OF_TAGS = 50


def instance_view(one: Instance, account: str) -> Json:
    """As DescribeInstances shows it."""
    view: Json = {
        "InstanceId": one.instance_id,
        "ImageId": one.spec.image_id,
        "InstanceType": one.spec.instance_type,
        "State": {"Code": _CODES[one.state], "Name": one.state},
        "LaunchTime": as_date(one.launched_at_s),
        "Placement": {
            "AvailabilityZone": one.zone,
            "AvailabilityZoneId": zone_id(one.zone),
            "Tenancy": "default",
        },
        "SubnetId": one.subnet_id,
        "VpcId": "vpc-0123456789abcdef0",
        "StateTransitionReason": one.reason,
        "ClientToken": one.spec.client_token,
        "Architecture": "x86_64",
        "Tags": [{"Key": key, "Value": value} for key, value in one.tags.items()],
        "OwnerId": account,
    }
    if one.state != TERMINATED:
        view["PrivateIpAddress"] = one.private_ip
        view["PrivateDnsName"] = f"ip-{one.private_ip.replace('.', '-')}.ec2.internal"
    if one.spec.market != ON_DEMAND:
        view["InstanceLifecycle"] = one.spec.market
    if one.spec.market == SPOT:
        view["SpotInstanceRequestId"] = f"sir-{one.instance_id[2:10]}"
    if one.spec.reservation_id:
        view["CapacityReservationId"] = one.spec.reservation_id
    if one.reason:
        code, _, _ = one.reason.partition(":")
        view["StateReason"] = {"Code": code, "Message": one.reason}
    return view


class Ec2Instances:
    """See the module's docstring."""

    def __init__(self, kernel: Kernel, settings: Settings, instances: Instances) -> None:
        self._kernel = kernel
        self._settings = settings
        self._instances = instances
        self.views: Views[Json] = Views(kernel, settings)
        instances.listeners.append(self._note)

    def _note(self, one: Instance) -> None:
        if self.views.kept:
            self.views.note(one.instance_id, self._view(one))

    def _view(self, one: Instance) -> Json:
        return instance_view(one, self._settings.account)

    def current(self) -> dict[str, Json]:
        """Every instance as it is."""
        return {instance_id: self._view(one) for instance_id, one in self._instances.by_id.items()}

    def _visible(self, ids: Iterable[str] | None) -> list[Json]:
        seen = self.views.seen()
        if seen is None:
            chosen = self._instances.by_id.values() if ids is None else [self._instances.get(i) for i in ids]
            return [self._view(one) for one in chosen]
        if ids is None:
            return list(seen.values())
        _must_exist([instance_id for instance_id in ids if instance_id not in seen])
        return [seen[instance_id] for instance_id in ids]

    def describe_instances(self, asked: Asked) -> Json:
        ids, limit = asked.p.get("InstanceIds"), asked.p.get("MaxResults")
        if ids and limit is not None:
            message = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise CloudError("InvalidParameterCombination", message)
        wanted = filters(asked)
        _check_filters(wanted)
        found = [one for one in self._visible(ids or None) if _fits(one, wanted)]
        shown, token = page(found, asked.p.get("NextToken"), _page_size(limit), bad_token="InvalidPaginationToken")
        reservations = [
            {"ReservationId": f"r-{one['InstanceId'][2:]}", "OwnerId": self._settings.account, "Instances": [one]}
            for one in shown
        ]
        return {"Reservations": reservations, "NextToken": token}

    def terminate_instances(self, asked: Asked) -> Json:
        chosen = [self._instances.get(instance_id) for instance_id in asked.p["InstanceIds"]]
        for one in chosen:
            _check_termination(one)
        return {"TerminatingInstances": [self._terminate(one, asked.caller) for one in chosen]}

    def _terminate(self, one: Instance, caller: str) -> Json:
        before = one.state
        self._instances.end(one, EndedBy.TERMINATE_INSTANCES, caller)
        return {
            "InstanceId": one.instance_id,
            "PreviousState": {"Code": _CODES[before], "Name": before},
            "CurrentState": {"Code": _CODES[one.state], "Name": one.state},
        }

    def create_tags(self, asked: Asked) -> Json:
        added = {tag["Key"]: tag.get("Value", "") for tag in asked.p["Tags"]}
        if any(key.startswith("aws:") for key in added):
            raise CloudError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
        for one in [self._instances.get(instance_id) for instance_id in asked.p["Resources"]]:
            if len(one.tags | added) > _LIMIT_OF_TAGS:
                raise CloudError("TagLimitExceeded", "The maximum number of Tags for a resource has been reached")
            one.tags.update(added)
            self._instances.touched(one)
        return {}

    def delete_tags(self, asked: Asked) -> Json:
        for one in [self._instances.get(instance_id) for instance_id in asked.p["Resources"]]:
            for tag in asked.p.get("Tags", []):
                if "Value" not in tag or one.tags.get(tag["Key"]) == tag["Value"]:
                    one.tags.pop(tag["Key"], None)
            self._instances.touched(one)
        return {}

    def describe_tags(self, asked: Asked) -> Json:
        wanted = filters(asked)
        found = [
            {"ResourceId": one["InstanceId"], "ResourceType": "instance", **tag}
            for one in self._visible(None)
            for tag in one["Tags"]
            if _tag_fits(one["InstanceId"], tag, wanted)
        ]
        shown, token = page(found, asked.p.get("NextToken"), _page_size(asked.p.get("MaxResults")))
        return {"Tags": shown, "NextToken": token}

    def describe_instance_status(self, asked: Asked) -> Json:
        """Running instances only, unless `IncludeAllInstances`."""
        wanted, everything = filters(asked), asked.p.get("IncludeAllInstances", False)
        seen = {one["InstanceId"]: one for one in self._visible(asked.p.get("InstanceIds") or None)}
        found = [
            _status(one, seen[one.instance_id])
            for one in self._instances.by_id.values()
            if one.instance_id in seen and (everything or seen[one.instance_id]["State"]["Name"] == "running")
        ]
        kept = [one for one in found if _status_fits(one, wanted)]
        shown, token = page(kept, asked.p.get("NextToken"), _page_size(asked.p.get("MaxResults")))
        return {"InstanceStatuses": shown, "NextToken": token}

    def describe_instance_attribute(self, asked: Asked) -> Json:
        one = self._instances.get(asked.p["InstanceId"])
        known: Json = {
            "disableApiTermination": {"DisableApiTermination": {"Value": one.api_protected}},
            "instanceType": {"InstanceType": {"Value": one.spec.instance_type}},
        }
        return {"InstanceId": one.instance_id, **known.get(asked.p["Attribute"], {})}

    def modify_instance_attribute(self, asked: Asked) -> Json:
        one = self._instances.get(asked.p["InstanceId"])
        if "DisableApiTermination" in asked.p:
            one.api_protected = bool(asked.p["DisableApiTermination"]["Value"])
        return {}


def _page_size(limit: int | None) -> int | None:
    return None if limit is None else max(5, min(_MAX_PAGE, limit))


def _must_exist(missing: list[str]) -> None:
    if missing:
        ids = ", ".join(missing)
        several = "s" if len(missing) > 1 else ""
        verb = "do" if several else "does"
        raise CloudError("InvalidInstanceID.NotFound", f"The instance ID{several} '{ids}' {verb} not exist")


def _check_termination(one: Instance) -> None:
    if one.api_protected:
        message = (
            f"The instance '{one.instance_id}' may not be terminated. Modify its 'disableApiTermination' instance "
            "attribute and try again."
        )
        raise CloudError("OperationNotPermitted", message)


_FIELDS: dict[str, Callable[[Json], str]] = {
    "instance-id": lambda one: str(one["InstanceId"]),
    "instance-state-name": lambda one: str(one["State"]["Name"]),
    "instance-state-code": lambda one: str(one["State"]["Code"]),
    "instance-type": lambda one: str(one["InstanceType"]),
    "instance-lifecycle": lambda one: str(one.get("InstanceLifecycle", "")),
    "availability-zone": lambda one: str(one["Placement"]["AvailabilityZone"]),
    "subnet-id": lambda one: str(one["SubnetId"]),
    "client-token": lambda one: str(one["ClientToken"]),
    "private-ip-address": lambda one: str(one.get("PrivateIpAddress", "")),
    "private-dns-name": lambda one: str(one.get("PrivateDnsName", "")),
}


def _check_filters(wanted: dict[str, list[str]]) -> None:
    for name in wanted:
        if name not in _FIELDS and not name.startswith("tag"):
            raise CloudError("InvalidParameterValue", f"The filter '{name}' is invalid")


def _fits(one: Json, wanted: dict[str, list[str]]) -> bool:
    return all(_fits_one(one, name, patterns) for name, patterns in wanted.items())


def _fits_one(one: Json, name: str, patterns: list[str]) -> bool:
    if name.startswith("tag"):
        return tags_match({tag["Key"]: tag["Value"] for tag in one["Tags"]}, name, patterns)
    return matches([_FIELDS[name](one)], patterns)


def _tag_fits(instance_id: str, tag: Json, wanted: dict[str, list[str]]) -> bool:
    values = {"resource-id": instance_id, "resource-type": "instance", "key": tag["Key"], "value": tag["Value"]}
    return all(matches([values.get(name, "")], patterns) for name, patterns in wanted.items())


def _status(one: Instance, seen: Json) -> Json:
    return {
        "InstanceId": one.instance_id,
        "AvailabilityZone": one.zone,
        "InstanceState": seen["State"],
        "SystemStatus": _check(one.system_ok),
        "InstanceStatus": _check(one.reachable),
        "Events": list(one.scheduled),
    }


def _check(passed: bool) -> Json:
    detail = {"Name": "reachability", "Status": "passed" if passed else "failed"}
    return {"Status": "ok" if passed else "impaired", "Details": [detail]}


def _status_fits(one: Json, wanted: dict[str, list[str]]) -> bool:
    values: dict[str, list[Any]] = {
        "event.code": [event["Code"] for event in one["Events"]],
        "instance-state-name": [one["InstanceState"]["Name"]],
        "system-status.status": [one["SystemStatus"]["Status"]],
        "instance-status.status": [one["InstanceStatus"]["Status"]],
        "availability-zone": [one["AvailabilityZone"]],
    }
    return all(matches(values.get(name, []), patterns) for name, patterns in wanted.items())
