"""Marks nodes that are to go, takes marks away again, and empties nodes: one keeper a fleet, for all of its pools.

Policy
* Level-based: `want` tells every mark that is to stand; the keeper brings nodes there, and keeps at it. A node that has not
  joined yet is marked when it joins. Marks of this fleet that are not wanted, and anyone's that have run out, are taken away.
* All nodes first: marking never waits for evictions, and no node waits for another's. Nearest deadline first.
* A node belongs to one fleet: a node of ours without an owner gets our label by compare-and-set, and another's is left alone.
* One patch a node: taint, cordon, label and annotations together, with the resource version it was computed from, so that a
  taint that somebody else sets meanwhile is never lost. A conflict is answered by a fresh read.
* A pod is evicted by UID: first within its budgets, past `deadline - force_s` by deletion. One order for all drains:
  deadline over budget over grace. Grace is what is left of the deadline, at least a second.
* Daemons of others and static pods stay; worker pods of the fleet go, a DaemonSet's too: they do not tolerate the taint.

Non-goals: whether a node is to go (the plan says), ending instances (the actors'), trainers (`objection` keeps them out).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from scaler.kube.contract import NODES, PODS, Conflict, Json, KubeApi, KubeError, NotFound, TooMany
from scaler.kube.facts import (
    DEADLINE_ANNOTATION,
    DRAIN_TAINT,
    EXCLUDE_LABEL,
    EXPIRY_ANNOTATION,
    FLEET_LABEL,
    NOTICE_ANNOTATION,
    POOL_LABEL,
    NodeFacts,
    NodeIndex,
    PodFacts,
    PodIndex,
)
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice
from scaler.model.notice_file import dump_notice

log = structlog.get_logger()

MARKED_BY_ANNOTATION = "headrace.dev/marked-by"
"""Key of the fleet whose mark it is."""
CORDONED_ANNOTATION = "headrace.dev/cordoned"
"""We cordoned it: only then do we uncordon it."""

_AT_ONCE = 64
"""Patches in flight; the API client's own rate has the last word."""
_LOOK_EVERY_S = 5.0
_FORCE_S = 5.0
"""This long before the deadline a budget has had its say."""
_EXPIRES_AFTER_S = 1800.0
"""After the deadline: by then the instance was taken, or reaped."""
_SAME_DEADLINE_S = 2.0
"""Annotations hold whole seconds, and two clocks lie between a drain as ordered and as shown."""
_TRIES = 6
"""Conflicts in a row on one node before its mark waits for the next look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMark:
    """What is to stand on the node of one instance. Times are on the controller's clock."""

    instance_id: str
    deadline_s: float
    reason: str
    epoch: int
    noticed_at_s: float | None = None
    notice: InterruptionNotice | None = None
    taint: bool = True
    """Else only the annotations: somebody else owns this node's taints."""
    empty: bool = False
    """Its work is handed over, or there is no time left: its pods are to go."""


@dataclass(frozen=True, slots=True)
class Owned:
    """Of a node of the fleet: its pool."""

    pool: str


