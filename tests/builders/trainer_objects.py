"""A trainer as real objects: namespace, priority classes, nodes, pods, disruption budget; on the fake API server or a real one.

The real one computes QoS classes and priorities and refuses what is malformed; on the fake they are put there as they would be.
Nodes carry no `providerID`, so there is nothing to ask EC2 about.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from scaler.decide.trainer_checks.disruption import SAFE_TO_EVICT, SCALE_DOWN_DISABLED
from scaler.kube.contract import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Denied, Json, KubeApi
from scaler.kube.facts import FLEET_LABEL
from scaler.kube.reading import node_facts, pod_facts
from scaler.model.clock import Clock
from scaler.model.trainers import TrainerSpec
from tests.builders.fake_kube import FakeKube
from tests.builders.trainers import Nodes, Pods

TAINT = {"key": "example.com/trainer", "value": "policy", "effect": "NoSchedule"}
_FULL = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16"}
_PRIORITY = {"trainer": 100_000, "rollout": -10}


@dataclass(kw_only=True)
class TrainerOnApi:
    """Two pods on two nodes; a third node with one rollout pod. Everything is this test's own, by namespace and prefix."""

    api: KubeApi
    clock: Clock
    namespace: str = field(default_factory=lambda: f"guard-{uuid4().hex[:8]}")
    repair: frozenset[Any] = frozenset()

    @property
    def trainer(self) -> TrainerSpec:
        """How the guard finds it."""
        return TrainerSpec(name="policy", namespace=self.namespace, match_labels={"app": "trainer"}, repair=self.repair)

    def of(self, name: str) -> str:
        """A name of something that has no namespace."""
        return f"{self.namespace}-{name}"

    async def begin(self) -> None:
        """Everything, lacking nothing."""
        await self.api.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        for name, value in _PRIORITY.items():
            await self.priority_class(name, value, never=name == "rollout")
        for number in range(2):
            await self.node(f"node-{number}")
            await self.pod(f"trainer-{number}", f"node-{number}")
        await self.node("rollout", labels={FLEET_LABEL: f"{self.namespace}.demo"})
        await self.pod("worker", "rollout", labels={"app": "worker"}, priority="rollout")
        await self.budget("trainer", maxUnavailable=0)

    async def end(self) -> None:
        """Take away what has no namespace, and pods and budgets."""
        for resource in (NODES, PRIORITY_CLASSES):
            for each in (await self.api.list(resource, label_selector=f"test={self.namespace}")).items:
                await self.api.delete(resource, each["metadata"]["name"])

    async def priority_class(self, name: str, value: int, *, never: bool) -> None:
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": self.of(name), "labels": {"test": self.namespace}},
            "value": value,
            "preemptionPolicy": "Never" if never else "PreemptLowerPriority",
        }
        await self.api.create(PRIORITY_CLASSES, body)

    async def node(self, name: str, *, labels: Mapping[str, str] | None = None, **over: Any) -> Json:
        body: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.of(name),
                "labels": {
                    "test": self.namespace,
                    "node.kubernetes.io/instance-type": "p5en.48xlarge",
                    "eks.amazonaws.com/capacityType": "ON_DEMAND",
                    **(labels or {}),
                },
                "annotations": {SCALE_DOWN_DISABLED: "true"},
            },
            "spec": {"taints": [TAINT]},
            "status": {
                "allocatable": _FULL,
                "capacity": _FULL,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        body.update(over)
        return await self.api.create(NODES, body)

    async def pod(
        self,
        name: str,
        node: str,
        *,
        labels: Mapping[str, str] | None = None,
        priority: str = "trainer",
        requests: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        owner: str | None = None,
    ) -> Json:
        """A pod that is scheduled already. QoS and priority are what the real server makes of it."""
        limits = dict(_FULL if limits is None else limits)
        resources = {"limits": limits, "requests": dict(limits if requests is None else requests)}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": dict(labels or {"app": "trainer"}),
                "annotations": {SAFE_TO_EVICT: "false"},
            },
            "spec": {
                "nodeName": self.of(node),
                "containers": [{"name": "main", "image": "none", "resources": resources}],
                "tolerations": [{"key": TAINT["key"], "operator": "Exists"}],
                "nodeSelector": {"eks.amazonaws.com/capacityType": "ON_DEMAND"},
                **({"priorityClassName": self.of(priority)} if priority else {}),
                **(spec or {}),
            },
        }
        if owner:
            reference = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "u", "controller": True}
            body["metadata"]["ownerReferences"] = [reference]
        if isinstance(self.api, FakeKube):
            return self.api.place(PODS, self._admitted(body, priority), namespace=self.namespace)
        return await self._created(body)

    async def _created(self, body: Json) -> Json:
        """The server learns of a PriorityClass a moment after it has taken it, and refuses pods that name it until then."""
        while True:
            try:
                return await self.api.create(PODS, body, namespace=self.namespace)
            except Denied as error:
                if "no PriorityClass" not in str(error):
                    raise
            await self.clock.sleep(0.05)

    def _admitted(self, body: Json, priority: str) -> Json:
        """What the real server does by itself."""
        body = copy.deepcopy(body)
        resources = body["spec"]["containers"][0]["resources"]
        same = all(
            resources["requests"].get(name) == resources["limits"].get(name) and name in resources["limits"]
            for name in ("cpu", "memory")
        )
        body["spec"]["priority"] = _PRIORITY.get(priority, 0)
        body["status"] = {
            "phase": "Pending",
            "qosClass": "Guaranteed" if same else "Burstable" if any(resources.values()) else "BestEffort",
        }
        return body

    async def budget(self, name: str, **spec: Any) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": "trainer"}}, **spec},
        }
        await self.api.create(DISRUPTION_BUDGETS, body, namespace=self.namespace)

    async def again(self, name: str, node: str, **over: Any) -> None:
        """The pod anew, otherwise."""
        await self.api.delete(PODS, name, namespace=self.namespace, grace_s=0)
        await self.pod(name, node, **over)

    async def change_pod(self, name: str, patch: Json, subresource: str = "") -> Json:
        return await self.api.patch(PODS, name, patch, namespace=self.namespace, subresource=subresource)

    async def change_node(self, name: str, patch: Json, subresource: str = "") -> Json:
        return await self.api.patch(NODES, self.of(name), patch, subresource=subresource)

    async def indexes(self) -> tuple[Nodes, Pods]:
        """What watched indexes would hold now; nodes of other tests are left out."""
        nodes = (await self.api.list(NODES, label_selector=f"test={self.namespace}")).items
        pods = (await self.api.list(PODS, namespace=self.namespace)).items
        return (
            Nodes([facts for facts in map(node_facts, nodes) if facts is not None], self.clock.now_s),
            Pods([facts for facts in map(pod_facts, pods) if facts is not None], self.clock.now_s),
        )
