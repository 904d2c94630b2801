"""Which pods are a fleet's workers, by the object that its pool names."""

from typing import Any

import pytest

from scaler.kube.facts import FLEET_LABEL, PodFacts
from scaler.kube.reading import pod_facts
from scaler.runtime.cluster.worker_pods import is_worker
from tests.builders.fleet_yaml import a_cluster_fleet, a_worker_set, an_asg, the_fleet


def a_pod(owner: str = "", name: str = "", *, space: str = "rl", **labels: str) -> PodFacts:
    owners = [{"kind": owner, "name": name, "uid": "u", "controller": True}] if owner else []
    body: dict[str, Any] = {
        "metadata": {
            "name": "p",
            "namespace": space,
            "uid": "uid",
            "creationTimestamp": "2026-11-29T00:00:00Z",
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {},
    }
    found = pod_facts(body)
    assert found is not None
    return found


def a_fleet_with(kind: str, **over: Any) -> dict[str, Any]:
    """Of name demo, in namespace rl."""
    return a_cluster_fleet(an_asg(workerSet=a_worker_set(kind, **over)))


LWS, RAY = "leaderworkerset.sigs.k8s.io/name", "ray.io/cluster"


@pytest.mark.parametrize(
    ("kind", "pod", "worker"),
    [
        pytest.param("deployment", a_pod("ReplicaSet", "workers-6d4f"), True, id="a Deployment's"),
        pytest.param(
            "deployment", a_pod("ReplicaSet", "workers-big-6d4f"), False, id="a Deployment's of a longer name"
        ),
        pytest.param("deployment", a_pod("ReplicaSet", "workers"), False, id="a ReplicaSet of its own"),
        pytest.param("deployment", a_pod("DaemonSet", "workers-6d4f"), False, id="another kind of owner"),
        pytest.param("deployment", a_pod("ReplicaSet", "workers-6d4f", space="else"), False, id="another namespace"),
        pytest.param("daemon_set", a_pod("DaemonSet", "workers"), True, id="a DaemonSet's"),
        pytest.param("daemon_set", a_pod("DaemonSet", "node-exporter"), False, id="another DaemonSet's"),
        pytest.param("leader_worker_set", a_pod("StatefulSet", "workers", **{LWS: "workers"}), True, id="a template's"),
        pytest.param(
            "leader_worker_set",
            a_pod("StatefulSet", "workers-a1", **{LWS: "workers-a1", "headrace.dev/template": "workers"}),
            True,
            id="a LeaderWorkerSet made after it",
        ),
        pytest.param("leader_worker_set", a_pod("StatefulSet", "x", **{LWS: "x"}), False, id="another one's"),
        pytest.param(
            "ray_cluster",
            a_pod("RayCluster", "workers", **{RAY: "workers", "ray.io/group": "rollout"}),
            True,
            id="a worker group's",
        ),
        pytest.param(
            "ray_cluster",
            a_pod("RayCluster", "workers", **{RAY: "workers", "ray.io/group": "headgroup"}),
            False,
            id="the head's",
        ),
        pytest.param("deployment", a_pod(**{FLEET_LABEL: "rl.demo"}), True, id="the fleet's label on it"),
        pytest.param("deployment", a_pod(**{FLEET_LABEL: "rl.weir"}), False, id="another fleet's label on it"),
        pytest.param("deployment", a_pod(), False, id="nothing"),
    ],
)
def test_which_pods_are_workers(kind: str, pod: PodFacts, worker: bool) -> None:
    assert is_worker(the_fleet(a_fleet_with(kind)), pod) is worker


def test_a_worker_set_may_live_in_another_namespace() -> None:
    fleet = the_fleet(a_fleet_with("deployment", namespace="else"))
    assert is_worker(fleet, a_pod("ReplicaSet", "workers-1", space="else"))
    assert not is_worker(fleet, a_pod("ReplicaSet", "workers-1"))
