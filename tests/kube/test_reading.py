"""Facts of nodes and pods, out of what clusters write and out of anything at all."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.kube.contract import Json
from scaler.kube.facts import Condition, NodeFacts, PodFacts, Taint
from scaler.kube.reading import instance_of, node_facts, pod_facts
from tests.builders.kube import node, pod

META = {"uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-11-29T10:00:00Z"}


def a_node(**more: Any) -> Json:
    body = node("n1", instance_id="i-0abc", labels={"own": "x"})
    body["metadata"].update(META)
    for path, value in more.items():
        body[path].update(value)
    return body


def a_pod(**more: Any) -> Json:
    body = pod("p1", within="ns", labels={"app": "x"}, node_name="n1")
    body["metadata"].update(META)
    body["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
    for path, value in more.items():
        body[path].update(value)
    return body


def read_node(body: Json) -> NodeFacts:
    facts = node_facts(body)
    assert facts is not None
    return facts


def read_pod(body: Json) -> PodFacts:
    facts = pod_facts(body)
    assert facts is not None
    return facts


def test_a_node_of_eks_is_read() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-11-29T10:00:05Z"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-11-29T10:00:07Z"}
    body = a_node(spec={"taints": [taint], "unschedulable": True}, status={"conditions": [ready]})
    facts = read_node(body)
    assert (facts.name, facts.uid, facts.resource_version) == ("n1", "u-1", "7")
    assert facts.created_at_s == 1795946400.0
    assert (facts.instance_id, facts.instance_type, facts.zone) == ("i-0abc", "p5.48xlarge", "us-west-2a")
    assert facts.provider_id == "aws:///us-west-2a/i-0abc"
    assert (facts.capacity_type, facts.labels["own"], facts.allocatable["nvidia.com/gpu"]) == ("spot", "x", "8")
    assert facts.taints == (Taint(key="k", value="v", effect="NoSchedule", added_at_s=1795946405.0),)
    assert facts.conditions == (
        Condition(type="Ready", status="True", reason="KubeletReady", message="", changed_at_s=1795946407.0),
    )
    assert (facts.ready, facts.unschedulable, facts.deleting) == (True, True, False)


def test_a_node_that_is_being_deleted_says_so() -> None:
    assert read_node(a_node(metadata={"deletionTimestamp": "2026-11-29T10:00:09Z"})).deleting


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        ("aws:///us-west-2a/i-0123456789abcdef0", "i-0123456789abcdef0"),
        ("aws://123456789012/us-west-2a/i-0abc", "i-0abc"),
        ("kwok://node-7", "node-7"),
        ("kwok:///node-7", "node-7"),
        ("", ""),
        ("aws:///us-west-2a/", ""),
        ("aws:///us-west-2a/i-", ""),
        ("aws:///us-west-2a/fargate-ip-10-0-0-1", ""),
        ("aws:///us-west-2a/i-0abc/more", ""),
        ("gce://project/zone/i-0abc", ""),
        ("i-0abc", ""),
        ("aws:///us-west-2a/i-0abc\n", ""),
        ("kwok://", ""),
    ],
)
def test_an_instance_is_the_exact_id_at_the_end_of_a_provider_id(provider_id: str, instance_id: str) -> None:
    assert instance_of(provider_id) == instance_id


@pytest.mark.parametrize(
    ("labels", "capacity_type"),
    [
        ({"eks.amazonaws.com/capacityType": "SPOT"}, "spot"),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "on-demand"),
        ({"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, "capacity-block"),
        ({"karpenter.sh/capacity-type": "spot"}, "spot"),
        ({"karpenter.sh/capacity-type": "on-demand"}, "on-demand"),
        ({"karpenter.sh/capacity-type": "reserved"}, "reserved"),
        (
            {
                "karpenter.sh/capacity-type": "reserved",
                "karpenter.k8s.aws/capacity-reservation-type": "capacity-block",
            },
            "capacity-block",
        ),
        ({"node.kubernetes.io/lifecycle": "spot"}, "spot"),
        ({"node.kubernetes.io/lifecycle": "normal"}, "on-demand"),
        ({"headrace.dev/capacity-type": "capacity-block"}, "capacity-block"),
        ({"headrace.dev/capacity-type": "cheap"}, ""),
        ({"eks.amazonaws.com/capacityType": "?", "node.kubernetes.io/lifecycle": "spot"}, "spot"),
        ({}, ""),
    ],
)
def test_capacity_types_are_read_from_the_labels_of_whoever_made_the_node(
    labels: dict[str, str], capacity_type: str
) -> None:
    body = a_node()
    body["metadata"]["labels"] = labels
    assert read_node(body).capacity_type == capacity_type


def test_a_pod_is_read() -> None:
    owner = {"kind": "DaemonSet", "name": "d", "uid": "u-d", "controller": True}
    other = {"kind": "Thing", "name": "t", "uid": "u-t"}
    body = a_pod(
        metadata={"ownerReferences": [other, owner], "annotations": {"kubernetes.io/config.mirror": "x"}},
        spec={"terminationGracePeriodSeconds": 60, "priorityClassName": "high"},
        status={"conditions": [{"type": "Ready", "status": "True"}]},
    )
    facts = read_pod(body)
    assert (facts.name, facts.namespace, facts.uid, facts.node_name) == ("p1", "ns", "u-1", "n1")
    assert (facts.owner_kind, facts.owner_name, facts.owner_uid) == ("DaemonSet", "d", "u-d")
    assert (facts.daemon, facts.static, facts.ready, facts.deleting, facts.unschedulable) == (
        True,
        True,
        True,
        False,
        False,
    )
    assert (facts.phase, facts.qos_class, facts.priority_class, facts.grace_s) == ("Running", "Guaranteed", "high", 60)


def test_while_a_pod_is_being_deleted_its_grace_is_that_of_the_deletion() -> None:
    meta = {"deletionTimestamp": "2026-11-29T10:00:09Z", "deletionGracePeriodSeconds": 5}
    facts = read_pod(a_pod(metadata=meta, spec={"terminationGracePeriodSeconds": 60}))
    assert (facts.deleting, facts.grace_s) == (True, 5)


def test_a_pod_that_finds_no_node_says_so() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    assert read_pod(a_pod(status={"conditions": [condition]})).unschedulable


@pytest.mark.parametrize("missing", ["name", "uid", "creationTimestamp"])
def test_what_has_no_name_uid_or_time_of_creation_is_no_object(missing: str) -> None:
    for body, read in ((a_node(), node_facts), (a_pod(), pod_facts)):
        assert read(body) is not None
        del body["metadata"][missing]
        assert read(body) is None


def test_a_node_that_others_wrote_nonsense_on_still_exists() -> None:
    body = a_node(
        metadata={"labels": {"a": 1, "b": "2"}, "annotations": "x"},
        spec={"taints": [None, {"key": 5}, {"key": "k", "effect": ["x"]}], "providerID": 7, "unschedulable": "yes"},
        status={"conditions": {"Ready": True}, "allocatable": [1]},
    )
    facts = read_node(body)
    assert facts.labels == {"b": "2"}
    assert facts.taints == (Taint(key="k", value="", effect="", added_at_s=None),)
    assert (facts.instance_id, facts.unschedulable, facts.ready, facts.conditions) == ("", False, False, ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(body: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    return [at, *(path for key, value in inner for path in paths(value, (*at, key)))]


def with_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    body = copy.copy(body)
    body[path[0]] = with_value(body[path[0]], path[1:], value)
    return body


FULL_NODE = a_node(
    spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-11-29T10:00:05Z"}]},
    status={"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-29T10:00:05Z"}]},
)
FULL_POD = a_pod(
    metadata={"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]},
    status={"conditions": [{"type": "Ready", "status": "True"}]},
)


@settings(max_examples=400)
@given(st.data())
def test_reading_is_total(data: st.DataObject) -> None:
    """Whatever stands wherever: facts of the right types, or None."""
    for full, read in ((FULL_NODE, node_facts), (FULL_POD, pod_facts)):
        body = full
        for _ in range(data.draw(st.integers(1, 3))):
            path = data.draw(st.sampled_from(paths(body)))
            body = with_value(body, path, data.draw(JSON))
        facts: NodeFacts | PodFacts | None = read(body)
        if facts is not None:
            assert facts.name
            assert facts.uid
            assert isinstance(facts.created_at_s, float)
            assert all(isinstance(text, str) for pair in facts.labels.items() for text in pair)
            hash((facts.name, facts.uid, facts.resource_version))


@settings(max_examples=200)
@given(JSON)
def test_anything_at_all_is_read(body: Any) -> None:
    assert node_facts(body) is None
    assert pod_facts(body) is None
