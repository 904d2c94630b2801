"""What an Auto Scaling group does by itself: keep its size, replace what is lost, balance zones, rebalance capacity.

Policy: every change of a group plans one look at it (`touch`), which does what is to be done then. Launches that are refused
become failed activities and are tried again later, without end.
Sources: Auto Scaling user guide: "Health checks", "Suspend and resume processes", "Capacity Rebalancing", "Availability Zone
rebalancing"; EKS user guide, "Managed node groups" (capacity rebalancing always on for Spot; drains at once on notice).
Assumed, as the guides do not say: scale-in protection holds against zone rebalancing, not against Capacity Rebalancing.
"""

from tests.simcloud import instances as ec2
from tests.simcloud.activities import Activities
from tests.simcloud.groups import COUNTED, LAUNCHING, TERMINATING, Group, Groups, Member, Replacement
from tests.simcloud.hooks import HookWaits
from tests.simcloud.instances import Instance, Instances
from tests.simcloud.journal import AWS, EndedBy
from tests.simcloud.kernel import Kernel, Timer, iso
from tests.simcloud.settings import Settings, draw
from tests.simcloud.starting import Starter
from tests.simcloud.victims import choose

_ALL_PROTECTED = "Could not scale to desired capacity because all remaining instances are protected from scale-in."


