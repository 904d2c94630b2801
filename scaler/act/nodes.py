"""Marks nodes that are to go, takes marks away again, and empties nodes: one keeper a fleet, for all of its pools.

Policy
* Level-based: `want` tells every mark that is to stand; the keeper brings nodes there, and keeps at it. A node that has not
  joined yet is marked when it joins. A mark of this fleet goes when nobody wants it and its instance is known to stay: where
  the instance is not listed any more, or is ending, the mark stays on its node until it runs out, so that no pod is sent to
  a machine on its way down. Marks that have run out, anyone's, are taken away.
* All nodes first: marking never waits for evictions, and no node waits for another's. Nearest deadline first.
* A node belongs to one fleet: a node of ours without an owner gets our label by compare-and-set, and another's is left alone.
* One patch a node: taint, cordon, label and annotations together (`node_marks`). A conflict is answered by a fresh read, after
  which everything is judged anew. What a write answered counts at once; nothing is written twice because a watch lags.
* A pod is evicted by UID, only from a node that carries our taint: first within its budgets, past `deadline - FORCE_S` by
  deletion. One order for all drains that are not our own choice: deadline over budget over grace. Grace is the pod's own or
  what is left of the deadline, at least a second. Each pod is tried again by itself, however the others do.
* Daemons and static pods stay, and so does what has finished. Worker pods go, a DaemonSet's too; of a replica that goes by our
  own choice they are left to the pool's actor, which takes the replica out of its worker set by name.

Non-goals: whether a node is to go (the plan says), ending instances (the actors'), trainers (`objection` keeps them out).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from scaler.act.node_marks import (
    MARKED_BY_ANNOTATION,
    NodeMark,
    Owned,
    has_run_out,
    is_newer,
    is_tainted,
    marked_by,
    marking,
    owning,
    undoing,
)
from scaler.act.tries import FIRST_REST_S, LONGEST_REST_S, Tries
from scaler.kube.contract import NODES, PODS, Conflict, Json, KubeApi, KubeError, NotFound, TooMany
from scaler.kube.facts import (
    DEADLINE_ANNOTATION,
    FLEET_LABEL,
    NOTICE_ANNOTATION,
    NodeFacts,
    NodeIndex,
    PodFacts,
    PodIndex,
)
from scaler.kube.reading import node_facts
from scaler.kube.waiting import first_of
from scaler.model.clock import Clock

__all__ = ["NodeKeeper", "NodeMark", "Owned"]

log = structlog.get_logger()

_PATCHES_AT_ONCE = 64
_EVICTIONS_AT_ONCE = 32
"""In flight; the API client's own rate has the last word. Apart, so that evictions never hold a mark up."""
_SETTLE_S = 0.1
"""A burst of changes is one look: a look goes over every node."""
_LOOKS_TAKE_ONE_IN = 5.0
"""However many nodes there are: the rest of the time is for what the looks began."""
_STANDS_FOR_S = 60.0
_LOOK_EVERY_S = 5.0
_EMPTYING_LOOK_S = 1.0
FORCE_S = 5.0
"""This long before the deadline a budget has had its say."""
_TRIES = 6
"""Conflicts in a row on one node before its mark waits like any other failure."""
_REFUSED_REST_S = 5.0
_BUDGET_REST_S = 2.0
_DEFAULT_GRACE_S = 30
_ENDED = frozenset({"Succeeded", "Failed"})

