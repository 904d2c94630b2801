"""What a fleet has left on instances: its tags, and the scale-in protection that it set.

Found by the fleet's tag, and on the instances of its nodes by the tag that says that the protection is ours (an instance that
was adopted has no other). Protection that somebody else set stays. Tags go last: they say what is still to be done.
Invariant: no instance is ended, and no size of a group is written.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from scaler.act._ec2.members import FLEET_TAG, GROUP_TAG, POOL_TAG, PROTECTED_TAG, REPLICA_TAG, TOKEN_TAG
from scaler.act._ec2.site import PROTECT_AT_ONCE
from scaler.act.release_step import Step
from scaler.aws.contract import Aws

OURS = (FLEET_TAG, POOL_TAG, REPLICA_TAG, TOKEN_TAG, GROUP_TAG, PROTECTED_TAG)
"""Never `headrace.dev/cluster`, which the operator set."""
_THERE = {"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down", "stopping", "stopped"]}
_FILTER_VALUES = 100
_IN_SERVICE = "InService"


async def look(aws: Aws, fleet: str, instance_ids: Iterable[str]) -> list[Step]:
    """What is to be done, in this order. `instance_ids` are those of the fleet's nodes.

    Raises:
        AwsError: a list is not to be had.
    """
    tagged = {each["InstanceId"]: _tags(each) for each in await _instances(aws, fleet, instance_ids)}
    ours = {each: tags for each, tags in tagged.items() if tags.get(FLEET_TAG, fleet) == fleet}
    members = await _members(aws, [each for each, tags in ours.items() if PROTECTED_TAG in tags])
    protected = [each for each in members if each.get("ProtectedFromScaleIn")]
    # Auto Scaling changes nothing on what is on its way in or out: its tags stay, so that it is found again.
    moving = {each["InstanceId"] for each in protected if each["LifecycleState"] != _IN_SERVICE}
    steps = [*_bared(aws, [each for each in protected if each["InstanceId"] not in moving])]
    return [*steps, *_untagged(aws, {each: tags for each, tags in ours.items() if each not in moving})]


async def _instances(aws: Aws, fleet: str, instance_ids: Iterable[str]) -> list[Mapping[str, Any]]:
    filters: list[list[Mapping[str, Any]]] = [[{"Name": f"tag:{FLEET_TAG}", "Values": [fleet]}, _THERE]]
    filters += [
        [{"Name": "instance-id", "Values": chunk}, {"Name": "tag-key", "Values": [PROTECTED_TAG]}, _THERE]
        for chunk in _chunks(sorted(instance_ids), _FILTER_VALUES)
    ]
    found: list[Mapping[str, Any]] = []
    for each in filters:
        for reservation in await aws.pages("ec2", "DescribeInstances", "Reservations", Filters=each):
            found.extend(reservation["Instances"])
    return found


async def _members(aws: Aws, instance_ids: Sequence[str]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for chunk in _chunks(sorted(instance_ids), PROTECT_AT_ONCE):
        found += await aws.pages(
            "autoscaling", "DescribeAutoScalingInstances", "AutoScalingInstances", InstanceIds=list(chunk)
        )
    return found


def _bared(aws: Aws, members: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for member in members:
        groups[member["AutoScalingGroupName"]].append(member["InstanceId"])
    for group, ids in sorted(groups.items()):
        for chunk in _chunks(sorted(ids), PROTECT_AT_ONCE):
            yield Step(
                subject=f"instances of {group}: {' '.join(chunk)}",
                takes=("our scale-in protection",),
                act=partial(
                    aws.call,
                    "autoscaling",
                    "SetInstanceProtection",
                    AutoScalingGroupName=group,
                    InstanceIds=list(chunk),
                    ProtectedFromScaleIn=False,
                ),
            )


def _untagged(aws: Aws, instances: Mapping[str, Mapping[str, str]]) -> Iterator[Step]:
    with_ours = {each: [key for key in OURS if key in tags] for each, tags in sorted(instances.items())}
    for chunk in _chunks([each for each, keys in with_ours.items() if keys], _FILTER_VALUES):
        keys = sorted({key for each in chunk for key in with_ours[each]})
        yield Step(
            subject=f"instances {' '.join(chunk)}",
            takes=tuple(f"tag {key}" for key in keys),
            act=partial(aws.call, "ec2", "DeleteTags", Resources=list(chunk), Tags=[{"Key": key} for key in keys]),
        )


def _tags(instance: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def _chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
