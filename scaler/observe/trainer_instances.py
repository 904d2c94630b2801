"""What EC2 and Auto Scaling tell of a trainer's instances. Each function is one kind of call, whole or `AwsError`.

An instance that is gone is simply not in the answer: filters are used where ids would make one unknown id fail them all.
Sources of the shapes: EC2 and Auto Scaling API references.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scaler.aws.contract import Aws, AwsError, AwsFault
from scaler.model.trainer_facts import Group, GroupMember, Reservation, ScheduledEvent, Shape, TrainerInstance
from scaler.observe.kept import ask_each

_FILTER_VALUES = 100
_GROUP_IDS = 50
"""Limit of DescribeAutoScalingInstances."""
_AT_ONCE = 4
"""Calls that take one instance each; EC2's own limits are for everybody in the account."""
_OVER = ("[Completed]", "[Canceled]")
"""How EC2 marks events that are over and still listed, for up to a week."""


def _chunks(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


async def _pages(
    aws: Aws, service: str, operation: str, key: str, chunks: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for parameters in chunks:
        found.extend(await aws.pages(service, operation, key, **parameters))
    return found


async def describe_instances(aws: Aws, ids: frozenset[str]) -> Mapping[str, TrainerInstance]:
    """By id; those that EC2 knows."""
    filters = ({"Filters": [{"Name": "instance-id", "Values": chunk}]} for chunk in _chunks(ids, _FILTER_VALUES))
    reservations = await _pages(aws, "ec2", "DescribeInstances", "Reservations", filters)
    raw = [instance for reservation in reservations for instance in reservation.get("Instances", ())]
    return {
        each["InstanceId"]: TrainerInstance(
            instance_id=each["InstanceId"],
            lifecycle=each.get("InstanceLifecycle") or "on-demand",
            reservation_id=each.get("CapacityReservationId") or "",
        )
        for each in raw
    }


async def describe_members(aws: Aws, ids: frozenset[str]) -> Mapping[str, GroupMember]:
    """Those that are in an Auto Scaling group, by id."""
    chunks = ({"InstanceIds": chunk} for chunk in _chunks(ids, _GROUP_IDS))
    raw = await _pages(aws, "autoscaling", "DescribeAutoScalingInstances", "AutoScalingInstances", chunks)
    return {
        each["InstanceId"]: GroupMember(
            instance_id=each["InstanceId"],
            group=each["AutoScalingGroupName"],
            lifecycle_state=each.get("LifecycleState", ""),
            protected=bool(each.get("ProtectedFromScaleIn")),
        )
        for each in raw
    }


async def describe_groups(aws: Aws, names: frozenset[str]) -> Mapping[str, Group]:
    """By name."""
    chunks = ({"AutoScalingGroupNames": chunk} for chunk in _chunks(names, _GROUP_IDS))
    raw = await _pages(aws, "autoscaling", "DescribeAutoScalingGroups", "AutoScalingGroups", chunks)
    return {each["AutoScalingGroupName"]: _group(each) for each in raw}


def _group(raw: Mapping[str, Any]) -> Group:
    distribution = (raw.get("MixedInstancesPolicy") or {}).get("InstancesDistribution") or {}
    return Group(
        name=raw["AutoScalingGroupName"],
        buys_spot=distribution.get("OnDemandPercentageAboveBaseCapacity", 100) < 100,
        max_lifetime_s=raw.get("MaxInstanceLifetime") or 0,
    )


async def describe_events(aws: Aws, ids: frozenset[str]) -> tuple[ScheduledEvent, ...]:
    """Scheduled events that are not over. `ids` are instances that EC2 knows: an unknown one would fail the call."""
    chunks = ({"InstanceIds": chunk} for chunk in _chunks(ids, _FILTER_VALUES))
    raw = await _pages(aws, "ec2", "DescribeInstanceStatus", "InstanceStatuses", chunks)
    return tuple(
        ScheduledEvent(
            instance_id=status["InstanceId"],
            code=event.get("Code", "an event"),
            not_before_s=_seconds(event.get("NotBefore")),
            description=event.get("Description") or "",
        )
        for status in raw
        for event in status.get("Events") or ()
        if not (event.get("Description") or "").startswith(_OVER)
    )


async def describe_termination(aws: Aws, ids: frozenset[str]) -> Mapping[str, bool]:
    """Whether the API is kept from terminating each; an instance that is gone is left out."""
    answers = await ask_each(sorted(ids), lambda each: _termination_protected(aws, each), at_once=_AT_ONCE)
    return {instance_id: answer for instance_id, answer in answers.items() if answer is not None}


async def _termination_protected(aws: Aws, instance_id: str) -> bool | None:
    try:
        answer = await aws.call(
            "ec2", "DescribeInstanceAttribute", InstanceId=instance_id, Attribute="disableApiTermination"
        )
    except AwsError as error:
        if error.fault is AwsFault.NOT_FOUND:
            return None
        raise
    return bool(answer.get("DisableApiTermination", {}).get("Value"))


async def describe_reservations(aws: Aws, ids: frozenset[str]) -> Mapping[str, Reservation]:
    """By id. One that belongs to another account and is not shared is not in the answer."""
    found = {}
    for reservation_id in sorted(ids):
        for each in await _reservation(aws, reservation_id):
            found[reservation_id] = Reservation(
                reservation_id=reservation_id,
                capacity_block=each.get("ReservationType") == "capacity-block",
                interruptible=bool(each.get("Interruptible")),
                ends_at_s=_seconds(each.get("EndDate")),
            )
    return found


async def _reservation(aws: Aws, reservation_id: str) -> tuple[Mapping[str, Any], ...]:
    """One call each: an unknown id would fail the others with it, and there is no filter by id."""
    try:
        return await aws.pages(
            "ec2", "DescribeCapacityReservations", "CapacityReservations", CapacityReservationIds=[reservation_id]
        )
    except AwsError as error:
        if error.code.endswith(".NotFound"):
            return ()
        raise


async def describe_shapes(aws: Aws, types: frozenset[str]) -> Mapping[str, Shape]:
    """Devices of instance types."""
    chunks: Sequence[Mapping[str, Any]] = [{"InstanceTypes": chunk} for chunk in _chunks(types, _FILTER_VALUES)]
    raw = await _pages(aws, "ec2", "DescribeInstanceTypes", "InstanceTypes", chunks)
    return {each["InstanceType"]: _shape(each) for each in raw}


def _shape(raw: Mapping[str, Any]) -> Shape:
    efa = (raw.get("NetworkInfo") or {}).get("EfaInfo") or {}
    gpus = (raw.get("GpuInfo") or {}).get("Gpus") or ()
    neurons = (raw.get("NeuronInfo") or {}).get("NeuronDevices") or ()
    return Shape(
        efa=efa.get("MaximumEfaInterfaces") or 0,
        accelerators=sum(each.get("Count") or 0 for each in (*gpus, *neurons)),
    )


def _seconds(at: Any) -> float | None:
    return None if at is None else float(at.timestamp())
