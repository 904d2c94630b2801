"""Pool on an EKS managed node group: EKS owns an Auto Scaling group, drains and replaces what it interrupts; we count.

How it is raised. EKS itself offers `UpdateNodegroupConfig`, whose `desiredSize` is absolute, which takes one change at a time
and makes the group UPDATING, in which state we hold: useless for launches that come one by one, and a late one would
lower the group.
So instances are launched on the node group's own Auto Scaling group, by `LaunchInstances` as on a group of ours (relative, with
the intent's token, refusals at once). EKS allows that group to be sized from outside (Cluster Autoscaler does so), and the
desired size that EKS shows follows it. Where the Region does not know that call, the desired capacity of the Auto Scaling
group is written instead, under the rules of `scaler.act._ec2.launching`.

Races, one by one.
* EKS replaces an instance on a rebalance recommendation or an interruption while we launch: both are additions; ours answers its
  token, EKS's is adopted and counts as the replacement, which the fleet's duties say we do not launch. Nothing is made twice.
* EKS ends a node while we end another: both name their instance; decrements add up.
* EKS updates the group (version, configuration): its status is not ACTIVE, we hold, and what is under way here is harmless.
* Somebody else calls `UpdateNodegroupConfig` with an old desired size while we grow: Auto Scaling would pick victims among
  working nodes, as EKS does not protect new instances. Ours are protected with the next launch or end once they are in
  service, so that its scale-in finds few; what it finds before, no call of ours can prevent.

How it is lowered: a named instance with decrement on its Auto Scaling group, after drain and pod. EKS's own hook then drains what
else is on the node and lets the instance go; it is never completed by us. Noticed instances are left to EKS (`Duties.detaches`
is False), so `detach` does nothing.

Refused: several zones (EKS's AZRebalance cannot be suspended and ends instances that work) unless that is accepted; several
instance types or another way of buying than the offerings say; what else writes the count. EKS puts Cluster Autoscaler's
discovery tags on every managed group by itself, and from here nobody can tell whether one acts on them: they have to be taken
away, or accepted by who knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from scaler.act._ec2.calls import unavailable
from scaler.act._ec2.checks import refused_managed, zones
from scaler.act._ec2.place import open_place
from scaler.act._ec2.pool import GroupPool
from scaler.act._ec2.reading import Reading
from scaler.act._ec2.settings import GroupSettings, site_of
from scaler.act.base import LaunchOutcome, LaunchResult, NotYet, OfferingFacts, PoolObservation
from scaler.aws.contract import AwsError, AwsFault
from scaler.model.capacity import CapacityType
from scaler.model.clock import Clock
from scaler.model.plan import DetachReplica, LaunchReplica, TerminateReplica

log = structlog.get_logger()

_KEPT_S = 10.0
_BUYS = {
    "SPOT": CapacityType.SPOT,
    "ON_DEMAND": CapacityType.ON_DEMAND,
    "CAPACITY_BLOCK": CapacityType.CAPACITY_BLOCK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EksNodeGroupSettings(GroupSettings):
    """What a pool on an EKS managed node group needs to know."""

    cluster: str
    node_group: str
    accept_az_rebalance: bool = False
    """Nodes that work may be ended by AWS to even zones out."""
    accept_autoscaler_tags: bool = False
    """No Cluster Autoscaler acts on the tags that EKS offers the group by."""


class EksNodeGroupPool:
    """A `PoolActor` for provider `eks_node_group`; see the module's docstring."""

    def __init__(self, settings: EksNodeGroupSettings, *, pool: str, clock: Clock) -> None:
        self._settings = settings
        self._pool = pool
        self._clock = clock
        self._described: tuple[float, Mapping[str, Any]] | None = None
        self._group_pool: GroupPool | None = None
        self._told: tuple[str, ...] = ()

    async def observe(self) -> PoolObservation:
        """As `GroupPool.observe`; without a node group or its Auto Scaling group, nothing, and the reason."""
        asked_at_s = self._clock.now_s()
        missing = await self._missing()
        if missing is not None:
            return PoolObservation(listed_at_s=asked_at_s, instances=(), refused_reason=missing)
        return await self._inner().observe()

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """As `GroupPool.launch`."""
        missing = await self._missing()
        if missing is not None:
            return LaunchOutcome(result=LaunchResult.CONFIGURATION, message=missing)
        return await self._inner().launch(command)

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """As `GroupPool.terminate`."""
        missing = await self._missing()
        if missing is not None:
            raise NotYet(missing)
        return await self._inner().terminate(command)

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """Nothing: EKS lets noticed nodes go by itself."""
        return ()

    def facts(self) -> Mapping[str, OfferingFacts]:
        """As `GroupPool.facts`."""
        return self._group_pool.facts() if self._group_pool else {}

    async def close(self) -> None:
        """As `GroupPool.close`."""
        if self._group_pool is not None:
            await self._group_pool.close()
        elif self._settings.worker_set is not None:
            await self._settings.worker_set.close()

    def _inner(self) -> GroupPool:
        if self._group_pool is None:
            raise RuntimeError("the node group has not been described")
        return self._group_pool

    async def _missing(self) -> str | None:
        """Why there is no Auto Scaling group to look at; None: there is, and its pool is made."""
        with unavailable():
            described = await self._describe()
        if described is None:
            return (
                f"cluster {self._settings.cluster} has no node group {self._settings.node_group}: create or correct it"
            )
        if self._group_pool is None:
            names = [group["name"] for group in described.get("resources", {}).get("autoScalingGroups", ())]
            if not names:
                return f"the node group has no Auto Scaling group yet ({described.get('status')})"
            self._group_pool = self._open(names[0])
        return None

    async def _describe(self) -> Mapping[str, Any] | None:
        """The node group, as of at most ten seconds ago; None where there is none.

        Raises:
            AwsError: it could not be asked for.
        """
        now_s = self._clock.monotonic_s()
        if self._described is not None and now_s - self._described[0] < _KEPT_S:
            return self._described[1]
        settings = self._settings
        try:
            answer = await settings.aws.call(
                "eks", "DescribeNodegroup", clusterName=settings.cluster, nodegroupName=settings.node_group
            )
        except AwsError as error:
            if error.fault is AwsFault.NOT_FOUND:
                return None
            raise
        self._described = now_s, answer["nodegroup"]
        return self._described[1]

    def _open(self, group: str) -> GroupPool:
        settings = self._settings
        place = settings.places.at(
            ("auto_scaling_group", group),
            lambda: open_place(settings.aws, group, clock=self._clock, sync=True),
        )

        async def judge(reading: Reading) -> str | None:
            described = await self._describe()
            own = self._refused(described, reading) if described else "the node group is gone"
            around = await place.around(reading)
            return own or refused_managed(
                reading, around, settings.offerings, tags_accepted=settings.accept_autoscaler_tags
            )

        return GroupPool(site_of(settings, place, self._pool, judge), falls_back=True, completes_hooks=False)

    def _refused(self, described: Mapping[str, Any], reading: Reading) -> str | None:
        """What speaks against acting on this node group, by EKS's own account."""
        issues = tuple(f"{i.get('code')}: {i.get('message')}" for i in described.get("health", {}).get("issues", ()))
        if issues != self._told:
            log.warning("node_group_health", node_group=self._settings.node_group, issues=issues)
            self._told = issues
        status = str(described.get("status", "unknown"))
        if status != "ACTIVE":
            told = f" ({'; '.join(issues)})" if issues else ""
            return f"the node group is {status}{told}: held until it is ACTIVE"
        return self._shape(described, reading)

    def _shape(self, described: Mapping[str, Any], reading: Reading) -> str | None:
        bought = _BUYS.get(str(described.get("capacityType", "ON_DEMAND")))
        if any(offering.capacity_type is not bought for offering in self._settings.offerings):
            return f"the node group buys {described.get('capacityType')}, the pool's offerings say otherwise: make them agree"
        several = sorted(zones(reading.group or {}))
        if len(several) > 1 and not self._settings.accept_az_rebalance:
            return (
                f"the node group is in {len(several)} zones and AWS ends nodes to even them out, which cannot be turned off:"
                " use one node group a zone, or set acceptAZRebalance"
            )
        return None


def make(settings: object, *, pool: str, clock: Clock) -> EksNodeGroupPool:
    """The actor of a pool on an EKS node group; `TypeError` where the settings are another provider's."""
    if not isinstance(settings, EksNodeGroupSettings):
        raise TypeError(f"pool {pool}: an EKS node group takes EksNodeGroupSettings, not {type(settings).__name__}")
    return EksNodeGroupPool(settings, pool=pool, clock=clock)
