"""Trainers for tests: facts of one that lacks nothing, in an Auto Scaling group or on Karpenter, and ways to take one thing away.

Also indexes that hold what they are given, for code that asks a `NodeIndex` or a `PodIndex`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scaler.decide.trainer_checks.capacity import BLOCK_ENDS_BEFORE_S
from scaler.decide.trainer_checks.disruption import DO_NOT_DISRUPT, SAFE_TO_EVICT, SCALE_DOWN_DISABLED
from scaler.decide.trainers import guard
from scaler.kube.facts import NodeFacts, PodFacts
from scaler.model.trainer_facts import (
    Budget,
    DisruptionAllowance,
    Group,
    GroupMember,
    NodeClaim,
    NodeCondition,
    NodePool,
    NodeTaint,
    PriorityClass,
    Requirement,
    Reservation,
    Selector,
    Toleration,
    TrainerFacts,
    TrainerInstance,
    TrainerNode,
    TrainerPod,
)
from scaler.model.trainers import CheckCode, Finding, GuardSettings, Severity, TrainerSpec

NOW_S = 1_000_000.0
LABELS = {"app": "trainer"}
TAINT = NodeTaint(key="example.com/trainer", value="policy", effect="NoSchedule")
HEALTHY = tuple(
    NodeCondition(type=type_, status=status, reason="")
    for type_, status in (
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("AcceleratedHardwareReady", "True"),
        ("NetworkingReady", "True"),
    )
)
DEVICES = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16"}


def a_trainer(**over: Any) -> TrainerSpec:
    plain: dict[str, Any] = {"name": "policy", "namespace": "rl", "match_labels": LABELS}
    return TrainerSpec(**{**plain, **over})


def instance(number: int) -> str:
    return f"i-{number:017x}"


def a_trainer_pod(number: int, **over: Any) -> TrainerPod:
    plain: dict[str, Any] = {
        "name": f"trainer-{number}",
        "namespace": "rl",
        "uid": f"pod-uid-{number}",
        "resource_version": "7",
        "node_name": f"node-{number}",
        "labels": LABELS,
        "annotations": {DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false"},
        "priority": 100_000,
        "priority_class": "trainer",
        "qos_class": "Guaranteed",
        "tolerations": (Toleration(key=TAINT.key, operator="Exists"),),
        "node_terms": ((Requirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",)),),),
        "requests": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 16},
    }
    return TrainerPod(**{**plain, **over})


def a_trainer_node(number: int, **over: Any) -> TrainerNode:
    plain: dict[str, Any] = {
        "name": f"node-{number}",
        "uid": f"node-uid-{number}",
        "resource_version": "9",
        "instance_id": instance(number),
        "instance_type": "p5en.48xlarge",
        "capacity_type": "on-demand",
        "labels": {},
        "annotations": {DO_NOT_DISRUPT: "true", SCALE_DOWN_DISABLED: "true"},
        "taints": (TAINT,),
        "conditions": HEALTHY,
        "allocatable": DEVICES,
    }
    return TrainerNode(**{**plain, **over})


def in_a_group(count: int = 2, **over: Any) -> TrainerFacts:
    """A trainer in an Auto Scaling group, that lacks nothing."""
    ids = [instance(number) for number in range(count)]
    plain: dict[str, Any] = {
        "trainer": "policy",
        "read_at_s": NOW_S,
        "pods": tuple(map(a_trainer_pod, range(count))),
        "nodes": tuple(map(a_trainer_node, range(count))),
        "budgets": (
            Budget(name="trainer", selector=Selector(match_labels=LABELS), max_unavailable="0", min_available=""),
        ),
        "priority_classes": {
            "rollout": PriorityClass(name="rollout", value=-10, never_preempts=True),
            "trainer": PriorityClass(name="trainer", value=100_000, never_preempts=False),
        },
        "rollout_classes": frozenset({"rollout"}),
        "instances": {each: TrainerInstance(instance_id=each, lifecycle="on-demand") for each in ids},
        "members": {
            each: GroupMember(instance_id=each, group="trainers", lifecycle_state="InService", protected=True)
            for each in ids
        },
        "groups": {"trainers": Group(name="trainers", buys_spot=False)},
        "termination_protected": dict.fromkeys(ids, True),
    }
    return TrainerFacts(**{**plain, **over})


def on_karpenter(count: int = 2, **over: Any) -> TrainerFacts:
    """The same on nodes of Karpenter's NodePool `trainers`."""
    plain: dict[str, Any] = {
        "nodes": tuple(a_trainer_node(number, node_pool="trainers") for number in range(count)),
        "members": {},
        "groups": {},
        "node_pools": {"trainers": a_node_pool()},
        "claims": tuple(
            NodeClaim(name=f"claim-{number}", node_name=f"node-{number}", expire_after="Never", termination_grace="")
            for number in range(count)
        ),
    }
    return replace(in_a_group(count), **{**plain, **over})


def a_node_pool(**over: Any) -> NodePool:
    plain: dict[str, Any] = {
        "name": "trainers",
        "allowances": (DisruptionAllowance(nodes="0"),),
        "expire_after": "Never",
        "consolidate_after": "Never",
        "termination_grace": "",
        "capacity_types": frozenset({"on-demand", "reserved"}),
    }
    return NodePool(**{**plain, **over})