class NodeKeeper:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        kube: KubeApi,
        nodes: NodeIndex,
        pods: PodIndex,
        clock: Clock,
        fleet: str,
        objection: Callable[[NodeFacts], str | None],
        marked: Callable[[NodeMark, float], None],
        may_act: Callable[[], bool],
    ) -> None:
        """`fleet`: `<namespace>.<name>`; `marked` is told of each node marked, and how long after its notice (s)."""
        self._kube = kube
        self._nodes = nodes
        self._pods = pods
        self._clock = clock
        self._fleet = fleet
        self._objection = objection
        self._tell = marked
        self._may_act = may_act
        self._wanted: Mapping[str, NodeMark] | None = None
        self._owned: Mapping[str, Owned] = {}
        self._done: dict[str, tuple[str, float]] = {}
        self._busy: set[str] = set()
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def want(self, marks: Mapping[str, NodeMark], owned: Mapping[str, Owned]) -> None:
        """Say what is to stand from now on, by instance id: all marks and all that is the fleet's, every time."""
        if marks != self._wanted or owned != self._owned:
            self._wanted, self._owned = dict(marks), dict(owned)
            self._done = {key: done for key, done in self._done.items() if key in marks}
            self._news.set()

    def rest(self) -> None:
        """Touch nothing from now on, until something is wanted again: marks that stand are left as they are."""
        self._wanted, self._owned = None, {}

    def recorded(self, instance_id: str) -> bool:
        """Whether the node of this instance carries its mark: a crash of ours cannot lose it any more."""
        mark = (self._wanted or {}).get(instance_id)
        node = self._nodes.by_instance(instance_id)
        return mark is not None and node is not None and self._stands(mark, node)

    async def run(self) -> None:
        """Keep at it; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                if self._wanted is not None and self._may_act():
                    self._look(group, self._wanted)
                await self._pause()

    async def _listen(self) -> None:
        while True:
            await self._nodes.changed()
            self._news.set()

    async def _pause(self) -> None:
        async with asyncio.TaskGroup() as group:
            ways = {group.create_task(self._clock.sleep(_LOOK_EVERY_S)), group.create_task(self._news.wait())}
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        self._news.clear()

    def _look(self, group: asyncio.TaskGroup, wanted: Mapping[str, NodeMark]) -> None:
        for mark in sorted(wanted.values(), key=lambda mark: (mark.deadline_s, mark.instance_id)):
            node = self._nodes.by_instance(mark.instance_id)
            if node is not None and node.uid not in self._busy and not self._stands(mark, node):
                self._begin(group, node, self._mark(mark, node))
        for node in self._nodes.all():
            if node.uid not in self._busy and self._void(node, wanted):
                self._begin(group, node, self._unmark(node))
        for instance_id, owned in self._owned.items():
            node = self._nodes.by_instance(instance_id)
            if node is not None and node.uid not in self._busy and not node.labels.get(FLEET_LABEL):
                self._begin(group, node, self._own(owned, node))
        for mark in wanted.values():
            if mark.empty:
                self._empty(group, mark)

    def _begin(self, group: asyncio.TaskGroup, node: NodeFacts, work: Any) -> None:
        self._busy.add(node.uid)
        group.create_task(self._work(node, work))

    async def _work(self, node: NodeFacts, work: Any) -> None:
        try:
            async with self._slots:
                await work
        except KubeError as error:
            log.warning("node_not_marked", node=node.name, error=str(error))
        finally:
            self._busy.discard(node.uid)

    def _stands(self, mark: NodeMark, node: NodeFacts) -> bool:
        shown_s = _seconds(node.annotations.get(DEADLINE_ANNOTATION, ""))
        shown = abs(shown_s - mark.deadline_s) <= _SAME_DEADLINE_S
        tainted = not mark.taint or (node.unschedulable and any(taint.key == DRAIN_TAINT for taint in node.taints))
        if shown and tainted:
            return True
        uid, done_s = self._done.get(mark.instance_id, ("", 0.0))
        return uid == node.uid and abs(done_s - mark.deadline_s) <= _SAME_DEADLINE_S

    def _void(self, node: NodeFacts, wanted: Mapping[str, NodeMark]) -> bool:
        """Whether a mark is there that nobody wants any more, and is ours to take away."""
        by = node.annotations.get(MARKED_BY_ANNOTATION)
        if by is None or node.deleting:
            return False
        if by == self._fleet:
            return node.instance_id not in wanted
        return self._clock.now_s() > _seconds(node.annotations.get(EXPIRY_ANNOTATION, ""))

    async def _mark(self, mark: NodeMark, node: NodeFacts) -> None:
        objection = self._objection(node)
        if objection is not None:
            log.error("node_not_touched", node=node.name, objection=objection)
            return
        await self._patch(node, lambda fresh: _marking(fresh, mark, self._fleet))
        self._done[mark.instance_id] = (node.uid, mark.deadline_s)
        self._tell(mark, self._clock.now_s() - (mark.noticed_at_s or self._clock.now_s()))

    async def _own(self, owned: Owned, node: NodeFacts) -> None:
        """Label a node that belongs to no fleet; whoever is first has it, since the patch fails on a changed node."""
        if self._objection(node) is not None or not self._may_act():
            return
        labels = {FLEET_LABEL: self._fleet, POOL_LABEL: owned.pool}
        patch: Json = {"metadata": {"resourceVersion": node.resource_version, "labels": labels}}
        try:
            await self._kube.patch(NODES, node.name, patch)
        except (Conflict, NotFound):
            return  # seen anew at the next look

    async def _unmark(self, node: NodeFacts) -> None:
        await self._patch(node, unmarking)
        log.info("node_unmarked", node=node.name)

    async def _patch(self, node: NodeFacts, change: Callable[[Json], Json]) -> None:
        """Patch what was watched; after a conflict what is read anew. A node that went meanwhile is done."""
        raw: Json = _raw(node)
        for _ in range(_TRIES):
            if not self._may_act():
                return
            try:
                await self._kube.patch(NODES, node.name, change(raw))
            except Conflict:
                raw = await self._read(node)
                if not raw:
                    return
            except NotFound:
                return
            else:
                return
        raise Conflict(f"node {node.name} changed {_TRIES} times while it was to be patched", status=409)

    async def _read(self, node: NodeFacts) -> Json:
        try:
            raw = await self._kube.get(NODES, node.name)
        except NotFound:
            return {}
        return raw if raw["metadata"].get("uid") == node.uid else {}

    def _empty(self, group: asyncio.TaskGroup, mark: NodeMark) -> None:
        node = self._nodes.by_instance(mark.instance_id)
        if node is None or not mark.taint or not self._stands(mark, node) or self._objection(node) is not None:
            return
        for pod in self._pods.on_node(node.name):
            if pod.uid not in self._busy and self._goes(pod):
                self._busy.add(pod.uid)
                group.create_task(self._evict(mark, pod))

    def _goes(self, pod: PodFacts) -> bool:
        ours = pod.labels.get(FLEET_LABEL) == self._fleet
        return not pod.deleting and not pod.static and (ours or not pod.daemon)

    async def _evict(self, mark: NodeMark, pod: PodFacts) -> None:
        left_s = mark.deadline_s - self._clock.now_s()
        grace_s = max(1, min(int(left_s), pod.grace_s or 30))
        try:
            async with self._slots:
                if not self._may_act():
                    return
                if left_s <= _FORCE_S:
                    await self._kube.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_s=grace_s)
                else:
                    await self._kube.evict(pod.name, namespace=pod.namespace, pod_uid=pod.uid, grace_s=grace_s)
        except (NotFound, TooMany):
            pass  # gone already; or a budget holds it, and the next look comes
        except KubeError as error:
            log.warning("pod_not_evicted", pod=pod.name, error=str(error))
        finally:
            self._busy.discard(pod.uid)


def _raw(node: NodeFacts) -> Json:
    """As much of the node's JSON as a change is computed from."""
    return {
        "metadata": {
            "resourceVersion": node.resource_version,
            "annotations": dict(node.annotations),
            "labels": dict(node.labels),
        },
        "spec": {
            "unschedulable": node.unschedulable,
            "taints": [
                {"key": taint.key, "value": taint.value, "effect": taint.effect}
                | ({} if taint.added_at_s is None else {"timeAdded": _utc(taint.added_at_s)})
                for taint in node.taints
            ],
        },
    }


