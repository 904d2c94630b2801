"""What is known of one trainer's objects at a moment: plain facts that adapters hand to `scaler.decide.trainers`.

Invariants: a source that could not be read is in `unread` with the reason, and what it would have told is empty: empty without
that entry means that there is none. Identity is UID or instance id.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Source(StrEnum):
    """Where facts come from; each can fail by itself."""

    PODS = "pods"
    NODES = "nodes"
    NEIGHBOURS = "pods on its nodes"
    ROLLOUTS = "rollout pods"
    DISRUPTION_BUDGETS = "poddisruptionbudgets"
    PRIORITY_CLASSES = "priorityclasses"
    NODE_POOLS = "nodepools and nodeclaims"
    INSTANCES = "ec2:DescribeInstances"
    MEMBERS = "autoscaling:DescribeAutoScalingInstances"
    GROUPS = "autoscaling:DescribeAutoScalingGroups"
    INSTANCE_STATUS = "ec2:DescribeInstanceStatus"
    TERMINATION_PROTECTION = "ec2:DescribeInstanceAttribute"
    RESERVATIONS = "ec2:DescribeCapacityReservations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A term of a label selector or of node affinity: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil it. Gt and Lt, which label selectors do not have, never hold."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A label selector; without terms it selects everything in its namespace."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil all terms."""
        return self.match_labels.items() <= labels.items() and all(term.holds(labels) for term in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaint:
    """A taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates all, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: NodeTaint) -> bool:
        """Whether it covers a taint."""
        if self.effect not in ("", taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """A condition of a node."""

    type: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerPod:
    """A pod of the trainer that has not ended."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    node_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    priority: int
    priority_class: str
    qos_class: str
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[tuple[Requirement, ...], ...] = ()
    """Required node affinity: one of the terms must hold, each with all of its requirements."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Devices that its containers ask for, by resource name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerNode:
    """A node where a pod of the trainer runs, or that is set aside for it."""

    name: str
    uid: str
    resource_version: str
    instance_id: str
    instance_type: str
    capacity_type: str
    """By its labels: `spot`, `on-demand`, `capacity-block`, `reserved`, or empty."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    conditions: tuple[NodeCondition, ...]
    allocatable: Mapping[str, str]
    ready: bool = True
    unschedulable: bool = False
    deleting: bool = False
    fleet: str = ""
    """The rollout fleet that claims it, by our label."""
    node_pool: str = ""
    """Its Karpenter NodePool; empty where Karpenter does not own it."""
    node_group: str = ""
    """Its EKS managed node group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A pod on a trainer's node that is not the trainer's."""

    namespace: str
    name: str
    belongs: bool
    """A daemon or a mirror pod, which every node has."""
    takes_devices: bool
    """It asks for accelerators or EFA devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget of the trainer's namespace."""

    name: str
    selector: Selector | None
    """None selects nothing."""
    max_unavailable: str
    """As written, number or percentage; empty: not set."""
    min_available: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A PriorityClass."""

    name: str
    value: int
    never_preempts: bool
    default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionAllowance:
    """An entry of a NodePool's disruption budgets."""

    nodes: str
    reasons: frozenset[str] = frozenset()
    """Empty: all."""
    scheduled: bool = False
    """Holds only at times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A Karpenter NodePool. Durations are as written; empty: not set."""

    name: str
    allowances: tuple[DisruptionAllowance, ...]
    expire_after: str
    consolidate_after: str
    termination_grace: str
    capacity_types: frozenset[str] | None
    """That its requirements let in; None: they do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """What Karpenter holds a node to; made from its NodePool as that was at launch."""

    name: str
    node_name: str
    expire_after: str
    termination_grace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerInstance:
    """An EC2 instance of the trainer."""

    instance_id: str
    lifecycle: str
    """As EC2 says it: `on-demand`, `spot`, `scheduled`, `capacity-block`, `interruptible-capacity-reservation`."""
    reservation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """An instance in its Auto Scaling group."""

    instance_id: str
    group: str
    lifecycle_state: str
    protected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What an Auto Scaling group may do to its instances by itself."""

    name: str
    buys_spot: bool
    max_lifetime_s: int = 0
    """0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent:
    """An EC2 event that is still ahead. Times are seconds since the epoch."""

    instance_id: str
    code: str
    not_before_s: float | None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A capacity reservation."""

    reservation_id: str
    capacity_block: bool
    interruptible: bool
    ends_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Devices of an instance type."""

    efa: int
    accelerators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFacts:
    """See the module's docstring."""

    trainer: str
    read_at_s: float | None
    """When its pods were last read (controller's clock); None: never."""
    pods: tuple[TrainerPod, ...] = ()
    nodes: tuple[TrainerNode, ...] = ()
    neighbours: Mapping[str, tuple[Neighbour, ...]] = field(default_factory=dict)
    """By node."""
    budgets: tuple[Budget, ...] = ()
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    rollout_classes: frozenset[str] = frozenset()
    """Priority classes of the rollout pods that exist; the empty name: none set."""
    node_pools: Mapping[str, NodePool] = field(default_factory=dict)
    claims: tuple[NodeClaim, ...] = ()
    instances: Mapping[str, TrainerInstance] = field(default_factory=dict)
    members: Mapping[str, GroupMember] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    events: tuple[ScheduledEvent, ...] = ()
    termination_protected: Mapping[str, bool] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """What EC2 itself tells of its nodes' instance types."""
    unread: Mapping[Source, str] = field(default_factory=dict)

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Where its instances live, as `place_key` names pools: no rollout pool may be one of them."""
        found = {("auto_scaling_group", member.group) for member in self.members.values()}
        for node in self.nodes:
            found |= {("karpenter", node.node_pool)} if node.node_pool else set()
            found |= {("eks_node_group", node.node_group)} if node.node_group else set()
        return frozenset(found)


def place_key(place: str) -> tuple[str, str]:
    """Kind and name of a pool's place. A controller has one cluster, so an EKS group is told by its own name."""
    kind, _, rest = place.partition("/")
    return kind, rest.rpartition("/")[2] if kind == "eks_node_group" else rest
