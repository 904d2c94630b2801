"""A small cluster in memory for worker sets: indexes over a `FakeKube`'s store, and the controllers that act on it.

The controllers do what the real ones were seen to do, a step when told: `reconcile` until nothing changes. Pods come Pending
without a node; `run_pods` plays scheduler and kubelet on nodes that are made as they are needed. Deleted pods that ran stay
terminating until `kube.end_pods()`.
"""

import hashlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.contract import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NODES,
    PODS,
    RAY_CLUSTERS,
    REPLICA_SETS,
    Json,
)
from scaler.kube.facts import NodeFacts, PodFacts
from scaler.kube.reading import node_facts, pod_facts
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.fake_kube_store import is_ready
from tests.builders.kube_objects import clone, dig, merge_patch

NAMESPACE = "rl"


class StorePods:
    """A `PodIndex` that is always current, unless `frozen`."""

    def __init__(self, kube: FakeKube, clock: FakeClock) -> None:
        self._kube = kube
        self._clock = clock
        self.listed = True
        self._frozen: tuple[PodFacts, ...] | None = None

    @property
    def current_at_s(self) -> float | None:
        return self._clock.now_s() if self.listed else None

    def freeze(self, *, frozen: bool = True) -> None:
        """Lag: tell what is there now until told otherwise."""
        self._frozen = None
        self._frozen = self.all() if frozen else None

    def all(self) -> tuple[PodFacts, ...]:
        if self._frozen is not None:
            return self._frozen
        return tuple(filter(None, map(pod_facts, self._kube.store.every(PODS, None))))

    def on_node(self, node_name: str) -> tuple[PodFacts, ...]:
        return tuple(pod for pod in self.all() if pod.node_name == node_name)

    def by_uid(self, uid: str) -> PodFacts | None:
        return next((pod for pod in self.all() if pod.uid == uid), None)

    def owned_by(self, owner_uid: str) -> tuple[PodFacts, ...]:
        return tuple(pod for pod in self.all() if pod.owner_uid == owner_uid)

    async def changed(self) -> None:
        raise NotImplementedError


class StoreNodes:
    """A `NodeIndex` that is always current."""

    def __init__(self, kube: FakeKube, clock: FakeClock) -> None:
        self._kube = kube
        self._clock = clock
        self.listed = True

    @property
    def current_at_s(self) -> float | None:
        return self._clock.now_s() if self.listed else None

    def all(self) -> tuple[NodeFacts, ...]:
        return tuple(filter(None, map(node_facts, self._kube.store.every(NODES, None))))

    def by_name(self, name: str) -> NodeFacts | None:
        return next((node for node in self.all() if node.name == name), None)

    def by_instance(self, instance_id: str) -> NodeFacts | None:
        return next((node for node in self.all() if instance_id and node.instance_id == instance_id), None)

    async def changed(self) -> None:
        raise NotImplementedError


