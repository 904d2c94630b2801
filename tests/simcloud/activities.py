"""Scaling activities in AWS's words, and the Auto Scaling events that tell of their ends."""

import json
from collections.abc import Callable

from tests.simcloud.asked import Json
from tests.simcloud.catalogue import subnet_of
from tests.simcloud.groups import Activity, Group
from tests.simcloud.kernel import Kernel, iso

Emit = Callable[[str, Group, Activity, str], None]
"""(detail-type, group, activity, instance id)."""


class Activities:
    """Begins them, ends them, and says so."""

    def __init__(self, kernel: Kernel, emit: Emit) -> None:
        self._kernel = kernel
        self._emit = emit

    def begin(self, group: Group, description: str, cause: str, zone: str) -> Activity:
        """A new one, in progress."""
        made = Activity(
            activity_id=self._kernel.uuid(),
            description=description,
            cause=cause,
            started_at_s=self._kernel.now_s(),
            details=json.dumps({"Subnet ID": subnet_of(zone), "Availability Zone": zone}),
        )
        group.activities.append(made)
        return made

    def launched(self, group: Group, one: Activity, instance_id: str) -> None:
        """Its instance is in service."""
        one.close(self._kernel.now_s())
        self._emit("EC2 Instance Launch Successful", group, one, instance_id)

    def terminated(self, group: Group, one: Activity, instance_id: str) -> None:
        """Its instance is gone."""
        one.close(self._kernel.now_s())
        self._emit("EC2 Instance Terminate Successful", group, one, instance_id)

    def not_launched(self, group: Group, cause: str, zone: str, message: str) -> Activity:
        """A launch that was refused."""
        one = self.begin(group, f"Launching a new EC2 instance.  Status Reason: {message}", cause, zone)
        one.close(self._kernel.now_s(), "Failed", message[:255])
        self._emit("EC2 Instance Launch Unsuccessful", group, one, "")
        return one

    def cancelled(self, one: Activity, message: str) -> None:
        """It will not be done."""
        one.close(self._kernel.now_s(), "Cancelled", message)

    def launch_cause(self, group: Group, before: int) -> str:
        """Why a group launches."""
        at = iso(self._kernel.now_s())
        grown = (
            f"At {at} an instance was started in response to a difference between desired and actual capacity, "
            f"increasing the capacity from {before} to {before + 1}."
        )
        return f"{group.why}  {grown}".strip()

    def shrink_cause(self, group: Group, before: int, instance_id: str) -> str:
        """Why a group ends an instance of its own choice."""
        at = iso(self._kernel.now_s())
        taken = (
            "an instance was taken out of service in response to a difference between desired and actual capacity, "
            f"shrinking the capacity from {before} to {before - 1}."
        )
        return f"{group.why}  At {at} {taken}  At {at} instance {instance_id} was selected for termination.".strip()

    def request_cause(self, group: Group, instance_id: str, what: str, *, decrement: bool) -> str:
        """`what` happened to an instance because someone asked for it."""
        at = iso(self._kernel.now_s())
        shrunk = f", shrinking the capacity from {group.desired} to {group.desired - 1}" if decrement else ""
        return f"At {at} instance {instance_id} was {what} in response to a user request{shrunk}."


def result_detail(group: Group, one: Activity, instance_id: str, request_id: str) -> Json:
    """`detail` of the events of an activity's end."""
    failed = one.status != "Successful"
    return {
        "StatusCode": "Failed" if failed else "InProgress",
        "StatusMessage": one.message,
        "Description": one.description,
        "AutoScalingGroupName": group.name,
        "ActivityId": one.activity_id,
        "Details": json.loads(one.details),
        "RequestId": request_id,
        "EndTime": iso(one.ended_at_s or one.started_at_s),
        "StartTime": iso(one.started_at_s),
        "Cause": one.cause,
        "EC2InstanceId": instance_id,
    }
