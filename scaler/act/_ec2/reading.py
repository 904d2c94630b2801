"""One reading of a group: Auto Scaling's description and EC2's instances, of about one moment, whole or not at all.

Policy: a page of EC2 holds 1,000 instances, and a reading is shared by all who ask within a moment. What is written makes the
next reader read anew, except for those who keep account of writes themselves: a burst of launches and ends would otherwise
read the whole group for each of them. Instances that have left the group are found by our tag; once a minute all of them, and
in between those that were seen before and are in the group no more, which is all but what came and left unseen: so that nothing
is described twice for every reading.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.act._ec2.calls import whole
from scaler.act._ec2.members import AWS_GROUP_TAG, GROUP_TAG, Member, join
from scaler.aws.contract import Aws
from scaler.model.clock import Clock

_EXISTS = {"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down", "stopping", "stopped"]}
_PAGE = 1000
_ALL_EVERY_S = 60.0
_NAMED_AT_MOST = 150
"""EC2 takes 200 values a call, those of all filters together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`group` is None where there is none of that name."""

    listed_at_s: float
    begun_s: float
    """On the monotonic clock."""
    mark: int
    """Writes of ours that were done before it was begun."""
    group: Mapping[str, Any] | None
    members: Mapping[str, Member]

    @property
    def desired(self) -> int:
        """What the group is told to hold."""
        return int(self.group["DesiredCapacity"]) if self.group else 0

    @property
    def live(self) -> int:
        """Instances that the desired capacity counts."""
        return sum(member.counted for member in self.members.values())

    def size(self, which: str) -> int:
        """`MinSize` or `MaxSize`."""
        return int(self.group[which]) if self.group else 0


class GroupReader:
    """See the module's docstring."""

    def __init__(self, aws: Aws, group: str, clock: Clock) -> None:
        self._aws = aws
        self._group = group
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last: Reading | None = None
        self._all_at_s = float("-inf")
        self._seen: set[str] = set()
        """Instances of all readings since those that carry our tag were last listed, and of the reading before that list: it may
        have left one out."""
        self.mark = 0
        """Writes of ours so far."""

    async def read(self, max_age_s: float, *, after_writes: bool = True) -> Reading:
        """A reading that was begun at most `max_age_s` ago, and after everything that was written, unless told otherwise.

        Raises:
            AwsError: a part of it could not be had.
        """
        not_before_s = self._clock.monotonic_s() - max_age_s
        async with self._lock:
            last = self._last
            void = after_writes and last is not None and last.mark < self.mark
            if last is None or last.begun_s < not_before_s or void:
                self._last = last = await self._read()
            return last

    def wrote(self) -> None:
        """What was read before now may be wrong."""
        self.mark += 1

    async def _read(self) -> Reading:
        listed_at_s, begun_s, mark = self._clock.now_s(), self._clock.monotonic_s(), self.mark
        group, instances = await self._described(begun_s)
        members = join(group, instances, listed_at_s + (self._aws.ahead_s() or 0.0))
        self._seen |= members.keys()
        return Reading(listed_at_s=listed_at_s, begun_s=begun_s, mark=mark, group=group, members=members)

    async def _described(self, begun_s: float) -> tuple[Mapping[str, Any] | None, list[Mapping[str, Any]]]:
        """The group, None where there is none, and the instances in it and of it."""
        everything = begun_s - self._all_at_s >= _ALL_EVERY_S
        groups, inside, *ours = await whole(
            self._aws.call("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[self._group]),
            self._instances(AWS_GROUP_TAG),
            *([self._instances(GROUP_TAG)] if everything else ()),
        )
        if everything:
            self._all_at_s, self._seen = begun_s, set(self._last.members) if self._last else set()
        else:
            ours = [await self._left(self._seen - {instance["InstanceId"] for instance in inside})]
        return next(iter(groups.get("AutoScalingGroups", ())), None), [*inside, *ours[0]]

    async def _left(self, instance_ids: Collection[str]) -> list[Mapping[str, Any]]:
        """What these are now, as far as they carry our tag; more than fit into a filter are all listed."""
        if len(instance_ids) > _NAMED_AT_MOST:
            return await self._instances(GROUP_TAG)
        named = {"Name": "instance-id", "Values": sorted(instance_ids)}
        return await self._instances(GROUP_TAG, named) if instance_ids else []

    async def _instances(self, tag: str, *more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        filters = [{"Name": f"tag:{tag}", "Values": [self._group]}, _EXISTS, *more]
        found = await self._aws.pages("ec2", "DescribeInstances", "Reservations", Filters=filters, MaxResults=_PAGE)
        return [instance for reservation in found for instance in reservation["Instances"]]
