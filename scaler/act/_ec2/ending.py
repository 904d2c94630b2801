"""How named instances leave an Auto Scaling group: ended with decrement, let go of with decrement, or let through its hook.

Only what is named, still of the same replica and still the fleet's own is touched. Each is checked in the order of what cannot be
undone: the group's minimum first, then the worker's pod (gone by UID), the instance last. A noticed instance is detached and
not ended, so that EC2 takes it and its first hour stays free of charge.
`TerminateInstanceInAutoScalingGroup` ends a protected instance too, so protection is never taken off: a call that fails
leaves the instance as safe as before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from scaler.act._ec2.calls import unavailable
from scaler.act._ec2.identity import Identity, token_of
from scaler.act._ec2.members import FLEET_TAG, GROUP_TAG, Member
from scaler.act._ec2.site import Sight, Site
from scaler.act.base import NotYet, PoolUnavailable
from scaler.aws.contract import AwsError, AwsFault
from scaler.model.plan import DetachReplica, TerminateReplica
from scaler.model.pool import InstanceState

log = structlog.get_logger()

_DETACH_AT_ONCE = 20
"""DetachInstances' limit."""
_TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """See the module's docstring."""

    site: Site
    completes_hooks: bool = True
    """Where termination hooks are somebody else's, they are left alone: who waits lets the instance go."""

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """As `PoolActor.terminate`."""
        sight = await self.site.look(after_writes=False)
        named = self._named(sight, command)
        hooked = [member for member in named if member.in_termination_hook]
        inside = [member for member in named if member.attached and not member.in_termination_hook]
        outside = [member for member in named if not member.attached and self._tagged_ours(member)]
        self._check(sight, inside)
        await self.site.protect(sight.view)
        if named and not await self.site.remove_replicas(sight.view, named):
            raise NotYet(f"{command.replica_id}: its pods are on their way out")
        ended = [*await self._complete(hooked), *await self._end_inside(sight, inside)]
        return (*ended, *await self._end_outside(outside))

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """As `PoolActor.detach`."""
        sight = await self.site.look(after_writes=False)
        named = self._named(sight, command)
        hooked = [member for member in named if member.in_termination_hook]
        inside = [member for member in named if member.attached and not member.in_termination_hook]
        pending = [member.instance_id for member in inside if member.lifecycle.startswith("Pending")]
        if pending:
            raise NotYet(f"{pending[0]} is not in service yet: its group does not let go of it")
        left = (*await self._complete(hooked), *await self._let_go(sight, inside))
        if left:
            await self.site.remove_substitute(named)
        return left

    def _named(self, sight: Sight, command: TerminateReplica | DetachReplica) -> list[Member]:
        """Those of the named instances that are there, ours, of that replica, and not going already."""
        found = []
        for instance_id in dict.fromkeys(command.instance_ids):
            member = sight.view.members.get(instance_id)
            if member is None or member.state is InstanceState.SHUTTING_DOWN:
                self._tell_stranger(sight, instance_id)
            elif sight.view.replica_id(member) != command.replica_id:
                log.warning("instance_not_touched", instance=instance_id, why="it is of another replica")
            elif not (member.attached and self.site.place.told_just_now(instance_id)):
                found.append(member)
        return found

    def _tell_stranger(self, sight: Sight, instance_id: str) -> None:
        if instance_id in sight.reading.members and instance_id not in sight.view.members:
            log.warning("instance_not_touched", instance=instance_id, why="it is not this fleet's")

    def _tagged_ours(self, member: Member) -> bool:
        place, fleet = self.site.place, self.site.who.fleet
        return (member.tags.get(FLEET_TAG), member.tags.get(GROUP_TAG)) == (fleet, place.group)

    def _check(self, sight: Sight, inside: Sequence[Member]) -> None:
        """What speaks against ending these in their group."""
        if not inside:
            return
        if sight.refused_reason is not None:
            raise NotYet(sight.refused_reason)
        for member in inside:
            if member.standby:
                raise NotYet(f"{member.instance_id} is on standby by somebody's hand: take it back into service first")
        self._check_minimum(sight, len(inside))

    async def _end_inside(self, sight: Sight, members: Iterable[Member]) -> list[str]:
        return [member.instance_id for member in members if await self._end_in_group(sight, member.instance_id)]

    async def _end_in_group(self, sight: Sight, instance_id: str) -> bool:
        place = self.site.place
        self._check_minimum(sight, 1)
        try:
            with place.leaving([instance_id]):
                await place.aws.call(
                    "autoscaling",
                    "TerminateInstanceInAutoScalingGroup",
                    InstanceId=instance_id,
                    ShouldDecrementDesiredCapacity=True,
                )
        except AwsError as error:
            return _not_there(error)
        return True

    def _check_minimum(self, sight: Sight, count: int) -> None:
        """Right before the call, with no other in between: ends run side by side."""
        objection = self.site.place.may_leave(sight.reading, count)
        if objection is not None:
            raise NotYet(objection)

    async def _end_outside(self, members: Sequence[Member]) -> list[str]:
        ids = [member.instance_id for member in members]
        if ids:
            with unavailable():
                await self.site.place.aws.call("ec2", "TerminateInstances", InstanceIds=ids)
            self.site.place.reader.wrote()
        return ids

    async def _let_go(self, sight: Sight, members: Sequence[Member]) -> list[str]:
        left: list[str] = []
        for start in range(0, len(members), _DETACH_AT_ONCE):
            batch = members[start : start + _DETACH_AT_ONCE]
            left += await self._detach(sight, batch)
        return left

    async def _detach(self, sight: Sight, batch: Sequence[Member]) -> list[str]:
        place, ids = self.site.place, [member.instance_id for member in batch]
        await self._tag(sight, batch)
        self._check_minimum(sight, len(ids))
        try:
            with place.leaving(ids):
                await place.aws.call(
                    "autoscaling",
                    "DetachInstances",
                    AutoScalingGroupName=place.group,
                    InstanceIds=ids,
                    ShouldDecrementDesiredCapacity=True,
                )
        except AwsError as error:
            _not_there(error)
            return []
        return ids

    async def _tag(self, sight: Sight, batch: Iterable[Member]) -> None:
        """Before it leaves: outside its group it is found by our tags alone."""
        for member in batch:
            if self._tagged_ours(member):
                continue
            who = self.site.who
            token = token_of(member, sight.view.launched)
            tags = Identity(fleet=who.fleet, pool=who.pool, token=token).tags(self.site.place.group)
            tags |= sight.view.replica_tag(member)
            with unavailable():
                await self.site.place.aws.call(
                    "ec2",
                    "CreateTags",
                    Resources=[member.instance_id],
                    Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                )

    async def _complete(self, members: Sequence[Member]) -> list[str]:
        """Let instances whose group ends them anyway through its termination hooks."""
        if not members or not self.completes_hooks:
            return []
        place = self.site.place
        with unavailable():
            answer = await place.aws.call("autoscaling", "DescribeLifecycleHooks", AutoScalingGroupName=place.group)
        hooks = [h["LifecycleHookName"] for h in answer["LifecycleHooks"] if h["LifecycleTransition"] == _TERMINATING]
        for member in members:
            for hook in hooks:
                await self._complete_one(member.instance_id, hook)
        place.reader.wrote()
        return [member.instance_id for member in members]

    async def _complete_one(self, instance_id: str, hook: str) -> None:
        place = self.site.place
        try:
            await place.aws.call(
                "autoscaling",
                "CompleteLifecycleAction",
                AutoScalingGroupName=place.group,
                LifecycleHookName=hook,
                InstanceId=instance_id,
                LifecycleActionResult="CONTINUE",
            )
        except AwsError as error:
            _not_there(error)


def _not_there(error: AwsError) -> bool:
    """False: the instance is not there any more, which is what was wanted.

    Raises:
        NotYet: AWS refuses for now, in its own words.
        PoolUnavailable: nobody knows, or nobody may.
    """
    if error.fault is AwsFault.NOT_FOUND:
        return False
    if error.fault in (AwsFault.CONTENTION, AwsFault.CONFIGURATION):
        raise NotYet(str(error)) from error
    raise PoolUnavailable(str(error)) from error
