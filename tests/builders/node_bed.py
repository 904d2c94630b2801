"""A cluster of nodes and pods in memory, and keepers of fleets that tend it on a fake clock."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from scaler.act.node_marks import NodeMark, Owned
from scaler.act.nodes import NodeKeeper
from scaler.kube.contract import DISRUPTION_BUDGETS, NODES, PODS, Json
from scaler.kube.facts import DEADLINE_ANNOTATION, DRAIN_TAINT, FLEET_LABEL, NodeFacts, PodFacts
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.model.interruption import InterruptionNotice, NoticeKind
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube

NOW_S = 1_800_000_000.0
FLEET, OTHER_FLEET = "rl.mill", "rl.weir"
SPACE = "rl"
FOREIGN_TAINT: Json = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def instance_of(name: str) -> str:
    return f"i-{name}"


def a_mark(name: str, *, in_s: float = 120.0, now_s: float = NOW_S, **facts: Any) -> NodeMark:
    """Of the node of that name; noticed unless a fact says otherwise."""
    notice = InterruptionNotice(
        instance_id=instance_of(name),
        kind=NoticeKind.SPOT_INTERRUPTION,
        noticed_at_s=now_s + in_s - 120.0,
        deadline_s=now_s + in_s,
    )
    given: dict[str, Any] = {
        "instance_id": instance_of(name),
        "deadline_s": now_s + in_s,
        "reason": "notice",
        "epoch": 7,
        "noticed_at_s": notice.noticed_at_s,
        "notice": notice,
    }
    return NodeMark(**(given | facts))


def an_emptying(name: str, *, in_s: float = 120.0, **facts: Any) -> NodeMark:
    """A mark of a node whose pods are to go at once."""
    return a_mark(name, in_s=in_s, **({"empty_from_s": 0.0} | facts))


def a_victim(name: str, *, in_s: float = 120.0, **facts: Any) -> NodeMark:
    """A mark by our own choice."""
    own: dict[str, Any] = {"notice": None, "noticed_at_s": None, "voluntary": True, "reason": "size_down"}
    return a_mark(name, in_s=in_s, **(own | facts))


@dataclass
class Keeping:
    """One fleet's keeper, and what it said."""

    keeper: NodeKeeper
    kube: FakeKube
    marked: list[tuple[str, float]]
    leads: list[bool]
    task: "asyncio.Task[None]"

    def want(self, *marks: NodeMark, owned: Iterable[str] = ()) -> None:
        """Marks, and the names of all nodes that are the fleet's besides."""
        instances = {mark.instance_id for mark in marks} | {instance_of(name) for name in owned}
        self.keeper.want({mark.instance_id: mark for mark in marks}, dict.fromkeys(instances, Owned("spot")))

    def sent(self, verb: str, plural: str) -> int:
        return self.kube.counts().get((verb, plural), 0)

    @property
    def writes(self) -> int:
        return sum(times for (verb, _), times in self.kube.counts().items() if verb not in ("get", "list", "watch"))


