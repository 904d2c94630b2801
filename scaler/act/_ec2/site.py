"""One fleet at one group: what it looks at before it acts, and the worker set that goes with its instances."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import structlog

from scaler.act._ec2.calls import unavailable
from scaler.act._ec2.identity import Identity
from scaler.act._ec2.members import PROTECTED_TAG, Member
from scaler.act._ec2.place import GroupPlace
from scaler.act._ec2.reading import Reading
from scaler.act._ec2.replicas import Fleet, View
from scaler.act.worker_sets.base import WorkerSet
from scaler.aws.contract import AwsError
from scaler.model.capacity import Offering

log = structlog.get_logger()

PROTECT_AT_ONCE = 50
"""SetInstanceProtection's limit."""
_FRESH_S = 2.0
"""Age of a reading that is still acted upon: commands that come together share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a fleet saw at one moment."""

    reading: Reading
    view: View
    refused_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """See the module's docstring. `judge` says why the group may not be acted on."""

    place: GroupPlace
    who: Fleet
    offerings: tuple[Offering, ...]
    worker_set: WorkerSet | None
    judge: Callable[[Reading], Awaitable[str | None]]
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self, *, after_writes: bool = True) -> Sight:
        """The fleet's members, as of at most two seconds ago, and what speaks against acting.

        Raises:
            PoolUnavailable: AWS or the API server does not tell.
        """
        with unavailable():
            reading = await self.place.reader.read(_FRESH_S, after_writes=after_writes)
            refused = await self.judge(reading)
        launches = self.place.launches
        held = launches.settle(reading)
        pods = await self.worker_set.observe() if self.worker_set else None
        view = View(
            who=self.who,
            members={i: member for i, member in reading.members.items() if self._mine(member, held)},
            launched=launches.known,
            unseen=frozenset(launches.known.keys() - launches.seen),
            doomed=frozenset(launches.doomed),
            pods=pods,
        )
        return Sight(
            reading=reading, view=view, refused_reason=refused or (pods.refused_reason if pods is not None else None)
        )

    def offering(self, offering_id: str) -> Offering | None:
        """The pool's offering of that id."""
        return next((offering for offering in self.offerings if offering.offering_id == offering_id), None)

    async def protect(self, view: View) -> None:
        """Protect from scale-in what its group does not: instances older than its setting, or all of a group of EKS.

        Best effort, and tried again whenever something is launched or ended: Auto Scaling takes only instances in service.
        """
        bare = [m.instance_id for m in view.members.values() if m.lifecycle == "InService" and not m.protected]
        if not bare:
            return
        try:
            await self._set_protection(bare[:PROTECT_AT_ONCE])
        except AwsError as error:
            log.warning("scale_in_protection_missing", group=self.place.group, error=str(error))
        self.place.reader.wrote()

    async def _set_protection(self, instance_ids: list[str]) -> None:
        await self.place.aws.call(
            "autoscaling",
            "SetInstanceProtection",
            AutoScalingGroupName=self.place.group,
            InstanceIds=instance_ids,
            ProtectedFromScaleIn=True,
        )
        marked = [{"Key": PROTECTED_TAG, "Value": "true"}]
        await self.place.aws.call("ec2", "CreateTags", Resources=instance_ids, Tags=marked)

    async def add_replica(self, identity: Identity, offering_id: str) -> None:
        """Have one worker for a launch: a new one, unless one waits for a node already that nobody launched one for.

        A pod that was evicted from a noticed node has been made anew by its set, and takes the replacement's node. Pods are all
        alike: another launch's may have taken this one's node by now, and that other one is short of one then.
        """
        if self.worker_set is None:
            return
        async with self.counting:
            view = (await self.look()).view
            unserved = view.unserved() | ({identity.replica_id} - view.served())
            if len(view.waiting()) < len(unserved):
                await self.worker_set.add(identity.token, offering_id)

    async def remove_replicas(self, view: View, members: Iterable[Member]) -> bool:
        """Take the worker replicas on these instances out; True once all their pods are gone."""
        if self.worker_set is None:
            return True
        return all([await self.worker_set.remove(key) for key in view.workers_on(members)])

    async def remove_substitute(self, members: Iterable[Member]) -> None:
        """Take the workers of instances that have left out of the count, or else what their set has made anew for them."""
        if self.worker_set is None:
            return
        async with self.counting:
            view = (await self.look()).view
            if view.workers_on(members):
                await self.remove_replicas(view, members)
            elif len(view.waiting()) > len(view.unserved()):
                await self.worker_set.remove(view.waiting()[0])

    def _mine(self, member: Member, held: frozenset[str]) -> bool:
        owner = self.who.owners.owner(member, self.place.launches.known)
        if owner:
            return owner == self.who.fleet
        free = member.attached and member.instance_id not in held
        return free and self.place.sharing.adopts(self.who.fleet)
