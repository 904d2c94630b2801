"""What pools on EC2 Auto Scaling groups have in common in their settings, and the site that is made of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from scaler.act._ec2.identity import Owners
from scaler.act._ec2.place import GroupPlace
from scaler.act._ec2.reading import Reading
from scaler.act._ec2.replicas import Fleet
from scaler.act._ec2.site import Site
from scaler.act.sharing import Places
from scaler.act.worker_sets.base import WorkerSet
from scaler.aws.contract import Aws
from scaler.kube.facts import NodeFacts, NodeIndex
from scaler.model.capacity import Offering


def nobody_guarded(_: NodeFacts) -> bool:
    """No node is a trainer's."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What a pool on an Auto Scaling group needs to know, whoever owns the group."""

    aws: Aws
    fleet: str
    """`<namespace>.<name>`, as `scaler.kube.facts.FLEET_LABEL` has it."""
    offerings: tuple[Offering, ...]
    """One instance type and one way of buying, in zones that the group has."""
    nodes_per_replica: int = 1
    priority: int = 0
    """Of the fleet, among those that share the group."""
    nodes: NodeIndex | None = None
    """Needed with a worker set that counts."""
    worker_set: WorkerSet | None = None
    """The object that counts workers; None for a DaemonSet, where only nodes are counted."""
    guarded: Callable[[NodeFacts], bool] = nobody_guarded
    """True for a trainer's node, which is never listed and never touched."""
    places: Places = field(default_factory=Places)
    """Shared by all pools of a process, so that fleets on one group share one state of it."""

    def __post_init__(self) -> None:
        """Refuse what cannot work; `ValueError`."""
        if not self.fleet:
            raise ValueError("a pool on an Auto Scaling group needs the fleet's name: instances are tagged with it")
        if not self.offerings:
            raise ValueError("a pool on an Auto Scaling group needs at least one offering")
        if self.nodes_per_replica < 1:
            raise ValueError(f"{self.nodes_per_replica} nodes a replica: at least one is needed")
        if self.worker_set is not None and self.nodes is None:
            raise ValueError("a worker set that counts needs the node index: its pods are found by node")


def site_of(
    settings: GroupSettings, place: GroupPlace, pool: str, judge: Callable[[Reading], Awaitable[str | None]]
) -> Site:
    """The fleet's site at a group, where it counts as present from now on."""
    place.sharing.join(settings.fleet, settings.priority)
    who = Fleet(
        fleet=settings.fleet,
        pool=pool,
        nodes_per_replica=settings.nodes_per_replica,
        capacity_type=settings.offerings[0].capacity_type,
        owners=Owners(nodes=settings.nodes, guarded=settings.guarded),
    )
    return Site(place=place, who=who, offerings=settings.offerings, worker_set=settings.worker_set, judge=judge)