@dataclass
class NodeBed:
    """See the module's docstring."""

    group: asyncio.TaskGroup
    clock: FakeClock
    kube: FakeKube
    objections: dict[str, str] = field(default_factory=dict)
    """Node's name -> why it must not be touched."""

    def node(self, name: str, *, instance_id: str | None = None, **parts: Any) -> Json:
        """Put a node there. Parts: labels, annotations, taints, unschedulable, finalizers."""
        metadata: Json = {"name": name, "labels": parts.get("labels", {}), "annotations": parts.get("annotations", {})}
        if "finalizers" in parts:
            metadata["finalizers"] = parts["finalizers"]
        spec: Json = {"providerID": f"aws:///us-west-2a/{instance_id or instance_of(name)}"}
        spec |= {key: parts[key] for key in ("taints", "unschedulable") if key in parts}
        return self.kube.place(NODES, {"metadata": metadata, "spec": spec})

    def pod(self, name: str, node: str, *, grace_s: int | None = 30, phase: str = "Running", **parts: Any) -> Json:
        """Put a pod on a node. Parts: labels, annotations, owner (kind), space."""
        metadata: Json = {
            "name": name,
            "namespace": parts.get("space", SPACE),
            "labels": parts.get("labels", {}),
            "annotations": parts.get("annotations", {}),
        }
        if "owner" in parts:
            owner = {"kind": parts["owner"], "name": "owner", "uid": "owner-uid", "controller": True}
            metadata["ownerReferences"] = [{"apiVersion": "apps/v1", **owner}]
        spec: Json = {"nodeName": node, "terminationGracePeriodSeconds": grace_s}
        ready = [{"type": "Ready", "status": "True"}]
        return self.kube.place(
            PODS, {"metadata": metadata, "spec": spec, "status": {"phase": phase, "conditions": ready}}
        )

    def budget(self, app: str, *, allowed: int) -> Json:
        """A disruption budget over the pods of an app."""
        body: Json = {
            "metadata": {"name": app, "namespace": SPACE},
            "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": allowed},
        }
        return self.kube.place(DISRUPTION_BUDGETS, body)

    def keep(self, fleet: str = FLEET, *, workers: frozenset[str] = frozenset()) -> Keeping:
        """Start a keeper with a client and watches of its own. `workers`: names of worker pods."""
        kube = self.kube.client()
        nodes, pods = WatchedNodes(kube, self.clock), WatchedPods(kube, self.clock, None)
        marked: list[tuple[str, float]] = []
        leads = [True]

        def objection(node: NodeFacts) -> str | None:
            return self.objections.get(node.name)

        def is_worker(pod: PodFacts) -> bool:
            return pod.name in workers or pod.labels.get(FLEET_LABEL) == fleet

        keeper = NodeKeeper(
            kube=kube,
            nodes=nodes,
            pods=pods,
            clock=self.clock,
            fleet=fleet,
            objection=objection,
            marked=lambda mark, after_s: marked.append((mark.instance_id, after_s)),
            may_act=lambda: leads[-1],
            workers=is_worker,
        )
        return Keeping(keeper, kube, marked, leads, self.group.create_task(_all(nodes.run(), pods.run(), keeper.run())))

    async def crash(self, keeping: Keeping) -> None:
        """The controller dies."""
        keeping.task.cancel()
        await asyncio.wait([keeping.task])

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.advance(seconds)

    def found(self, name: str) -> Json:
        """The node as it is."""
        return self.kube.store.find(NODES, None, name)

    def taints(self, name: str) -> dict[str, str]:
        """Key -> value."""
        return {taint["key"]: taint.get("value", "") for taint in self.found(name)["spec"].get("taints") or ()}

    def labels(self, name: str) -> Mapping[str, str]:
        return dict(self.found(name)["metadata"].get("labels") or {})

    def annotations(self, name: str) -> Mapping[str, str]:
        return dict(self.found(name)["metadata"].get("annotations") or {})

    def is_cordoned(self, name: str) -> bool:
        return bool(self.found(name)["spec"].get("unschedulable"))

    def is_marked(self, name: str) -> bool:
        return DRAIN_TAINT in self.taints(name) and DEADLINE_ANNOTATION in self.annotations(name)

    def pods_left(self) -> dict[str, int | None]:
        """Pods that are not gone: name -> seconds of grace of those that are on their way out."""
        return {
            pod["metadata"]["name"]: pod["metadata"].get("deletionGracePeriodSeconds")
            for pod in self.kube.store.every(PODS, None)
        }


@asynccontextmanager
async def a_bed(now_s: float = NOW_S) -> AsyncIterator[NodeBed]:
    """A bed; whatever runs in it ends with the block."""
    clock = FakeClock(now_s)
    async with asyncio.TaskGroup() as group:
        bed = NodeBed(group, clock, FakeKube(clock))
        yield bed
        for task in list(group._tasks):
            task.cancel()


async def _all(*works: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


def utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
