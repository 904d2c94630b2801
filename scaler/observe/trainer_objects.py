"""Raw Kubernetes objects to a trainer's facts. Tolerant: a field that is missing is its default, never an error.

Sources of the shapes: Kubernetes API reference (core/v1, policy/v1, scheduling.k8s.io/v1), Karpenter's karpenter.sh/v1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scaler.decide.devices import ACCELERATORS, EFA
from scaler.kube.contract import Json
from scaler.kube.facts import FLEET_LABEL, NodeFacts
from scaler.model.trainer_facts import (
    Budget,
    DisruptionAllowance,
    Neighbour,
    NodeClaim,
    NodeCondition,
    NodePool,
    NodeTaint,
    PriorityClass,
    Requirement,
    Selector,
    Toleration,
    TrainerNode,
    TrainerPod,
)

NODE_POOL_LABEL = "karpenter.sh/nodepool"
NODE_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_MIRROR = "kubernetes.io/config.mirror"
_DEVICES = (EFA, *ACCELERATORS)
_ENDED = frozenset({"Succeeded", "Failed"})
_ALL_CAPACITY = frozenset({"on-demand", "reserved", "spot"})


def has_ended(pod: Json) -> bool:
    """Whether a pod holds nothing any more."""
    return pod.get("status", {}).get("phase") in _ENDED


def trainer_pod(pod: Json) -> TrainerPod:
    """A pod of the trainer."""
    metadata, spec, status = pod.get("metadata", {}), pod.get("spec", {}), pod.get("status", {})
    return TrainerPod(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        node_name=spec.get("nodeName") or "",
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        priority=spec.get("priority") or 0,
        priority_class=spec.get("priorityClassName") or "",
        qos_class=status.get("qosClass") or "",
        tolerations=tuple(_toleration(each) for each in spec.get("tolerations") or ()),
        node_selector=spec.get("nodeSelector") or {},
        node_terms=_node_terms(spec),
        requests=_device_requests(spec),
    )


def _toleration(raw: Json) -> Toleration:
    return Toleration(
        key=raw.get("key") or "",
        operator=raw.get("operator") or "Equal",
        value=raw.get("value") or "",
        effect=raw.get("effect") or "",
    )


def _node_terms(spec: Json) -> tuple[tuple[Requirement, ...], ...]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return tuple(_requirements(term.get("matchExpressions") or ()) for term in terms)


def _requirements(raw: Sequence[Json]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(key=each.get("key", ""), operator=each.get("operator", ""), values=tuple(each.get("values") or ()))
        for each in raw
    )


def _device_requests(spec: Json) -> Mapping[str, int]:
    wanted = dict.fromkeys(_DEVICES, 0)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name in _DEVICES:
            wanted[name] += _whole(asked.get(name))
    return {name: number for name, number in wanted.items() if number}


def _whole(quantity: Any) -> int:
    return int(quantity) if str(quantity).isdigit() else 0


def trainer_node(node: NodeFacts) -> TrainerNode:
    """A node, as watched."""
    return TrainerNode(
        name=node.name,
        uid=node.uid,
        resource_version=node.resource_version,
        instance_id=node.instance_id,
        instance_type=node.instance_type,
        capacity_type=node.capacity_type,
        labels=node.labels,
        annotations=node.annotations,
        taints=tuple(NodeTaint(key=each.key, value=each.value, effect=each.effect) for each in node.taints),
        conditions=tuple(
            NodeCondition(type=each.type, status=each.status, reason=each.reason, message=each.message)
            for each in node.conditions
        ),
        allocatable=node.allocatable,
        ready=node.ready,
        unschedulable=node.unschedulable,
        deleting=node.deleting,
        fleet=node.labels.get(FLEET_LABEL, ""),
        node_pool=node.labels.get(NODE_POOL_LABEL, ""),
        node_group=node.labels.get(NODE_GROUP_LABEL, ""),
    )


def neighbour(pod: Json) -> Neighbour:
    """Somebody else's pod."""
    metadata = pod.get("metadata", {})
    owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or ()}
    return Neighbour(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        belongs="DaemonSet" in owners or _MIRROR in (metadata.get("annotations") or {}),
        takes_devices=bool(_device_requests(pod.get("spec", {}))),
    )


def budget(raw: Json) -> Budget:
    """A PodDisruptionBudget."""
    spec = raw.get("spec", {})
    return Budget(
        name=raw.get("metadata", {}).get("name", ""),
        selector=_selector(spec.get("selector")),
        max_unavailable=_text(spec.get("maxUnavailable")),
        min_available=_text(spec.get("minAvailable")),
    )


def _selector(raw: Json | None) -> Selector | None:
    if raw is None:
        return None
    return Selector(
        match_labels=raw.get("matchLabels") or {}, requirements=_requirements(raw.get("matchExpressions") or ())
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def priority_class(raw: Json) -> PriorityClass:
    """A PriorityClass."""
    return PriorityClass(
        name=raw.get("metadata", {}).get("name", ""),
        value=raw.get("value") or 0,
        never_preempts=raw.get("preemptionPolicy") == "Never",
        default=bool(raw.get("globalDefault")),
    )


def node_pool(raw: Json) -> NodePool:
    """A NodePool."""
    spec = raw.get("spec", {})
    disruption, template = spec.get("disruption") or {}, (spec.get("template") or {}).get("spec") or {}
    return NodePool(
        name=raw.get("metadata", {}).get("name", ""),
        allowances=tuple(_allowances(disruption.get("budgets") or ())),
        expire_after=template.get("expireAfter") or "",
        consolidate_after=disruption.get("consolidateAfter") or "",
        termination_grace=template.get("terminationGracePeriod") or "",
        capacity_types=_capacity_types(template.get("requirements") or ()),
    )


def _allowances(raw: Sequence[Json]) -> Iterator[DisruptionAllowance]:
    for each in raw:
        yield DisruptionAllowance(
            nodes=_text(each.get("nodes")),
            reasons=frozenset(each.get("reasons") or ()),
            scheduled=bool(each.get("schedule") or each.get("duration")),
        )


def _capacity_types(raw: Sequence[Json]) -> frozenset[str] | None:
    allowed: frozenset[str] | None = None
    for requirement in _requirements(raw):
        if requirement.key == _CAPACITY_TYPE:
            kinds = frozenset(kind for kind in _ALL_CAPACITY if requirement.holds({_CAPACITY_TYPE: kind}))
            allowed = kinds if allowed is None else allowed & kinds
    return allowed


def node_claim(raw: Json) -> NodeClaim:
    """A NodeClaim."""
    spec = raw.get("spec", {})
    return NodeClaim(
        name=raw.get("metadata", {}).get("name", ""),
        node_name=raw.get("status", {}).get("nodeName") or "",
        expire_after=spec.get("expireAfter") or "",
        termination_grace=spec.get("terminationGracePeriod") or "",
    )
