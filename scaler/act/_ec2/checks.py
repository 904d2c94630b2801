"""Why a group may not be acted on: whatever could change its size, or take its instances, beside us.

Each text names the remedy; those that begin with "another owner:" are about somebody who writes the count (design section 3,
rule 7). What is asked of AWS beside the group itself is kept for a minute: policies and schedules seldom change.
Sources: Auto Scaling user guide ("Use instance scale-in protection", "Suspend and resume processes", "Capacity Rebalancing",
"Replace instances based on maximum instance lifetime", "Launch instances synchronously": launch templates only, no warm pools,
all Spot or all on demand); bug reports CA#6787, buildkite elastic-ci-stack#435, aws/containers-roadmap#2609, KP#4893.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.act._ec2.reading import Reading
from scaler.aws.contract import Aws, AwsError, AwsFault
from scaler.model.capacity import Offering
from scaler.model.clock import Clock
from scaler.model.words import some_of

AUTOSCALER_TAG = "k8s.io/cluster-autoscaler/enabled"
_REFRESHING = frozenset({"Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking"})
_KEPT_S = 60.0
_STALE_S = 600.0
"""So long what was known of the group's surroundings serves while AWS does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is set up around a group."""

    policies: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    refreshes: tuple[str, ...] = ()
    """Ids of instance refreshes that are under way."""
    unreadable: str = ""
    """What we are not allowed to look at; empty: we saw all."""


class Surveyor:
    """Reads `Surroundings`, seldom."""

    def __init__(self, aws: Aws, group: str, clock: Clock) -> None:
        self._aws = aws
        self._group = group
        self._clock = clock
        self._last: tuple[float, Surroundings] | None = None

    async def look(self) -> Surroundings:
        """As of at most a minute ago; older only while AWS does not tell.

        Raises:
            AwsError: it has not told for ten minutes, or ever.
        """
        now_s = self._clock.monotonic_s()
        if self._last is not None and now_s - self._last[0] < _KEPT_S:
            return self._last[1]
        try:
            found = await self._look()
        except AwsError as error:
            if error.fault is AwsFault.AUTHORISATION:
                return Surroundings(unreadable=str(error))
            if self._last is None or now_s - self._last[0] > _STALE_S:
                raise
            return self._last[1]
        self._last = now_s, found
        return found

    async def _look(self) -> Surroundings:
        policies = await self._all("DescribePolicies", "ScalingPolicies")
        schedules = await self._all("DescribeScheduledActions", "ScheduledUpdateGroupActions")
        refreshes = await self._all("DescribeInstanceRefreshes", "InstanceRefreshes")
        return Surroundings(
            policies=tuple(str(item["PolicyName"]) for item in policies if item.get("Enabled", True)),
            schedules=tuple(str(item["ScheduledActionName"]) for item in schedules),
            refreshes=tuple(str(item["InstanceRefreshId"]) for item in refreshes if item.get("Status") in _REFRESHING),
        )

    async def _all(self, operation: str, key: str) -> tuple[Any, ...]:
        return await self._aws.pages("autoscaling", operation, key, AutoScalingGroupName=self._group)


def refused(reading: Reading, surroundings: Surroundings, offerings: Iterable[Offering], *, sync: bool) -> str | None:
    """Why a group of our own may not be acted on; None: it may. `sync`: it is raised by LaunchInstances."""
    group = reading.group
    if group is None:
        return "there is no Auto Scaling group of this name in this region: create it, or correct the pool's `group`"
    found = (
        *_foreign_writers(group, surroundings),
        *_cluster_autoscaler(group),
        *_takes_instances(group, surroundings),
        *shape(reading, tuple(offerings)),
        *(_not_for_launch_instances(group) if sync else _one_zone(group)),
    )
    return next(iter(found), None)


def refused_managed(
    reading: Reading, surroundings: Surroundings, offerings: Iterable[Offering], *, tags_accepted: bool
) -> str | None:
    """The same for the group of an EKS node group, which EKS owns: what EKS sets is EKS's, the count's other writers are not.

    `tags_accepted`: somebody vouches that no Cluster Autoscaler acts on its tags.
    """
    group = reading.group
    if group is None:
        return "the node group's Auto Scaling group is gone: repair or recreate the node group"
    found = (
        *_foreign_writers(group, surroundings),
        *(() if tags_accepted else _cluster_autoscaler(group)),
        *_refresh(surroundings),
        *_suspended(group),
        *shape(reading, tuple(offerings)),
    )
    return next(iter(found), None)


def _foreign_writers(group: Mapping[str, Any], around: Surroundings) -> Iterator[str]:
    name = group["AutoScalingGroupName"]
    if around.unreadable:
        yield f"cannot tell whether somebody else sizes the group: {around.unreadable}; allow these calls"
    if around.policies:
        yield f"another owner: scaling policies ({_some(around.policies)}): delete or disable them"
    if around.schedules:
        yield f"another owner: scheduled actions ({_some(around.schedules)}): delete them"
    if group.get("Operator"):
        yield f"another owner: the group is managed by {_operator(group)}: use a group of your own"
    if str(group.get("Status", "")).startswith("Delete"):
        yield f"group {name} is being deleted: name another"