class Keeper:
    """See the module's docstring."""

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        groups: Groups,
        instances: Instances,
        starter: Starter,
        hooks: HookWaits,
        activities: Activities,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._groups = groups
        self._instances = instances
        self._starter = starter
        self._hooks = hooks
        self._activities = activities
        instances.listeners.append(self._on_instance)

    def touch(self, group: Group) -> None:
        """Something of it changed: look at it soon."""
        self._plan(group, draw(self._kernel, self._settings.reconcile_delay_s))

    def _plan(self, group: Group, delay_s: float) -> None:
        self._next(group, self._kernel.after(delay_s, lambda: self._look(group)))

    def _next(self, group: Group, timer: Timer) -> None:
        """One thing is planned for a group at a time: what comes first, which plans the rest anew."""
        known = group.planned
        if known is not None and known.due_s <= timer.due_s:
            timer.cancel()
            return
        if known is not None:
            known.cancel()
        group.planned = timer

    def _look(self, group: Group) -> None:
        group.planned = None
        if group.deleting:
            return
        group.replacements = [one for one in group.replacements if one.old.counted and one.new.counted]
        lacking = group.desired + len(group.replacements) - len(group.counted())
        if lacking > 0:
            self._grow(group, lacking)
        elif lacking < 0:
            self._shrink(group, -lacking)
        else:
            self._balance(group)

    def _grow(self, group: Group, number: int) -> None:
        if not group.runs("Launch"):
            return
        refusing: set[str] = set()
        for _ in range(number):
            if not self._grow_by_one(group, refusing):
                self._plan(group, draw(self._kernel, self._settings.retry_delay_s))
                return
        self.touch(group)

    def _grow_by_one(self, group: Group, refusing: set[str]) -> bool:
        zones = sorted(set(group.zones) - refusing, key=lambda zone: (group.in_zone(zone), zone))
        for zone in zones:
            if self.start(group, zone) is not None:
                return True
            refusing.add(zone)
        return False

    def start(self, group: Group, zone: str) -> Member | None:
        """Launch one in the zone, with its activity; None: refused, and its activity says why."""
        cause = self._activities.launch_cause(group, len(group.counted()))
        found = self._starter.launch(group, zone)
        if isinstance(found, Member):
            instance_id = found.instance.instance_id
            found.activity = self._activities.begin(group, f"Launching a new EC2 instance: {instance_id}", cause, zone)
            return found
        spec, refusal = found
        self._activities.not_launched(group, cause, zone, refusal.activity_message(spec.market))
        return None

    def _shrink(self, group: Group, number: int) -> None:
        if not group.runs("Terminate"):
            return
        victims = choose(group, number, self._kernel.rng)
        for victim in victims:
            cause = self._activities.shrink_cause(group, len(group.counted()), victim.instance.instance_id)
            self.end(group, victim, EndedBy.SCALE_IN, group.changed_by, cause)
        if len(victims) < number:
            self._say_protected(group)

    def _say_protected(self, group: Group) -> None:
        newest = group.activities[-1] if group.activities else None
        if newest is None or newest.message != _ALL_PROTECTED:
            one = self._activities.begin(group, "Terminating EC2 instances", group.why, group.zones[0])
            self._activities.cancelled(one, _ALL_PROTECTED)

    def end(self, group: Group, member: Member, by: EndedBy, caller: str, cause: str) -> None:
        """End a member: hooks first, then its instance."""
        self._hooks.drop(member)
        member.ending, member.caller, member.lifecycle = by, caller, "Terminating"
        if member.activity is not None:
            self._activities.cancelled(
                member.activity, "Instance became unhealthy while waiting for instance to be in service."
            )
        description = f"Terminating EC2 instance: {member.instance.instance_id}"
        member.activity = self._activities.begin(group, description, cause, member.instance.zone)
        self._hooks.start(group, member, TERMINATING, lambda _: self._let_go(member))
        self.touch(group)

    def _let_go(self, member: Member) -> None:
        if member.instance.state == ec2.TERMINATED:
            self._on_instance(member.instance)
        else:
            self._instances.end(member.instance, member.ending or EndedBy.FAILED, member.caller or AWS)

    def _on_instance(self, instance: Instance) -> None:
        found = self._groups.of(instance)
        if found is None:
            return
        group, member = found
        if instance.state == ec2.RUNNING and member.lifecycle == "Pending" and member.ending is None:
            delay_s = draw(self._kernel, self._settings.in_service_delay_s)
            self._kernel.after(delay_s, lambda: self._started(group, member))
        elif instance.state == ec2.SHUTTING_DOWN and member.ending is None:
            delay_s = draw(self._kernel, self._settings.health_check_delay_s)
            self._kernel.after(delay_s, lambda: self.check_health(group, member))
        elif instance.state == ec2.TERMINATED and member.ending is not None:
            self._gone(group, member)

    def _started(self, group: Group, member: Member) -> None:
        if member.lifecycle == "Pending" and member.instance.alive:
            self._hooks.start(group, member, LAUNCHING, lambda proceed: self._admitted(group, member, proceed))

    def _admitted(self, group: Group, member: Member, proceed: bool) -> None:
        if not proceed:
            at = iso(self._kernel.now_s())
            cause = f"At {at} instance {member.instance.instance_id} was abandoned by a lifecycle hook."
            self.end(group, member, EndedBy.ABANDONED, AWS, cause)
            return
        self._starter.serve(group, member)
        for one in group.replacements:
            if one.new is member:
                self._retire(group, one)
        self.touch(group)

    def check_health(self, group: Group, member: Member) -> None:
        """A member whose instance was ended by others: marked, and replaced."""
        known = group.members.get(member.instance.instance_id) is member
        if not known or member.instance.alive or member.ending is not None or not group.runs("HealthCheck"):
            return
        member.healthy = False
        if not (group.runs("ReplaceUnhealthy") and group.runs("Terminate")):
            return
        self._hooks.drop(member)
        member.ending, member.lifecycle = EndedBy.UNHEALTHY, "Terminating"
        at = iso(self._kernel.now_s())
        cause = (
            f"At {at} an instance was taken out of service in response to an EC2 health check indicating it has been "
            "terminated or stopped."
        )
        group.why = cause
        description = f"Terminating EC2 instance: {member.instance.instance_id}"
        member.activity = self._activities.begin(group, description, cause, member.instance.zone)
        if member.instance.state == ec2.TERMINATED:
            self._gone(group, member)
        self.touch(group)

    def _gone(self, group: Group, member: Member) -> None:
        if member.waits:
            return
        instance_id = member.instance.instance_id
        if group.members.pop(instance_id, None) is not None and member.activity is not None:
            self._activities.terminated(group, member.activity, instance_id)
        self.touch(group)

    def leave(self, group: Group, member: Member) -> None:
        """Out of the group; its instance runs on, without the group's tag."""
        self._hooks.drop(member)
        group.members.pop(member.instance.instance_id, None)
        member.lifecycle = "Detached"
        member.instance.group, member.instance.protected = "", False
        member.instance.tags.pop("aws:autoscaling:groupName", None)
        self._instances.touched(member.instance)

    def _balance(self, group: Group) -> None:
        if self._uneven(group) is not None:
            delay_s = draw(self._kernel, self._settings.rebalance_check_delay_s)
            self._next(group, self._kernel.after(delay_s, lambda: self._rebalance_zones(group)))

    def _uneven(self, group: Group) -> tuple[str, Member] | None:
        wanted = ("AZRebalance", "Launch", "Terminate")
        if len(group.zones) < 2 or not all(group.runs(name) for name in wanted) or group.replacements:
            return None
        poorest = min(group.zones, key=group.in_zone)
        richest = max(group.zones, key=group.in_zone)
        if group.in_zone(richest) - group.in_zone(poorest) < 2:
            return None
        open_to_it = [m for m in group.counted() if m.instance.zone == richest and not m.protected]
        return (poorest, open_to_it[0]) if open_to_it else None

    def _rebalance_zones(self, group: Group) -> None:
        group.planned = None
        uneven = self._uneven(group)
        if uneven is None or group.deleting:
            self.touch(group)
            return
        zone, victim = uneven
        at = iso(self._kernel.now_s())
        group.why = f"At {at} an instance was launched to aid in balancing the group's zones."
        if self._replace(group, victim, EndedBy.AZ_REBALANCE, [zone]) is None:
            self._plan(group, draw(self._kernel, self._settings.retry_delay_s))

    def recommend(self, instance: Instance, *, noticed: bool) -> None:
        """EC2 recommended to rebalance it, or gave notice: what Capacity Rebalancing and EKS do about it."""
        found = self._groups.of(instance)
        if found is None or not found[1].counted:
            return
        group, member = found
        if group.managed is not None and noticed:
            instance.eks_draining = True
            self._stand_in(group, member, EndedBy.EKS)
        elif group.capacity_rebalance:
            self._stand_in(group, member, EndedBy.EKS if group.managed else EndedBy.CAPACITY_REBALANCE)

    def _stand_in(self, group: Group, old: Member, by: EndedBy) -> None:
        """Launch a replacement for one at risk; again later while refused and still needed."""
        if not old.counted or group.deleting or any(one.old is old for one in group.replacements):
            return
        at = iso(self._kernel.now_s())
        group.why = (
            f"At {at} an instance was launched to replace {old.instance.instance_id}, which is at elevated risk of "
            "interruption."
        )
        zones = sorted(group.zones, key=lambda zone: (group.in_zone(zone), zone))
        if not group.runs("Launch") or self._replace(group, old, by, zones) is None:
            delay_s = draw(self._kernel, self._settings.retry_delay_s)
            self._kernel.after(delay_s, lambda: self._stand_in(group, old, by))

    def _replace(self, group: Group, old: Member, by: EndedBy, zones: list[str]) -> Member | None:
        for zone in zones:
            new = self.start(group, zone)
            if new is not None:
                group.replacements.append(Replacement(old=old, new=new, by=by))
                return new
        return None

    def _retire(self, group: Group, one: Replacement) -> None:
        if one.old.lifecycle not in COUNTED:
            return
        if one.by is EndedBy.AZ_REBALANCE and one.old.protected:
            return
        at = iso(self._kernel.now_s())
        cause = (
            f"At {at} instance {one.old.instance.instance_id} was taken out of service in response to its replacement."
        )
        self.end(group, one.old, one.by, AWS, cause)
