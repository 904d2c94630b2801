"""Rows about the health of a trainer's nodes: conditions, fatal GPU errors, HyperPod's labels, devices that are missing.

A condition of the EKS node monitoring agent is told as soon as it shows, before node auto repair acts on it: that one ends
nodes without a drain. Which XID errors are fatal is the agent's list. Source: research "deepep-efa" section 4.2.
"""

import re
from collections.abc import Iterator

from scaler.decide.devices import ACCELERATORS, EFA, shape_of
from scaler.decide.trainer_checks.case import Case, Found, Row, node_found, pod_found, row
from scaler.model.trainer_facts import NodeCondition, Shape, Source, TrainerNode
from scaler.model.trainers import CheckCode, Severity, SubjectKind

MUST_BE_TRUE = frozenset(
    {
        "Ready",
        "AcceleratedHardwareReady",
        "NetworkingReady",
        "StorageReady",
        "KernelReady",
        "ContainerRuntimeReady",
    }
)
MUST_BE_FALSE = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
FATAL_XIDS = frozenset({46, 48, 54, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158})
"""The EKS node monitoring agent's list, at 51af549; other XIDs are events only."""
_XID = re.compile(r"NvidiaXID(\d+)Error")
HYPERPOD_HEALTH = "sagemaker.amazonaws.com/node-health-status"
HYPERPOD_FAULT = "sagemaker.amazonaws.com/fault-type"
_LEAVING_TAINTS = (
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/",
    "headrace.dev/draining",
    "node.cloudprovider.kubernetes.io/shutdown",
)


def _node_condition(case: Case) -> Iterator[Found]:
    names = {node.name for node in case.facts.nodes}
    for pod in case.facts.pods:
        if pod.node_name and pod.node_name not in names:
            yield pod_found(pod, f"its node {pod.node_name} is gone: see that it is scheduled again")
    for node in case.facts.nodes:
        for condition in filter(_bad, node.conditions):
            if _fatal_xid(condition) is None:
                yield node_found(
                    node,
                    f"{condition.type} is {condition.status} ({condition.reason or 'no reason'}): move the trainer off "
                    "it and replace it",
                )


def _bad(condition: NodeCondition) -> bool:
    if condition.type in MUST_BE_TRUE:
        return condition.status != "True"
    return condition.type in MUST_BE_FALSE and condition.status == "True"


def _fatal(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        for condition in filter(_bad, node.conditions):
            xid = _fatal_xid(condition)
            if xid is not None:
                yield node_found(
                    node,
                    f"XID {xid} is fatal to a GPU of it: restart the job from its checkpoint without this node, and "
                    "replace it",
                )


def _fatal_xid(condition: NodeCondition) -> int | None:
    found = _XID.search(condition.reason)
    return int(found[1]) if found and int(found[1]) in FATAL_XIDS else None


def _hyperpod_health(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        health = node.labels.get(HYPERPOD_HEALTH, "Schedulable")
        if health != "Schedulable":
            fault = node.labels.get(HYPERPOD_FAULT, "no fault told")
            yield node_found(node, f"HyperPod says {health} ({fault}): let it recover the node, from a checkpoint")


def _node_leaving(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        leaving = [taint.key for taint in node.taints if taint.key.startswith(_LEAVING_TAINTS)]
        if node.deleting or leaving:
            why = ", ".join(sorted(set(leaving))) or "it is being deleted"
            yield node_found(node, f"it is on its way out ({why}): take a checkpoint, and find who ends it")
        elif node.unschedulable:
            yield node_found(node, "it is cordoned, so a restarted pod cannot come back: uncordon it", Severity.WARN)


def _efa_devices(case: Case) -> Iterator[Found]:
    wanted = case.settings.trainer.efa_devices
    for node in case.facts.nodes:
        expected = wanted if wanted is not None else _usual(case, node).efa * case.asks_for(EFA)
        found = _quantity(node, EFA)
        if found < expected:
            yield node_found(
                node,
                f"it offers {found} EFA devices of {expected}, so that the job would fall back to slower links or fail: "
                "restart the device plug-in, or replace the node (or set efaDevices to what its launch template attaches)",
            )


def _accelerators(case: Case) -> Iterator[Found]:
    wanted = case.settings.trainer.accelerators
    asked = any(case.asks_for(name) for name in ACCELERATORS)
    for node in case.facts.nodes:
        expected = wanted if wanted is not None else _usual(case, node).accelerators * asked
        found = max(_quantity(node, name) for name in ACCELERATORS)
        if found < expected:
            yield node_found(
                node,
                f"{found} of {expected} accelerators can be allocated: drain it by hand and replace it",
            )


def _usual(case: Case, node: TrainerNode) -> Shape:
    """EC2's own word where it could be asked, else the table."""
    return case.facts.shapes.get(node.instance_type) or shape_of(node.instance_type)


def _quantity(node: TrainerNode, resource: str) -> int:
    text = node.allocatable.get(resource, "0")
    return int(text) if text.isdigit() else 0


def _hot_spares(case: Case) -> Iterator[Found]:
    wanted = case.settings.trainer.hot_spares
    busy = {pod.node_name for pod in case.facts.pods}
    free = [node for node in case.facts.nodes if node.name not in busy and _usable(node)]
    if len(free) < wanted:
        yield Found(
            kind=SubjectKind.TRAINER,
            subject=case.settings.trainer.name,
            message=f"{len(free)} of {wanted} hot spares are ready and free: add healthy nodes with its node labels",
        )


def _usable(node: TrainerNode) -> bool:
    leaving = any(taint.key.startswith(_LEAVING_TAINTS) for taint in node.taints)
    return node.ready and not (node.unschedulable or node.deleting or leaving or any(map(_bad, node.conditions)))


ROWS: tuple[Row, ...] = (
    row(CheckCode.NODE_CONDITION, _node_condition, Source.PODS, Source.NODES),
    row(CheckCode.FATAL_XID, _fatal, Source.NODES),
    row(CheckCode.HYPERPOD_HEALTH, _hyperpod_health, Source.NODES),
    row(CheckCode.NODE_LEAVING, _node_leaving, Source.NODES),
    row(CheckCode.EFA_DEVICES, _efa_devices, Source.PODS, Source.NODES),
    row(CheckCode.ACCELERATORS, _accelerators, Source.PODS, Source.NODES),
    row(CheckCode.HOT_SPARES, _hot_spares, Source.PODS, Source.NODES),
)
