"""`node_facts`, `pod_facts`: the few fields that we need, out of whatever JSON there is.

Policy: total. An object without a name, a UID and a time of creation is no object of an API server: None. Everything else
that is missing or of a wrong type is as if it were not there: a node that others wrote nonsense on still exists.
Invariants: strings that many objects share (keys of labels, types, zones) are kept once.
Sources: EKS, Karpenter and eksctl node labels; `providerID` of the AWS cloud provider (`aws:///<zone>/<instance>`) and of
kwok (`kwok://<name>`, Karpenter's test provider).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from sys import intern
from typing import Any

from scaler.kube.contract import Json
from scaler.kube.facts import Condition, NodeFacts, PodFacts, Taint

CAPACITY_LABEL = "headrace.dev/capacity-type"
"""For self-managed nodes that no label of others tells of."""
_CAPACITY_LABELS = (
    "eks.amazonaws.com/capacityType",
    "karpenter.sh/capacity-type",
    "node.kubernetes.io/lifecycle",
    CAPACITY_LABEL,
)
_CAPACITY = {
    "spot": "spot",
    "on-demand": "on-demand",
    "ondemand": "on-demand",
    "normal": "on-demand",
    "capacity-block": "capacity-block",
    "reserved": "reserved",
}
_RESERVATION_LABEL = "karpenter.k8s.aws/capacity-reservation-type"
_INSTANCE = re.compile(r"aws://[^/]*/[^/]*/(i-[0-9A-Za-z-]+)|kwok://(?:.*/)?([^/]+)")
_MIRROR = "kubernetes.io/config.mirror"
_BULK = "kubectl.kubernetes.io/last-applied-configuration"


def node_facts(body: Json) -> NodeFacts | None:
    """A node; None for what is none."""
    meta, spec, status = _part(body, "metadata"), _part(body, "spec"), _part(body, "status")
    name, uid, created_at_s = _text(meta, "name"), _text(meta, "uid"), _time_s(meta.get("creationTimestamp"))
    if not name or not uid or created_at_s is None:
        return None
    labels = _texts(meta.get("labels"))
    conditions = tuple(_conditions(status))
    return NodeFacts(
        name=name,
        uid=uid,
        resource_version=_text(meta, "resourceVersion"),
        created_at_s=created_at_s,
        instance_id=instance_of(_text(spec, "providerID")),
        instance_type=labels.get("node.kubernetes.io/instance-type", ""),
        zone=labels.get("topology.kubernetes.io/zone", ""),
        capacity_type=_capacity_type(labels),
        labels=labels,
        annotations=_texts(meta.get("annotations")),
        taints=tuple(_taints(spec)),
        unschedulable=spec.get("unschedulable") is True,
        ready=_holds(conditions, "Ready"),
        conditions=conditions,
        allocatable=_texts(status.get("allocatable")),
        deleting="deletionTimestamp" in meta,
        provider_id=_text(spec, "providerID"),
    )


def pod_facts(body: Json) -> PodFacts | None:
    """A pod; None for what is none."""
    meta, spec, status = _part(body, "metadata"), _part(body, "spec"), _part(body, "status")
    name, uid, created_at_s = _text(meta, "name"), _text(meta, "uid"), _time_s(meta.get("creationTimestamp"))
    namespace = _text(meta, "namespace")
    if not name or not namespace or not uid or created_at_s is None:
        return None
    owner, conditions, annotations = _owner(meta), tuple(_conditions(status)), _texts(meta.get("annotations"))
    deleting = "deletionTimestamp" in meta
    return PodFacts(
        name=name,
        namespace=intern(namespace),
        uid=uid,
        resource_version=_text(meta, "resourceVersion"),
        created_at_s=created_at_s,
        node_name=intern(_text(spec, "nodeName")),
        labels=_texts(meta.get("labels")),
        annotations=annotations,
        owner_kind=intern(_text(owner, "kind")),
        owner_name=intern(_text(owner, "name")),
        owner_uid=intern(_text(owner, "uid")),
        phase=intern(_text(status, "phase")),
        ready=_holds(conditions, "Ready"),
        unschedulable=any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in conditions),
        deleting=deleting,
        grace_s=_whole(meta, "deletionGracePeriodSeconds")
        if deleting
        else _whole(spec, "terminationGracePeriodSeconds"),
        priority_class=intern(_text(spec, "priorityClassName")),
        qos_class=intern(_text(status, "qosClass")),
        daemon=_text(owner, "kind") == "DaemonSet",
        static=_MIRROR in annotations,
    )


def instance_of(provider_id: str) -> str:
    """The instance that a `providerID` names; empty where it names none."""
    found = _INSTANCE.fullmatch(provider_id)
    return (found[1] or found[2]) if found else ""


def _capacity_type(labels: Mapping[str, str]) -> str:
    for label in _CAPACITY_LABELS:
        told = _CAPACITY.get(labels.get(label, "").lower().replace("_", "-"), "")
        if told == "reserved" and labels.get(_RESERVATION_LABEL) == "capacity-block":
            return "capacity-block"
        if told:
            return told
    return ""


def _taints(spec: Mapping[str, Any]) -> Iterator[Taint]:
    for each in _parts(spec.get("taints")):
        if _text(each, "key"):
            yield Taint(
                key=intern(_text(each, "key")),
                value=intern(_text(each, "value")),
                effect=intern(_text(each, "effect")),
                added_at_s=_time_s(each.get("timeAdded")),
            )


def _conditions(status: Mapping[str, Any]) -> Iterator[Condition]:
    for each in _parts(status.get("conditions")):
        if _text(each, "type"):
            yield Condition(
                type=intern(_text(each, "type")),
                status=intern(_text(each, "status")),
                reason=intern(_text(each, "reason")),
                message=intern(_text(each, "message")),
                changed_at_s=_time_s(each.get("lastTransitionTime")),
            )


def _holds(conditions: Iterable[Condition], type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in conditions)


def _owner(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for each in _parts(meta.get("ownerReferences")) if each.get("controller") is True), {})


def _part(body: Any, key: str) -> Mapping[str, Any]:
    part = body.get(key) if isinstance(body, dict) else None
    return part if isinstance(part, dict) else {}


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return {}
    return {intern(key): intern(text) for key, text in value.items() if isinstance(text, str) and key != _BULK}


def _whole(part: Mapping[str, Any], key: str) -> int | None:
    value = part.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time_s(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