def _marking(raw: Json, mark: NodeMark, fleet: str) -> Json:
    """The patch that puts the mark on a node that looks like `raw`."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    annotations = {
        DEADLINE_ANNOTATION: _utc(mark.deadline_s),
        EXPIRY_ANNOTATION: _utc(mark.deadline_s + _EXPIRES_AFTER_S),
        MARKED_BY_ANNOTATION: fleet,
        "headrace.dev/epoch": str(mark.epoch),
    }
    if mark.notice is not None:
        annotations[NOTICE_ANNOTATION] = dump_notice(mark.notice)
    patch: Json = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": annotations}}
    if mark.taint:
        if not spec.get("unschedulable"):
            annotations[CORDONED_ANNOTATION] = "true"
        others = _others(spec.get("taints") or ())
        taint = {"key": DRAIN_TAINT, "value": mark.reason, "effect": "NoSchedule"}
        patch["metadata"]["labels"] = {EXCLUDE_LABEL: "true"}
        patch["spec"] = {"unschedulable": True, "taints": [*others, taint]}
    return patch


def unmarking(raw: Json) -> Json:
    """The patch that takes every mark of ours off a node that looks like `raw`: taint, label, annotations, and our cordon."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    had = metadata.get("annotations") or {}
    keys = (DEADLINE_ANNOTATION, EXPIRY_ANNOTATION, MARKED_BY_ANNOTATION, NOTICE_ANNOTATION, CORDONED_ANNOTATION)
    patch: Json = {
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": dict.fromkeys((*keys, "headrace.dev/epoch")),
        }
    }
    taints = list(spec.get("taints") or ())
    if len(_others(taints)) < len(taints):
        patch["spec"] = {"taints": _others(taints)}
        patch["metadata"]["labels"] = {EXCLUDE_LABEL: None}
    if had.get(CORDONED_ANNOTATION) == "true":
        patch["spec"] = {**patch.get("spec", {}), "unschedulable": None}
    return patch


def _others(taints: Iterable[Json]) -> list[Json]:
    return [taint for taint in taints if taint.get("key") != DRAIN_TAINT]


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str) -> float:
    """UTC seconds; never (infinite) where the text is no time: what cannot be read is left to its owner."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("inf")