def in_a_block(ends_in_s: float, **node: Any) -> TrainerFacts:
    """A trainer whose capacity block's instances begin to go `ends_in_s` from `NOW_S` on."""
    facts = in_a_group()
    return replace(
        facts,
        nodes=tuple(replace(each, capacity_type="capacity-block", **node) for each in facts.nodes),
        instances={
            each: TrainerInstance(instance_id=each, lifecycle="capacity-block", reservation_id="cr-1")
            for each in facts.instances
        },
        reservations={
            "cr-1": Reservation(
                reservation_id="cr-1",
                capacity_block=True,
                interruptible=False,
                ends_at_s=NOW_S + ends_in_s + BLOCK_ENDS_BEFORE_S,
            )
        },
    )


def with_pods(facts: TrainerFacts, **over: Any) -> TrainerFacts:
    """Every pod with these fields."""
    return replace(facts, pods=tuple(replace(pod, **over) for pod in facts.pods))


def with_nodes(facts: TrainerFacts, **over: Any) -> TrainerFacts:
    """Every node with these fields."""
    return replace(facts, nodes=tuple(replace(node, **over) for node in facts.nodes))


def with_members(facts: TrainerFacts, **over: Any) -> TrainerFacts:
    """Every group member with these fields."""
    return replace(facts, members={name: replace(each, **over) for name, each in facts.members.items()})


def a_condition(type_: str, status: str, reason: str = "") -> tuple[NodeCondition, ...]:
    """A healthy node's conditions with one of another kind."""
    return (*(each for each in HEALTHY if each.type != type_), NodeCondition(type=type_, status=status, reason=reason))


def judged(facts: TrainerFacts, trainer: TrainerSpec | None = None, **settings: Any) -> tuple[Finding, ...]:
    """What the guard finds at `NOW_S`."""
    return guard(facts, GuardSettings(trainer=trainer or a_trainer(), **settings), NOW_S)


def codes(findings: Iterable[Finding]) -> set[tuple[CheckCode, Severity]]:
    """Check and severity of each."""
    return {(finding.check, finding.severity) for finding in findings}


def node_facts(name: str, *, instance_id: str = "", labels: Mapping[str, str] | None = None, **over: Any) -> NodeFacts:
    """A node as watched."""
    plain: dict[str, Any] = {
        "name": name,
        "uid": f"uid-of-{name}",
        "resource_version": "1",
        "created_at_s": 0.0,
        "instance_id": instance_id,
        "instance_type": "p5en.48xlarge",
        "zone": "us-east-1a",
        "capacity_type": "on-demand",
        "labels": dict(labels or {}),
        "annotations": {},
        "taints": (),
        "unschedulable": False,
        "ready": True,
        "conditions": (),
        "allocatable": DEVICES,
        "deleting": False,
    }
    return NodeFacts(**{**plain, **over})


def pod_facts(name: str, node_name: str, *, labels: Mapping[str, str] | None = None, **over: Any) -> PodFacts:
    """A pod as watched."""
    plain: dict[str, Any] = {
        "name": name,
        "namespace": "rl",
        "uid": f"uid-of-{name}",
        "resource_version": "1",
        "created_at_s": 0.0,
        "node_name": node_name,
        "labels": dict(labels or {}),
        "annotations": {},
        "owner_kind": "ReplicaSet",
        "owner_name": "workers",
        "owner_uid": "uid-of-workers",
        "phase": "Running",
        "ready": True,
        "unschedulable": False,
        "deleting": False,
        "grace_s": 30,
        "priority_class": "",
        "qos_class": "Burstable",
        "daemon": False,
        "static": False,
    }
    return PodFacts(**{**plain, **over})


@dataclass
class Nodes:
    """A `NodeIndex` that holds what it is given."""

    held: list[NodeFacts] = field(default_factory=list)
    current: Callable[[], float | None] = lambda: NOW_S

    @property
    def current_at_s(self) -> float | None:
        return self.current()

    def all(self) -> tuple[NodeFacts, ...]:
        return tuple(self.held)

    def by_name(self, name: str) -> NodeFacts | None:
        return next((node for node in self.held if node.name == name), None)

    def by_instance(self, instance_id: str) -> NodeFacts | None:
        return next((node for node in self.held if instance_id and node.instance_id == instance_id), None)

    async def changed(self) -> None:
        raise AssertionError("nobody waits for it here")


@dataclass
class Pods:
    """A `PodIndex` that holds what it is given."""

    held: list[PodFacts] = field(default_factory=list)
    current: Callable[[], float | None] = lambda: NOW_S

    @property
    def current_at_s(self) -> float | None:
        return self.current()

    def all(self) -> tuple[PodFacts, ...]:
        return tuple(self.held)

    def on_node(self, node_name: str) -> tuple[PodFacts, ...]:
        return tuple(pod for pod in self.held if pod.node_name == node_name)

    def by_uid(self, uid: str) -> PodFacts | None:
        return next((pod for pod in self.held if pod.uid == uid), None)

    def owned_by(self, owner_uid: str) -> tuple[PodFacts, ...]:
        return tuple(pod for pod in self.held if pod.owner_uid == owner_uid)
