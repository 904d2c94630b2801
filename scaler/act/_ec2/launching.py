"""How a replica more comes about on an Auto Scaling group.

* `LaunchInstances`: relative, so that nothing of anybody else's can be ended by it; in the offering's zone; idempotent by a
  token made of the launch's own, whichever controller repeats it; without a retry strategy of its own, so that a refusal is
  told at once and nothing comes late. A launch that comes in part, or as something else than was asked for, is ended and refused.
* By the desired capacity, where that call is not to be had: absolute, so it is written under a lock, from a description read
  under it, and never lower than what stands there or was written. What is told to the group and not there yet is used up
  first: a group without capacity is not raised with every try. Failed activities are the refusals.
* Either way, what the group is already launching by itself (in the place of an instance it lost) answers a launch before
  another is made (CA#4071).

A launch that may have been carried out is never refused: `PoolUnavailable` has the same token asked for again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from scaler.act._ec2.asked import Asked
from scaler.act._ec2.calls import refusal, refused_launch, unavailable
from scaler.act._ec2.identity import Identity
from scaler.act._ec2.members import FLEET_TAG, Member
from scaler.act._ec2.reading import Reading
from scaler.act._ec2.site import Site
from scaler.act.base import LaunchOutcome, LaunchResult, PoolUnavailable
from scaler.act.worker_sets.base import SetRefused
from scaler.aws.contract import AwsError, AwsFault
from scaler.aws.errors import classify
from scaler.model.capacity import CapacityType, Offering
from scaler.model.plan import LaunchReplica

log = structlog.get_logger()

_NOT_OFFERED = frozenset({"UnsupportedOperation", "InvalidAction", "UnknownOperationException"})
"""Codes of a Region or partition that does not know the call: nothing was launched."""
_OWN_LAUNCH_S = 120.0
"""So long a launch waits for what the group launches by itself; then it is called for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """See the module's docstring. `falls_back`: to the desired capacity, where LaunchInstances is not to be had."""

    site: Site
    falls_back: bool

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """As `PoolActor.launch`."""
        offering = self.site.offering(command.offering_id)
        if offering is None:
            return refusal(AwsFault.CONFIGURATION, f"{command.offering_id} is not an offering of this pool")
        sight = await self.site.look(after_writes=False)
        here = sight.view.by_token(command.token)
        if here:
            await self._settle(self._identity(command), command.offering_id, here)
            return LaunchOutcome(result=LaunchResult.ALREADY, instance_id=here[0].instance_id)
        if sight.refused_reason is not None:
            return refusal(AwsFault.CONFIGURATION, sight.refused_reason)
        await self.site.protect(sight.view)
        if self.site.place.sync and not await self._comes_by_itself(command, sight.reading):
            return await self._call(command, offering, sight.reading)
        return await self._await_group(command, offering)

    def _identity(self, command: LaunchReplica) -> Identity:
        return Identity(fleet=self.site.who.fleet, pool=self.site.who.pool, token=command.token)

    @property
    def _nodes(self) -> int:
        return self.site.who.nodes_per_replica

    def _ask(self, command: LaunchReplica, *, own: bool) -> Asked:
        asked = self.site.place.asked(self._identity(command), command.offering_id, self._nodes, own=own)
        asked.own = own
        return asked

    def _objection(self, command: LaunchReplica, needs: int, reading: Reading) -> str | None:
        """Why there is no room; a launch that was called for before has its place."""
        place, who = self.site.place, self._identity(command)
        earlier = place.launches.earlier(who.client_token(place.group))
        if earlier is not None and not earlier.own:
            return None
        return place.sharing.admit(who.fleet, who.token, needs=needs, room=place.room(reading))

    # LaunchInstances

    async def _call(self, command: LaunchReplica, offering: Offering, reading: Reading) -> LaunchOutcome:
        place = self.site.place
        objection = self._objection(command, self._nodes, reading)
        if objection is not None:
            return LaunchOutcome(result=LaunchResult.NO_ROOM, message=objection)
        asked = self._ask(command, own=False)
        try:
            answer = await place.aws.call(
                "autoscaling",
                "LaunchInstances",
                AutoScalingGroupName=place.group,
                RequestedCapacity=self._nodes,
                ClientToken=asked.client_token,
                AvailabilityZones=[offering.zone],
                RetryStrategy="none",
            )
        except AwsError as error:
            return await self._not_called(command, offering, asked, error)
        finally:
            place.reader.wrote()
        return await self._came(asked, offering, answer)

    async def _not_called(
        self, command: LaunchReplica, offering: Offering, asked: Asked, error: AwsError
    ) -> LaunchOutcome:
        place = self.site.place
        if error.code in _NOT_OFFERED and self.falls_back:
            log.warning("launch_instances_unsupported", group=place.group, error=str(error))
            place.sync = False
            place.launches.refused(asked)
            return await self._await_group(command, offering)
        outcome = refused_launch(error)
        place.launches.refused(asked)
        return outcome

    async def _came(self, asked: Asked, offering: Offering, answer: Mapping[str, Any]) -> LaunchOutcome:
        place = self.site.place
        right, wrong = _sorted_out(answer, offering)
        known = place.launches.known
        doubled = [i for i in (*right, *wrong) if known.get(i, asked.identity) != asked.identity]
        if doubled:
            place.launches.refused(asked)
            return refusal(AwsFault.UNKNOWN, f"the answer names {doubled[0]}, which another launch brought")
        if wrong or len(right) != asked.nodes:
            return await self._undo(asked, (*right, *wrong), answer, offering)
        before = asked.answered_s is not None
        place.launches.answered(asked, right, place.reader.mark)
        await self._settle_new(asked, right)
        result = LaunchResult.ALREADY if before else LaunchResult.LAUNCHED
        return LaunchOutcome(result=result, instance_id=right[0])

    async def _undo(
        self, asked: Asked, instance_ids: Iterable[str], answer: Mapping[str, Any], offering: Offering
    ) -> LaunchOutcome:
        """End what came of a launch that did not come whole."""
        place = self.site.place
        for instance_id in instance_ids:
            place.launches.doomed[instance_id] = place.clock.monotonic_s()
            await self._end(instance_id)
        place.launches.refused(asked)
        for error in answer.get("Errors", ()):
            code, told = str(error.get("ErrorCode", "")), str(error.get("ErrorMessage", ""))
            return refusal(classify(code, message=told), f"{code}: {told}")
        came = [(i.get("InstanceType"), i.get("AvailabilityZone"), i.get("MarketType")) for i in answer["Instances"]]
        return refusal(AwsFault.CONFIGURATION, f"{offering.offering_id} was asked for and {came} came: not kept")

    async def _end(self, instance_id: str) -> None:
        try:
            await self.site.place.aws.call(
                "autoscaling",
                "TerminateInstanceInAutoScalingGroup",
                InstanceId=instance_id,
                ShouldDecrementDesiredCapacity=True,
            )
        except AwsError as error:
            if error.fault is not AwsFault.NOT_FOUND:
                raise PoolUnavailable(f"{instance_id} of a launch that came in part is still there: {error}") from error

    # Without it

    async def _comes_by_itself(self, command: LaunchReplica, reading: Reading) -> bool:
        """Whether the group is launching what would answer this, without our doing and beyond what others wait for."""
        place = self.site.place
        missing = reading.desired - reading.live
        earlier = place.launches.earlier(self._identity(command).client_token(place.group))
        if earlier is not None and (not earlier.own or place.clock.monotonic_s() - earlier.begun_s > _OWN_LAUNCH_S):
            return False
        if earlier is None and missing < self._nodes:
            return False
        with unavailable():
            await place.news.read_activities()
        under_way = min(missing, place.news.launching_by_itself(reading.members))
        others = sum(asked.nodes for asked in place.launches.waiting() if asked is not earlier)
        return under_way - place.launches.on_its_way(reading.mark) - others >= self._nodes

    async def _await_group(self, command: LaunchReplica, offering: Offering) -> LaunchOutcome:
        place = self.site.place
        async with place.writing:
            with unavailable():
                reading = await place.reader.read(0.0)
                await place.news.read_activities()
            asked = self._ask(command, own=True)
            place.launches.settle(reading)
            if asked.answered_s is None:
                refused = await self._push(command, offering, asked, reading)
                if refused is not None:
                    place.launches.refused(asked)
                    return refused
                raise PoolUnavailable(f"{place.group} has been told to launch and has not yet")
        brought = [i for i, who in place.launches.known.items() if who == asked.identity]
        await self._settle_new(asked, brought)
        return LaunchOutcome(result=LaunchResult.LAUNCHED, instance_id=brought[0])

    async def _push(
        self, command: LaunchReplica, offering: Offering, asked: Asked, reading: Reading
    ) -> LaunchOutcome | None:
        """Have the group launch as many as are waited for; a refusal where it has tried and failed, or may not."""
        place = self.site.place
        failed = place.news.failure(offering.zone, asked.asked_at_s)
        if failed is not None:
            return refusal(*failed)
        desired = place.desired(reading)
        needed = sum(waiting.nodes for waiting in place.launches.waiting()) - max(0, desired - reading.live)
        if place.sync or needed <= 0:
            return None
        objection = self._objection(command, needed, reading)
        if objection is not None:
            return LaunchOutcome(result=LaunchResult.NO_ROOM, message=objection)
        try:
            await self._write_desired(max(desired, reading.live) + needed)
        except AwsError as error:
            return refused_launch(error)
        return None

    async def _write_desired(self, desired: int) -> None:
        place = self.site.place
        await place.aws.call(
            "autoscaling",
            "SetDesiredCapacity",
            AutoScalingGroupName=place.group,
            DesiredCapacity=desired,
            HonorCooldown=False,
        )
        place.wrote_desired(desired)

    # What every instance gets

    async def _settle(self, identity: Identity, offering_id: str, members: Iterable[Member]) -> None:
        """A launch that is there already: tagged and with a worker, whatever a controller before us got done."""
        untagged = [member.instance_id for member in members if FLEET_TAG not in member.tags]
        if untagged:
            await self._tag(identity, untagged)
            await self._add_replica(identity, offering_id)

    async def _settle_new(self, asked: Asked, instance_ids: list[str]) -> None:
        await self._add_replica(asked.identity, asked.offering_id)
        await self._tag(asked.identity, instance_ids)

    async def _add_replica(self, identity: Identity, offering_id: str) -> None:
        try:
            await self.site.add_replica(identity, offering_id)
        except SetRefused as error:
            raise PoolUnavailable(f"launched, and its worker set may not be raised: {error}") from error

    async def _tag(self, identity: Identity, instance_ids: list[str]) -> None:
        """Last of all: an instance with tags is a launch that was finished."""
        place = self.site.place
        tags = [{"Key": key, "Value": value} for key, value in identity.tags(place.group).items()]
        with unavailable():
            await place.aws.call("ec2", "CreateTags", Resources=instance_ids, Tags=tags)
        place.reader.wrote()


def _sorted_out(answer: Mapping[str, Any], offering: Offering) -> tuple[list[str], list[str]]:
    """Ids of an answer, each once: those of the offering, and others."""
    right: dict[str, None] = {}
    wrong: dict[str, None] = {}
    for batch in answer.get("Instances", ()):
        (right if _is_of(batch, offering) else wrong).update(dict.fromkeys(batch.get("InstanceIds", ())))
    return list(right), list(wrong)


def _is_of(batch: Mapping[str, Any], offering: Offering) -> bool:
    """What the answer leaves out is not held against it."""
    spot = offering.capacity_type is CapacityType.SPOT
    market = str(batch.get("MarketType", "")).lower()
    return (
        batch.get("InstanceType", offering.instance_type) == offering.instance_type
        and batch.get("AvailabilityZone", offering.zone) == offering.zone
        and (not market or (market == "spot") is spot)
    )
