"""Trainers as the guard knows them: how they are found, what may be repaired, what is wrong, and the repairs as values.

Invariants: a repair adds what is missing and overwrites nothing that somebody set; it names its object by UID, so that a late
one hits nothing else. Codes are bounded, so that they may label a metric; subjects are not, and never do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

CHECKPOINT_ANNOTATION = "headrace.dev/checkpoint-requested"
"""On a trainer's pods: UTC, ISO 8601, by when the checkpoint has to be durable since capacity goes then. A time that has passed
asks for nothing. A trainer reads it as a file of the downward API (`metadata.annotations['...']`)."""
TRAINER_LABEL = "headrace.dev/trainer"
"""On objects that a repair made: the name of the trainer that they are for."""


class RepairKind(StrEnum):
    """What an operator may allow the guard to repair; nothing else is ever changed on a trainer."""

    ANNOTATIONS = "annotations"
    """Add missing do-not-disrupt, safe-to-evict and scale-down-disabled annotations."""
    DISRUPTION_BUDGET = "disruption_budget"
    """Create a missing PodDisruptionBudget with maxUnavailable 0."""
    SCALE_IN_PROTECTION = "scale_in_protection"
    """Set scale-in protection on its instances."""
    CHECKPOINT = "checkpoint"
    """Annotate its pods to ask for a checkpoint before their capacity goes."""


class CheckCode(StrEnum):
    """One row of what is checked; bounded."""

    PODS = "pods"
    CAPACITY_TYPE = "capacity_type"
    PLACEMENT = "placement"
    TAINT = "taint"
    TOLERATION = "toleration"
    POD_DO_NOT_DISRUPT = "pod_do_not_disrupt"
    NODE_DO_NOT_DISRUPT = "node_do_not_disrupt"
    NODE_POOL_BUDGETS = "node_pool_budgets"
    NODE_POOL_EXPIRY = "node_pool_expiry"
    NODE_POOL_CONSOLIDATION = "node_pool_consolidation"
    NODE_POOL_GRACE = "node_pool_grace"
    SAFE_TO_EVICT = "safe_to_evict"
    SCALE_DOWN_DISABLED = "scale_down_disabled"
    DISRUPTION_BUDGET = "disruption_budget"
    PRIORITY = "priority"
    ROLLOUT_PREEMPTION = "rollout_preemption"
    QOS = "qos"
    CO_TENANCY = "co_tenancy"
    SHARED_POOL = "shared_pool"
    SCALE_IN_PROTECTION = "scale_in_protection"
    TERMINATION_PROTECTION = "termination_protection"
    GROUP_POLICY = "group_policy"
    SCHEDULED_EVENT = "scheduled_event"
    CAPACITY_END = "capacity_end"
    CHECKPOINT = "checkpoint"
    NODE_CONDITION = "node_condition"
    FATAL_XID = "fatal_xid"
    HYPERPOD_HEALTH = "hyperpod_health"
    NODE_LEAVING = "node_leaving"
    EFA_DEVICES = "efa_devices"
    ACCELERATORS = "accelerators"
    HOT_SPARES = "hot_spares"


class Severity(StrEnum):
    """How bad; the worst first."""

    ALARM = "alarm"
    """A protection is missing or a danger is there: a person has to act."""
    REPAIRABLE = "repairable"
    """The same, and a repair that the operator allowed comes with it."""
    UNKNOWN = "unknown"
    """It could not be checked: a missing permission or an answer that did not come. Never the same as clean."""
    WARN = "warn"
    """Worth knowing; the trainer is protected without it."""


class SubjectKind(StrEnum):
    """What kind of thing a finding is about."""

    TRAINER = "trainer"
    POD = "pod"
    NODE = "node"
    INSTANCE = "instance"
    NODE_POOL = "node_pool"
    GROUP = "group"
    PRIORITY_CLASS = "priority_class"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatePod:
    """Add annotations to this very pod, as long as it is the version that was judged."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateNode:
    """Add annotations to this very node, as long as it is the version that was judged."""

    name: str
    uid: str
    resource_version: str
    annotations: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBudget:
    """Create a PodDisruptionBudget with `maxUnavailable: 0` over the trainer's pods."""

    namespace: str
    name: str
    trainer: str
    match_labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectFromScaleIn:
    """Set scale-in protection on one instance of a group; the actor puts up to 50 of a group into one call."""

    group: str
    instance_id: str


Repair: TypeAlias = AnnotatePod | AnnotateNode | CreateBudget | ProtectFromScaleIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or could not be seen; the message ends with what to do about it."""

    check: CheckCode
    trainer: str
    subject_kind: SubjectKind
    subject: str
    severity: Severity
    message: str
    repair: Repair | None = None
    repair_kind: RepairKind | None = None
    """What the operator's permission for the repair is called; set exactly where `repair` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """A trainer: how to find it, and what may be done for it."""

    name: str
    namespace: str
    match_labels: Mapping[str, str]
    """Its pods carry all of them."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Nodes that are its own also while no pod of it runs there; empty: only those where one runs."""
    repair: frozenset[RepairKind] = frozenset()
    ignore: frozenset[CheckCode] = frozenset()
    """Checks that the operator answers for."""
    efa_devices: int | None = None
    """EFA devices that each of its nodes must offer; None: as many as the instance type has, where its pods ask for any."""
    accelerators: int | None = None
    """GPUs or Neuron devices likewise."""
    hot_spares: int = 0
    """Healthy nodes of `node_labels` that are to stand by without a pod."""
    checkpoint_lead_s: float = 1200.0
    """A checkpoint is asked for this long before its capacity goes."""

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod is one of its own."""
        return namespace == self.namespace and self.match_labels.items() <= labels.items()

    def owns_node(self, labels: Mapping[str, str]) -> bool:
        """Whether a node is set aside for it."""
        return bool(self.node_labels) and self.node_labels.items() <= labels.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What one trainer is judged by."""

    trainer: TrainerSpec
    rollout_places: Mapping[str, str] = field(default_factory=dict)
    """Pool -> where its instances live, as `ProviderModel.place` names it."""
