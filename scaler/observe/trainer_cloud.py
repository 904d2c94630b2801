"""A trainer's instances as EC2 and Auto Scaling tell of them, once a minute; each kind of call can fail by itself.

Where no node of the trainer is an instance there is nothing to ask, and so nothing unread. Instance types that EC2 does not
describe to us are no loss: `scaler.decide.devices` has the usual ones.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scaler.aws.contract import Aws
from scaler.model.clock import Clock
from scaler.model.trainer_facts import (
    Group,
    GroupMember,
    Reservation,
    ScheduledEvent,
    Shape,
    Source,
    TrainerInstance,
    TrainerNode,
)
from scaler.observe.kept import Kept
from scaler.observe.trainer_instances import (
    describe_events,
    describe_groups,
    describe_instances,
    describe_members,
    describe_reservations,
    describe_shapes,
    describe_termination,
)

_SHAPES_EVERY_S = 86400.0
_CLOUD = (
    Source.INSTANCES,
    Source.MEMBERS,
    Source.GROUPS,
    Source.INSTANCE_STATUS,
    Source.TERMINATION_PROTECTION,
    Source.RESERVATIONS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFacts:
    """As in `TrainerFacts`."""

    instances: Mapping[str, TrainerInstance] = field(default_factory=dict)
    members: Mapping[str, GroupMember] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    events: tuple[ScheduledEvent, ...] = ()
    termination_protected: Mapping[str, bool] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    unread: Mapping[Source, str] = field(default_factory=dict)


class TrainerCloud:
    """See the module's docstring."""

    def __init__(self, aws: Aws | None, clock: Clock, *, every_s: float) -> None:
        self._aws = aws
        self._instances: Kept[Mapping[str, TrainerInstance]] = Kept({}, clock, every_s=every_s)
        self._members: Kept[Mapping[str, GroupMember]] = Kept({}, clock, every_s=every_s)
        self._groups: Kept[Mapping[str, Group]] = Kept({}, clock, every_s=every_s)
        self._events: Kept[tuple[ScheduledEvent, ...]] = Kept((), clock, every_s=every_s)
        self._termination: Kept[Mapping[str, bool]] = Kept({}, clock, every_s=every_s)
        self._reservations: Kept[Mapping[str, Reservation]] = Kept({}, clock, every_s=every_s)
        self._shapes: Kept[Mapping[str, Shape]] = Kept({}, clock, every_s=_SHAPES_EVERY_S)

    async def look(self, nodes: Sequence[TrainerNode]) -> CloudFacts:
        """What is known now. Never raises for a call that fails."""
        ids = frozenset(node.instance_id for node in nodes if node.instance_id)
        if not ids:
            return CloudFacts()
        if self._aws is None:
            return CloudFacts(unread=dict.fromkeys(_CLOUD, "no access to AWS is configured"))
        await self._ask(self._aws, ids, frozenset(node.instance_type for node in nodes if node.instance_type))
        return CloudFacts(
            instances=self._instances.value,
            members=self._members.value,
            groups=self._groups.value,
            events=self._events.value,
            termination_protected=self._termination.value,
            reservations=self._reservations.value,
            shapes=self._shapes.value,
            unread=self._unread(),
        )

    def hurry(self) -> None:
        """Ask anew next time for what a repair changes."""
        self._members.hurry()

    async def _ask(self, aws: Aws, ids: frozenset[str], types: frozenset[str]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._members.ask(lambda: describe_members(aws, ids), ids))
            group.create_task(self._termination.ask(lambda: describe_termination(aws, ids), ids))
            group.create_task(self._shapes.ask(lambda: describe_shapes(aws, types), types))
            group.create_task(self._instances.ask(lambda: describe_instances(aws, ids), ids))
        known = ids & self._instances.value.keys() or ids
        names = frozenset(member.group for member in self._members.value.values())
        reserved = frozenset(each.reservation_id for each in self._instances.value.values() if each.reservation_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events.ask(lambda: describe_events(aws, known), known))
            group.create_task(self._groups.ask(lambda: describe_groups(aws, names), names))
            group.create_task(self._reservations.ask(lambda: describe_reservations(aws, reserved), reserved))

    def _unread(self) -> Mapping[Source, str]:
        answers = (
            (Source.INSTANCES, self._instances.unread),
            (Source.MEMBERS, self._members.unread),
            (Source.GROUPS, self._groups.unread),
            (Source.INSTANCE_STATUS, self._events.unread),
            (Source.TERMINATION_PROTECTION, self._termination.unread),
            (Source.RESERVATIONS, self._reservations.unread),
        )
        return {source: why for source, why in answers if why is not None}