Change = Callable[[NodeFacts], Json | None]


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
        workers: Callable[[PodFacts], bool] | None = None,
    ) -> None:
        """`fleet`: `<namespace>.<name>`; `marked` is told of each node marked, and how long after its notice (s).

        `workers`: whether a pod is one of the fleet's worker pods. Default: those that carry the fleet's label.
        """
        self._kube = kube
        self._nodes = nodes
        self._pods = pods
        self._clock = clock
        self._fleet = fleet
        self._objection = objection
        self._tell = marked
        self._may_act = may_act
        self._workers = workers or (lambda pod: pod.labels.get(FLEET_LABEL) == fleet)
        self._wanted: Mapping[str, NodeMark] | None = None
        self._marks: tuple[NodeMark, ...] = ()
        """The same, nearest deadline first."""
        self._stood: dict[str, tuple[NodeMark, NodeFacts, float]] = {}
        """What was found to stand on which state of its node, and when: not judged again for a while."""
        self._owned: Mapping[str, Owned] = {}
        self._taking = True
        self._behind = False
        self._known: dict[str, NodeFacts] = {}
        """By UID: what the server answered us, until the watch shows as much."""
        self._tries = Tries(clock)
        self._said: dict[str, str] = {}
        self._news = asyncio.Event()
        self._patches = asyncio.Semaphore(_PATCHES_AT_ONCE)
        self._evictions = asyncio.Semaphore(_EVICTIONS_AT_ONCE)

    def want(self, marks: Mapping[str, NodeMark], owned: Mapping[str, Owned], *, taking: bool = True) -> None:
        """Say what is to stand from now on, by instance id: all marks, and all of the fleet's that are not ending already.

        `taking`: whether nodes of the fleet that carry nobody's label get its own.
        """
        self._taking = taking
        if marks != self._wanted or owned != self._owned:
            self._wanted, self._owned = dict(marks), dict(owned)
            self._marks = tuple(sorted(marks.values(), key=lambda mark: (mark.deadline_s, mark.instance_id)))
            self._stood = {key: stood for key, stood in self._stood.items() if key in marks}
            self._behind = self._behind or any(
                mark.noticed_at_s and key not in self._stood for key, mark in marks.items()
            )
            self._news.set()

    def rest(self) -> None:
        """Do nothing to any node until something is wanted again; what stands, stands."""
        self._wanted = None

    @property
    def behind(self) -> bool:
        """Whether the last look found noticed nodes without their mark."""
        return self._behind

    def recorded(self, instance_id: str) -> bool:
        """Whether the node of this instance carries its mark: a crash of ours cannot lose it any more."""
        mark, node = self._mark_of(instance_id), self._node_of(instance_id)
        return mark is not None and node is not None and self._stands(mark, node)

    async def run(self) -> None:
        """Keep at it; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                began_s = self._clock.monotonic_s()
                if self._wanted is not None and self._may_act():
                    self._look(group, self._wanted)
                await self._pause(self._clock.monotonic_s() - began_s)

    async def _listen(self) -> None:
        while True:
            await self._nodes.changed()
            self._news.set()

    async def _pause(self, look_s: float) -> None:
        await self._clock.sleep(max(_SETTLE_S, _LOOKS_TAKE_ONE_IN * look_s))
        wait_s = self._wait_s()
        await first_of(self._clock.sleep(wait_s), self._news.wait())
        self._news.clear()

    def _wait_s(self) -> float:
        """Until the next look, if nothing happens before: the first rest that ends, or a while."""
        emptying = any(mark.empty_from_s is not None for mark in self._marks)
        return self._tries.first_due_in_s(_EMPTYING_LOOK_S if emptying else _LOOK_EVERY_S)

    def _look(self, group: asyncio.TaskGroup, wanted: Mapping[str, NodeMark]) -> None:
        self._forget()
        self._behind = False
        for mark in self._marks:
            node = self._node_of(mark.instance_id)
            if node is not None and not self._stands(mark, node):
                self._behind = self._behind or mark.noticed_at_s is not None
                self._bring(group, node, self._marking(mark.instance_id), mark)
        for node in self._nodes.all():
            if node.instance_id not in wanted:
                self._look_at_unwanted(group, node)
        for mark in self._marks:
            self._empty(group, mark)

    def _look_at_unwanted(self, group: asyncio.TaskGroup, node: NodeFacts) -> None:
        """At a node that is to carry no mark: of thousands all but a few are as they should be."""
        if MARKED_BY_ANNOTATION in node.annotations or node.taints:
            self._bring(group, self._latest(node), self._unmarking)
        if self._taking and not node.labels.get(FLEET_LABEL) and node.instance_id in self._owned:
            latest = self._node_of(node.instance_id)
            if latest is not None and not latest.labels.get(FLEET_LABEL):
                self._bring(group, latest, self._owning(node.instance_id))

    def _stands(self, mark: NodeMark, node: NodeFacts) -> bool:
        now_s = self._clock.monotonic_s()
        stood = self._stood.get(mark.instance_id)
        if stood is not None and stood[0] is mark and stood[1] is node and now_s - stood[2] < _STANDS_FOR_S:
            return True
        stands = self._marking(mark.instance_id)(node) is None
        if stands:
            self._stood[mark.instance_id] = mark, node, now_s
        return stands

    def _forget(self) -> None:
        there = {node.uid for node in self._nodes.all()}
        self._known = {uid: node for uid, node in self._known.items() if uid in there}
        self._said = {uid: text for uid, text in self._said.items() if uid in there}
        self._tries.forget(lambda uid: uid in there or self._pods.by_uid(uid) is not None)

    def _mark_of(self, instance_id: str) -> NodeMark | None:
        return (self._wanted or {}).get(instance_id)

    def _node_of(self, instance_id: str) -> NodeFacts | None:
        node = self._nodes.by_instance(instance_id)
        return None if node is None else self._latest(node)

    def _latest(self, node: NodeFacts) -> NodeFacts:
        known = self._known.get(node.uid)
        return known if known is not None and is_newer(known, node) else node

    def _marking(self, instance_id: str) -> Change:
        """Judged anew each time: what is wanted may have changed since."""

        def change(node: NodeFacts) -> Json | None:
            mark = self._mark_of(instance_id)
            if mark is None:
                return None
            pool = self._owned[instance_id].pool if instance_id in self._owned else ""
            return marking(node, mark, fleet=self._fleet, pool=pool, now_s=self._clock.now_s())

        return change

    def _owning(self, instance_id: str) -> Change:
        def change(node: NodeFacts) -> Json | None:
            owned = self._owned.get(instance_id)
            return None if owned is None else owning(node, fleet=self._fleet, pool=owned.pool)

        return change

    def _unmarking(self, node: NodeFacts) -> Json | None:
        return undoing(node) if self._is_void(node) else None

    def _is_void(self, node: NodeFacts) -> bool:
        """Whether a mark is there that nobody wants any more, and is ours to take away."""
        by = marked_by(node)
        if by is None or node.deleting or self._wanted is None or node.instance_id in self._wanted:
            return False
        return has_run_out(node, self._clock.now_s()) or (by == self._fleet and node.instance_id in self._owned)

    def _bring(self, group: asyncio.TaskGroup, node: NodeFacts, change: Change, mark: NodeMark | None = None) -> None:
        if self._tries.may(node.uid) and change(node) is not None:
            self._start(group, node.uid, self._keep(node, change, mark))

    def _start(self, group: asyncio.TaskGroup, uid: str, work: Coroutine[Any, Any, None]) -> None:
        self._tries.begin(uid)
        group.create_task(self._work(uid, work))

    async def _work(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        """One node or pod; whatever fails rests and comes again, and nobody else hears of it."""
        failed = True
        try:
            await work
            failed = False
        except KubeError as error:
            log.warning("node_keeper_failed", uid=uid, error=str(error))
        except Exception:
            log.exception("node_keeper_broke", uid=uid)
        finally:
            self._tries.end(uid, failed=failed)
            self._news.set()

    async def _keep(self, node: NodeFacts, change: Change, mark: NodeMark | None) -> None:
        async with self._patches:
            before = await self._patch(node, change)
        if before is None:
            return
        if mark is None:
            log.info("node_kept", node=node.name, marked=marked_by(self._latest(node)) is not None)
        elif DEADLINE_ANNOTATION not in before.annotations or (
            mark.notice and NOTICE_ANNOTATION not in before.annotations
        ):
            now_s = self._clock.now_s()
            self._tell(mark, now_s - (now_s if mark.noticed_at_s is None else mark.noticed_at_s))

    async def _patch(self, node: NodeFacts, change: Change) -> NodeFacts | None:
        """Patch what was watched, after a conflict what is read anew. The node as it was before; None: nothing was done."""
        facts: NodeFacts | None = node
        for _ in range(_TRIES):
            patch = change(facts) if facts is not None and self._may_touch(facts, change) else None
            if facts is None or patch is None:
                return None
            try:
                answer = await self._kube.patch(NODES, facts.name, patch)
            except NotFound:
                return None
            except Conflict:
                facts = await self._read(node)
            else:
                self._known[node.uid] = node_facts(answer) or facts
                return facts
        raise Conflict(f"node {node.name} changed {_TRIES} times while it was to be patched", status=409)

    async def _read(self, node: NodeFacts) -> NodeFacts | None:
        """As it is now; None where it is gone, or another has its name."""
        try:
            facts = node_facts(await self._kube.get(NODES, node.name))
        except NotFound:
            return None
        if facts is None or facts.uid != node.uid:
            return None
        self._known[node.uid] = facts
        return facts

    def _may_touch(self, node: NodeFacts, change: Change | None = None) -> bool:
        """Whether we lead, and nothing speaks against it. Taking our own mark away touches nothing of others."""
        if not self._may_act():
            return False
        if change == self._unmarking:
            return True
        owner = node.labels.get(FLEET_LABEL)
        foreign = f"it belongs to fleet {owner}" if owner and owner != self._fleet else None
        objection = foreign or self._objection(node)
        if objection is None:
            self._said.pop(node.uid, None)
            return True
        self._tries.rest(node.uid, _REFUSED_REST_S)
        if self._said.get(node.uid) != objection:
            self._said[node.uid] = objection
            log.error("node_not_touched", node=node.name, objection=objection)
        return False

    def _empty(self, group: asyncio.TaskGroup, mark: NodeMark) -> None:
        now_s = self._clock.now_s()
        if mark.empty_from_s is None or now_s < mark.empty_from_s:
            return
        node = self._node_of(mark.instance_id)
        if node is None or not is_tainted(node):
            return  # taint first: what is found on it afterwards is all there will be
        for pod in self._pods.on_node(node.name):
            if self._tries.may(pod.uid) and self._goes(pod, mark):
                self._start(group, pod.uid, self._evict(mark.instance_id, node.uid, pod))

    def _goes(self, pod: PodFacts, mark: NodeMark) -> bool:
        worker = self._workers(pod)
        if pod.static or pod.phase in _ENDED or (pod.daemon and not worker) or (worker and mark.voluntary):
            return False
        # Somebody gave it more time to end than there is left.
        return not pod.deleting or (self._is_forced(mark) and (pod.grace_s or 0) > FORCE_S)

    def _is_forced(self, mark: NodeMark) -> bool:
        return not mark.voluntary and mark.deadline_s - self._clock.now_s() <= FORCE_S

    async def _evict(self, instance_id: str, node_uid: str, pod: PodFacts) -> None:
        async with self._evictions:
            mark, node = self._mark_of(instance_id), self._node_of(instance_id)
            if mark is None or node is None or node.uid != node_uid or not self._may_touch(node):
                self._tries.rest(pod.uid, _REFUSED_REST_S)
                return
            left_s = mark.deadline_s - self._clock.now_s()
            own_s = _DEFAULT_GRACE_S if pod.grace_s is None else pod.grace_s
            grace_s = own_s if mark.voluntary else max(1, min(int(max(left_s, 0.0)), own_s))
            try:
                if self._is_forced(mark):
                    await self._kube.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_s=grace_s)
                else:
                    await self._kube.evict(pod.name, namespace=pod.namespace, pod_uid=pod.uid, grace_s=grace_s)
            except NotFound:
                pass
            except TooMany as held:
                self._rest_for_budget(pod.uid, held.retry_after_s, left_s)
                return
        self._tries.rest(pod.uid, LONGEST_REST_S)  # until the watch shows that it goes

    def _rest_for_budget(self, uid: str, retry_after_s: float | None, left_s: float) -> None:
        """A budget is asked again in a while, and overruled in time."""
        wait_s = min(LONGEST_REST_S, max(_BUDGET_REST_S, retry_after_s or 0.0))
        until_forced_s = left_s - FORCE_S
        self._tries.rest(uid, min(wait_s, until_forced_s) if until_forced_s > 0 else FIRST_REST_S)
