"""Rows about where pods may go: what would take a trainer's place, and where it would come back after a restart.

A taint that Kubernetes, a cloud controller or a device plug-in sets keeps nobody out for long, so it does not count; nor does
the accelerators' own, which every rollout pod tolerates. Source: research "deepep-efa" section 4.3.
"""

from collections.abc import Iterator

from scaler.decide.trainer_checks.case import Case, Found, Row, node_found, pod_found, row
from scaler.model.trainer_facts import (
    Neighbour,
    NodeTaint,
    PriorityClass,
    Requirement,
    Source,
    TrainerNode,
    TrainerPod,
    place_key,
)
from scaler.model.trainers import CheckCode, Severity, SubjectKind

CAPACITY_KEYS = frozenset(
    {
        "karpenter.sh/capacity-type",
        "eks.amazonaws.com/capacityType",
        "node.kubernetes.io/lifecycle",
        "headrace.dev/capacity-type",
    }
)
"""Node labels that tell how a node was bought."""
POOL_KEYS = frozenset({"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup"})
_PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "headrace.dev/",
    "nvidia.com/",
    "aws.amazon.com/neuron",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "aws-node-termination-handler/",
    "ebs.csi.aws.com/",
    "node.cilium.io/",
)
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-node-lease", "karpenter"})


def _pods(case: Case) -> Iterator[Found]:
    if not case.facts.pods:
        yield Found(
            kind=SubjectKind.TRAINER,
            subject=case.settings.trainer.name,
            message="its selector finds no pod: if it runs, mend the selector, since nothing of it is protected",
            severity=Severity.WARN,
        )


def _placement(case: Case) -> Iterator[Found]:
    for pod in case.facts.pods:
        if not _kept_off_spot(case, pod):
            yield pod_found(
                pod,
                "nothing keeps it off spot capacity when it is scheduled again: require node affinity "
                "karpenter.sh/capacity-type (or eks.amazonaws.com/capacityType) In on-demand or reserved capacity",
            )


def _kept_off_spot(case: Case, pod: TrainerPod) -> bool:
    """Every way in which it may be placed must exclude spot, by itself or by the node selector that holds for all ways."""
    fixed = tuple(Requirement(key=key, operator="In", values=(value,)) for key, value in pod.node_selector.items())
    ways = pod.node_terms or ((),)
    return all(any(_excludes_spot(case, term) for term in (*fixed, *way)) for way in ways)


def _excludes_spot(case: Case, term: Requirement) -> bool:
    if term.key in CAPACITY_KEYS:
        spot = {value for value in term.values if value.lower() == "spot"}
        return (term.operator == "In" and not spot) or (term.operator == "NotIn" and bool(spot))
    if term.operator != "In" or not term.values:
        return False
    if term.key == "karpenter.sh/nodepool":
        return all(_pool_excludes_spot(case, name) for name in term.values)
    return term.key in POOL_KEYS or case.settings.trainer.node_labels.get(term.key) in term.values


def _pool_excludes_spot(case: Case, name: str) -> bool:
    pool = case.facts.node_pools.get(name)
    return pool is not None and pool.capacity_types is not None and "spot" not in pool.capacity_types


def _guards(taint: NodeTaint) -> bool:
    return taint.effect in _KEEPS_OUT and not taint.key.startswith(_PASSING_TAINTS)


def _taint(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        if not any(map(_guards, node.taints)):
            yield node_found(
                node,
                "no taint of its own keeps other pods away: taint the trainer's nodes NoSchedule, in their launch "
                "template or NodePool",
            )


def _toleration(case: Case) -> Iterator[Found]:
    for pod, node in case.placed():
        for taint in filter(_guards, node.taints):
            if not any(toleration.tolerates(taint) for toleration in pod.tolerations):
                yield pod_found(
                    pod,
                    f"it does not tolerate {taint.key}={taint.value}:{taint.effect} of node {node.name} and could not "
                    "come back there: add the toleration",
                )


def _priority(case: Case) -> Iterator[Found]:
    classes = _rollout_classes(case)
    if not classes:
        return
    highest = max(classes, key=lambda each: each.value)
    for pod in case.facts.pods:
        if pod.priority <= highest.value:
            yield pod_found(
                pod,
                f"its priority {pod.priority} is not above the rollouts' {highest.value} "
                f"({highest.name or 'no priority class'}): give it a higher priority class",
            )


def _rollout_preemption(case: Case) -> Iterator[Found]:
    lowest = min((pod.priority for pod in case.facts.pods), default=None)
    for each in _rollout_classes(case):
        if each.never_preempts:
            continue
        dangerous = lowest is not None and each.value > lowest
        yield Found(
            kind=SubjectKind.PRIORITY_CLASS,
            subject=each.name or "none",
            message="rollout pods of this priority class may preempt others: use one with preemptionPolicy: Never",
            severity=Severity.ALARM if dangerous else Severity.WARN,
        )


def _rollout_classes(case: Case) -> list[PriorityClass]:
    """Classes of the rollout pods; a pod without one has priority 0 and preempts."""
    known = case.facts.priority_classes
    none = PriorityClass(name="", value=0, never_preempts=False)
    return [known.get(name, none) for name in sorted(case.facts.rollout_classes)]


def _qos(case: Case) -> Iterator[Found]:
    for pod in case.facts.pods:
        if pod.qos_class != "Guaranteed":
            yield pod_found(
                pod,
                f"its QoS class is {pod.qos_class or 'unknown'}, so node pressure may evict it: set requests equal to "
                "limits for CPU and memory of every container",
            )


def _co_tenancy(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        for other in case.facts.neighbours.get(node.name, ()):
            if other.takes_devices or not other.belongs:
                yield _neighbour_found(node, other)


def _neighbour_found(node: TrainerNode, other: Neighbour) -> Found:
    harmless = other.namespace in _SYSTEM_NAMESPACES and not other.takes_devices
    takes = " and takes devices" if other.takes_devices else ""
    return node_found(
        node,
        f"pod {other.namespace}/{other.name} runs on the trainer's node{takes}: taint the node, and move the pod",
        Severity.WARN if harmless else Severity.ALARM,
    )


def _shared_pool(case: Case) -> Iterator[Found]:
    places = case.facts.places
    for pool, place in sorted(case.settings.rollout_places.items()):
        if place_key(place) in places:
            yield Found(
                kind=SubjectKind.TRAINER,
                subject=case.settings.trainer.name,
                message=f"rollout pool {pool} is {place}, where the trainer runs: give each a group or NodePool of its own",
            )
    for node in case.facts.nodes:
        if node.fleet:
            yield node_found(node, f"fleet {node.fleet} claims it for rollouts: take its headrace.dev/fleet label away")


ROWS: tuple[Row, ...] = (
    row(CheckCode.PODS, _pods, Source.PODS),
    row(CheckCode.PLACEMENT, _placement, Source.PODS, Source.NODE_POOLS),
    row(CheckCode.TAINT, _taint, Source.NODES),
    row(CheckCode.TOLERATION, _toleration, Source.PODS, Source.NODES),
    row(CheckCode.PRIORITY, _priority, Source.PODS, Source.PRIORITY_CLASSES, Source.ROLLOUTS),
    row(CheckCode.ROLLOUT_PREEMPTION, _rollout_preemption, Source.PODS, Source.PRIORITY_CLASSES, Source.ROLLOUTS),
    row(CheckCode.QOS, _qos, Source.PODS),
    row(CheckCode.CO_TENANCY, _co_tenancy, Source.NODES, Source.NEIGHBOURS),
    row(CheckCode.SHARED_POOL, _shared_pool, Source.NODES, Source.MEMBERS),
)