def _cluster_autoscaler(group: Mapping[str, Any]) -> Iterator[str]:
    if any(tag.get("Key") == AUTOSCALER_TAG for tag in group.get("Tags", ())):
        yield (
            f"another owner: the tag {AUTOSCALER_TAG} offers the group to Cluster Autoscaler:"
            " take it away (`aws autoscaling delete-tags`)"
        )


def _takes_instances(group: Mapping[str, Any], around: Surroundings) -> Iterator[str]:
    if not group.get("NewInstancesProtectedFromScaleIn"):
        yield "new instances are not protected from scale-in: set --new-instances-protected-from-scale-in on the group"
    if len(zones(group)) > 1 and "AZRebalance" not in _suspended_processes(group):
        yield "AZRebalance ends instances that work to even zones out: suspend that process, or use one zone a group"
    if group.get("CapacityRebalance"):
        yield "Capacity Rebalancing replaces instances by itself: turn it off (--no-capacity-rebalance)"
    if group.get("MaxInstanceLifetime"):
        yield "a maximum instance lifetime ends instances that work: set it to 0"
    if group.get("WarmPoolConfiguration"):
        yield "a warm pool moves instances by itself: delete it"
    yield from _refresh(around)
    yield from _suspended(group)


def _refresh(around: Surroundings) -> Iterator[str]:
    if around.refreshes:
        yield f"an instance refresh is under way ({_some(around.refreshes)}): held until it has ended"


def _suspended(group: Mapping[str, Any]) -> Iterator[str]:
    for process in sorted(_suspended_processes(group) & {"Launch", "Terminate"}):
        yield f"its process {process} is suspended: resume it"


def shape(reading: Reading, offerings: tuple[Offering, ...]) -> Iterator[str]:
    """One instance type, one way of buying, and zones that the group has: AWS picks, so there must be nothing to pick."""
    group = reading.group or {}
    mixed = group.get("MixedInstancesPolicy") or {}
    overrides = mixed.get("LaunchTemplate", {}).get("Overrides", ())
    types = {str(item.get("InstanceType", "by attributes")) for item in overrides}
    if len(types) > 1 or types == {"by attributes"}:
        yield f"the group may launch several instance types ({_some(sorted(types))}): use one group a type"
    if any(item.get("WeightedCapacity") for item in overrides):
        yield "the group counts by weights: take them away, one instance is one"
    distribution = mixed.get("InstancesDistribution", {})
    share = int(distribution.get("OnDemandPercentageAboveBaseCapacity", 100))
    if share not in (0, 100) or (share == 0 and int(distribution.get("OnDemandBaseCapacity") or 0)):
        yield "the group mixes Spot and on-demand: use one group for each"
    yield from _offered(group, offerings, types)


def _offered(group: Mapping[str, Any], offerings: tuple[Offering, ...], types: set[str]) -> Iterator[str]:
    offered = {offering.instance_type for offering in offerings}
    if len(offered) > 1:
        yield f"the pool's offerings name several instance types ({_some(sorted(offered))}): use one pool and group a type"
    if len({offering.capacity_type for offering in offerings}) > 1:
        yield "the pool's offerings mix ways of buying: use one pool and group for each"
    if types and offered and not types & offered:
        yield f"the group launches {_some(sorted(types))}, the pool's offerings say {_some(sorted(offered))}: make them agree"
    strange = sorted({offering.zone for offering in offerings} - zones(group))
    if strange:
        yield f"the group is not in {_some(strange)}: give it a subnet there, or take the offering out"


def _not_for_launch_instances(group: Mapping[str, Any]) -> Iterator[str]:
    if not group.get("LaunchTemplate") and not group.get("MixedInstancesPolicy"):
        yield "LaunchInstances needs a launch template and the group has none: migrate from its launch configuration"


def _one_zone(group: Mapping[str, Any]) -> Iterator[str]:
    if len(zones(group)) > 1:
        yield "`up: set_desired_capacity` cannot choose a zone: use one zone a group, or launch_instances"


def zones(group: Mapping[str, Any]) -> set[str]:
    """Zones that the group may launch in."""
    return {str(zone) for zone in group.get("AvailabilityZones", ())}


def _suspended_processes(group: Mapping[str, Any]) -> set[str]:
    return {str(item.get("ProcessName")) for item in group.get("SuspendedProcesses", ())}


def _operator(group: Mapping[str, Any]) -> str:
    return str(group["Operator"].get("Principal", "an AWS service")) if group.get("Operator") else ""


def _some(names: Iterable[str]) -> str:
    return some_of(names, 3)