@dataclass(kw_only=True)
class Workloads:
    """See the module's docstring."""

    clock: FakeClock = field(default_factory=FakeClock)
    seed: int = 0

    def __post_init__(self) -> None:
        self.kube = FakeKube(self.clock)
        self.pods = StorePods(self.kube, self.clock)
        self.nodes = StoreNodes(self.kube, self.clock)
        self.random = random.Random(self.seed)
        self._named = 0

    def settings(self, name: str, **more: Any) -> WorkerSetSettings:
        """Those of the worker set called `name`."""
        return WorkerSetSettings(kube=self.kube, pods=self.pods, namespace=NAMESPACE, name=name, **more)

    # -- what is there ---------------------------------------------------------------------------------------------

    def all_pods(self) -> list[Json]:
        return clone({"items": list(self.kube.store.every(PODS, NAMESPACE))})["items"]  # type: ignore[no-any-return]

    def live(self) -> list[Json]:
        """Pods that are not on their way out."""
        return [pod for pod in self.all_pods() if "deletionTimestamp" not in pod["metadata"]]

    def uids(self) -> set[str]:
        """UIDs of all pods that are there, going or not."""
        return {pod["metadata"]["uid"] for pod in self.all_pods()}

    def object(self, resource: Any, name: str) -> Json:
        return clone(self.kube.store.find(resource, NAMESPACE, name))

    # -- what people do --------------------------------------------------------------------------------------------

    def edit(self, resource: Any, name: str, patch: Json) -> None:
        """Somebody else's merge patch, status and all."""
        body = merge_patch(self.object(resource, name), patch)
        self.kube.store.change(resource, NAMESPACE, name, "", lambda _: clone(body))
        if "status" in patch:
            self.kube.store.change(resource, NAMESPACE, name, "status", lambda old: {**old, "status": body["status"]})

    def set_pod(self, uid: str, **status: Any) -> None:
        """Give a pod this status: `phase`, `ready`, `unschedulable`; and a `node`."""
        pod = next(pod for pod in self.all_pods() if pod["metadata"]["uid"] == uid)
        conditions = []
        if "ready" in status:
            conditions.append({"type": "Ready", "status": "True" if status["ready"] else "False"})
        if status.get("unschedulable"):
            conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
        patch: Json = {"status": {"phase": status.get("phase", pod["status"]["phase"]), "conditions": conditions}}
        if "node" in status:
            patch["spec"] = {"nodeName": status["node"]}
        self.edit(PODS, pod["metadata"]["name"], patch)

    def delete_pod(self, uid: str) -> None:
        """Deleted, or evicted."""
        pod = next(pod for pod in self.all_pods() if pod["metadata"]["uid"] == uid)
        self.kube.store.remove(PODS, NAMESPACE, pod["metadata"]["name"], None, None)

    def lose_pod(self, uid: str) -> None:
        """Gone at once, as with its node."""
        pod = next(pod for pod in self.all_pods() if pod["metadata"]["uid"] == uid)
        self.kube.store.remove(PODS, NAMESPACE, pod["metadata"]["name"], None, 0)

    # -- what controllers do ---------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Deployments, ReplicaSets, RayClusters and LeaderWorkerSets until nothing is left to do."""
        for _ in range(50):
            changed = self._deployments() | self._replica_sets() | self._ray_clusters() | self._leader_worker_sets()
            if not changed:
                return
        raise AssertionError("the controllers never come to rest")

    def run_pods(self) -> None:
        """Every pod that waits gets a node of its own, and is ready there."""
        for pod in self.live():
            if not dig(pod, "spec.nodeName"):
                name = f"node-{pod['metadata']['uid'][:8]}"
                self.place_node(name)
                self.set_pod(pod["metadata"]["uid"], phase="Running", ready=True, node=name)

    def place_node(self, name: str, **labels: str) -> Json:
        """A Spot node of Karpenter's making."""
        own = {
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.kubernetes.io/zone": "us-west-2a",
            "karpenter.sh/capacity-type": "spot",
            **labels,
        }
        spec = {"providerID": f"aws:///us-west-2a/i-{name}"}
        return self.kube.place(NODES, {"metadata": {"name": name, "labels": own}, "spec": spec})

    def _deployments(self) -> bool:
        changed = False
        for owner in list(self.kube.store.every(DEPLOYMENTS, None)):
            sets = [each for each in self.kube.store.every(REPLICA_SETS, NAMESPACE) if _owned(each, owner)]
            digest = _digest(owner["spec"]["template"])
            newest = next((each for each in sets if each["metadata"]["labels"]["pod-template-hash"] == digest), None)
            if newest is None:
                newest = self._new_set(owner, digest, len(sets) + 1)
                changed = True
            # A rollout that replaces at once: who wants one half-way puts pods there.
            wanted = {each["metadata"]["name"]: 0 for each in sets} | {newest["metadata"]["name"]: _replicas(owner)}
            for name, replicas in wanted.items():
                if self.object(REPLICA_SETS, name)["spec"]["replicas"] != replicas:
                    self.edit(REPLICA_SETS, name, {"spec": {"replicas": replicas}})
                    changed = True
        return changed

    def _new_set(self, owner: Json, digest: str, revision: int) -> Json:
        name = f"{owner['metadata']['name']}-{digest}"
        labels = {**owner["spec"]["template"]["metadata"]["labels"], "pod-template-hash": digest}
        meta = {
            "name": name,
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [_reference(owner)],
        }
        body = {"metadata": meta, "spec": {"replicas": 0, "template": owner["spec"]["template"]}}
        return self.kube.place(REPLICA_SETS, body, namespace=NAMESPACE)

    def _replica_sets(self) -> bool:
        changed = False
        for owner in list(self.kube.store.every(REPLICA_SETS, None)):
            active = [pod for pod in self.live() if _owned(pod, owner) and not _ended(pod)]
            surplus = len(active) - owner["spec"]["replicas"]
            for _ in range(-surplus):
                self.new_pod(owner, owner["metadata"]["labels"])
            for pod in sorted(active, key=self._order)[: max(0, surplus)]:
                self.delete_pod(pod["metadata"]["uid"])
            changed |= surplus != 0
        return changed

    def _order(self, pod: Json) -> tuple[bool, int, bool, int, float]:
        """The ReplicaSet controller's, first to go first; what else it looks at is chance here."""
        phase = {"Pending": 0, "Unknown": 1}.get(pod["status"]["phase"], 2)
        annotations = pod["metadata"].get("annotations") or {}
        cost = int(annotations.get("controller.kubernetes.io/pod-deletion-cost", 0))
        return bool(dig(pod, "spec.nodeName")), phase, is_ready(pod), cost, self.random.random()

    def _ray_clusters(self) -> bool:
        changed = False
        for owner in list(self.kube.store.every(RAY_CLUSTERS, None)):
            for group in owner["spec"]["workerGroupSpecs"]:
                changed |= self._ray_group(owner, group)
        return changed

    def _ray_group(self, owner: Json, group: Json) -> bool:
        """As KubeRay: named pods first; what is over then, pods on their way out counted too, is chosen at random."""
        pods = [
            pod
            for pod in self.all_pods()
            if _owned(pod, owner) and pod["metadata"]["labels"]["ray.io/group"] == group["groupName"]
        ]
        named = set(dig(group, "scaleStrategy.workersToDelete") or ())
        changed = self._delete([pod for pod in pods if pod["metadata"]["name"] in named])
        left = [pod for pod in pods if pod["metadata"]["name"] not in named]
        least, most = group.get("minReplicas") or 0, group.get("maxReplicas")
        wanted = min(max(group.get("replicas") or 0, least), len(left) + 1000 if most is None else most)
        for _ in range(wanted - len(left)):
            self.new_pod(owner, {"ray.io/group": group["groupName"], "ray.io/cluster": owner["metadata"]["name"]})
        surplus = self.random.sample(left, max(0, len(left) - wanted))
        return self._delete(surplus) or changed or wanted > len(left)

    def _delete(self, pods: Iterable[Json]) -> bool:
        going = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        for pod in going:
            self.delete_pod(pod["metadata"]["uid"])
        return bool(going)

    def _leader_worker_sets(self) -> bool:
        changed = False
        for owner in list(self.kube.store.every(LEADER_WORKER_SETS, None)):
            pods = [pod for pod in self.all_pods() if _label(pod, _LWS_NAME) == owner["metadata"]["name"]]
            for ordinal in range(_replicas(owner)):
                changed |= self._group(owner, ordinal, {pod["metadata"]["name"] for pod in pods})
        names = {each["metadata"]["name"] for each in self.kube.store.every(LEADER_WORKER_SETS, None)}
        orphans = [pod for pod in self.all_pods() if _label(pod, _LWS_NAME) not in {None, *names}]
        return self._delete(orphans) or changed

    def _group(self, owner: Json, ordinal: int, there: set[str]) -> bool:
        name = owner["metadata"]["name"]
        wanted = [f"{name}-{ordinal}"]
        wanted += [f"{name}-{ordinal}-{i}" for i in range(1, owner["spec"]["leaderWorkerTemplate"]["size"])]
        template = owner["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        labels = {**(dig(template, "metadata.labels") or {}), _LWS_NAME: name}
        for missing in [each for each in wanted if each not in there]:
            self.new_pod(owner, labels, name=missing, spec=template["spec"])
        return not set(wanted) <= there

    def new_pod(self, owner: Json, labels: Json, *, name: str = "", spec: Json | None = None) -> Json:
        self._named += 1
        chance = "".join(self.random.choices("bcdfghjk", k=5))
        meta = {
            "name": name or f"{owner['metadata']['name']}-{chance}{self._named}",
            "labels": labels,
            "ownerReferences": [_reference(owner)],
        }
        body = {"metadata": meta, "spec": clone(spec or {}), "status": {"phase": "Pending"}}
        return self.kube.place(PODS, body, namespace=NAMESPACE)


_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"


def deployment(name: str, replicas: int, **spec: Any) -> Json:
    """A Deployment whose pods carry app=`name`."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main"}]}}
    selector = {"matchLabels": {"app": name}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


def ray_cluster(name: str, replicas: int, *, spec: Json | None = None, **group: Any) -> Json:
    """A RayCluster with the worker group `rollout`."""
    ours = {"groupName": "rollout", "replicas": replicas, "minReplicas": 0, "maxReplicas": 100, **group}
    other = {"groupName": "reward", "replicas": 1, "minReplicas": 0, "maxReplicas": 10}
    return {"metadata": {"name": name}, "spec": {"workerGroupSpecs": [other, ours], **(spec or {})}}


def leader_worker_set(name: str, *, replicas: int = 0, size: int = 2) -> Json:
    """A LeaderWorkerSet; without replicas it is a template."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main"}]}}
    group = {"size": size, "workerTemplate": template}
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "leaderWorkerTemplate": group}}


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def _reference(owner: Json) -> Json:
    meta = owner["metadata"]
    return {"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}


def _owned(body: Json, owner: Json) -> bool:
    return any(ref["uid"] == owner["metadata"]["uid"] for ref in body["metadata"].get("ownerReferences") or ())


def _label(body: Json, key: str) -> str | None:
    value = dig(body, "metadata.labels") or {}
    found = value.get(key)
    return None if found is None else str(found)


def _digest(template: Json) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]


def _replicas(body: Json) -> int:
    return int(body["spec"].get("replicas", 1))


def _ended(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
