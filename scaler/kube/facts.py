"""The few fields of nodes and pods that we need, cut out of raw JSON, and the indexes that watch them.

Invariants: an instance is found by the exact id at the end of its node's `providerID`, never by a node's name (names and
addresses come again); an empty id finds nothing. Identity is UID.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

FLEET_LABEL = "headrace.dev/fleet"
"""`<namespace>.<name>` of the fleet that a node belongs to: set by compare-and-set, so that a node has one owner."""
POOL_LABEL = "headrace.dev/pool"
REPLICA_LABEL = "headrace.dev/replica"
"""Nodes and pods of one worker replica share it."""
TOKEN_ANNOTATION = "headrace.dev/launch-token"
DRAIN_TAINT = "headrace.dev/draining"
"""`NoSchedule`; its value is the reason's code. Worker pods do not tolerate it."""
DEADLINE_ANNOTATION = "headrace.dev/drain-deadline"
"""UTC, ISO 8601: by when the node is to be empty."""
NOTICE_ANNOTATION = "headrace.dev/notice"
"""JSON of the notice that the taint stands for: `scaler.model.notice_file`'s form, where a crash cannot lose it."""
EXPIRY_ANNOTATION = "headrace.dev/marked-until"
"""UTC, ISO 8601: after this every mark of ours on the node is void and taken away. Every marker has an expiry."""
EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str
    added_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of a node."""

    type: str
    status: str
    reason: str
    message: str
    changed_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node, as last watched."""

    name: str
    uid: str
    resource_version: str
    created_at_s: float
    instance_id: str
    """Empty where its `providerID` names none."""
    instance_type: str
    zone: str
    capacity_type: str
    """`spot`, `on-demand`, `capacity-block`, `reserved` by the labels of EKS, Karpenter or self-managed nodes; empty: unknown."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    conditions: tuple[Condition, ...]
    allocatable: Mapping[str, str]
    """Quantities as Kubernetes writes them; accelerators and EFA devices among them."""
    deleting: bool
    provider_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod, as last watched."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    created_at_s: float
    node_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_kind: str
    owner_name: str
    owner_uid: str
    phase: str
    ready: bool
    unschedulable: bool
    deleting: bool
    grace_s: int | None
    """`deletionGracePeriodSeconds` while it is being deleted, else `terminationGracePeriodSeconds`."""
    priority_class: str
    qos_class: str
    daemon: bool
    """Owned by a DaemonSet."""
    static: bool
    """A mirror pod, which no API call ends."""


class NodeIndex(Protocol):
    """All nodes, watched."""

    @property
    def current_at_s(self) -> float | None:
        """Up to when the index is known to be whole (controller's clock); None before the first list."""
        ...

    def all(self) -> tuple[NodeFacts, ...]:
        """Every node."""
        ...

    def by_name(self, name: str) -> NodeFacts | None:
        """The node of that name."""
        ...

    def by_instance(self, instance_id: str) -> NodeFacts | None:
        """The newest node of that instance; None for an empty id."""
        ...

    async def changed(self) -> None:
        """Return when something may have changed since the last return."""
        ...


class PodIndex(Protocol):
    """Pods of the namespaces that fleets live in, watched."""

    @property
    def current_at_s(self) -> float | None:
        """As `NodeIndex.current_at_s`."""
        ...

    def all(self) -> tuple[PodFacts, ...]:
        """Every pod."""
        ...

    def on_node(self, node_name: str) -> tuple[PodFacts, ...]:
        """Pods scheduled to a node."""
        ...

    def by_uid(self, uid: str) -> PodFacts | None:
        """The pod of that UID."""
        ...

    def owned_by(self, owner_uid: str) -> tuple[PodFacts, ...]:
        """Pods whose controller has that UID."""
        ...
