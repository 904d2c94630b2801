"""Gathers what is known of trainers: from the watched indexes at every look, by a few reads a minute for the rest.

Pods of the trainers are listed at every look, since everything else follows from where they run. Budgets, priority classes,
NodePools, foreign pods and EC2's answers are asked for once a minute, and at once where the nodes have become others.
Invariants: a source that fails is `unread` with its reason and never looks like an empty one; one that fails hinders no other.
Non-goals: judgement (`scaler.decide.trainers`), and anything inside the job.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaler.aws.contract import Aws
from scaler.kube.contract import (
    DISRUPTION_BUDGETS,
    NODE_CLAIMS,
    NODE_POOLS,
    PODS,
    PRIORITY_CLASSES,
    Json,
    KubeApi,
    NotFound,
    Resource,
)
from scaler.kube.facts import FLEET_LABEL, NodeIndex, PodIndex
from scaler.model.clock import Clock
from scaler.model.trainer_facts import (
    Budget,
    Neighbour,
    NodeClaim,
    NodePool,
    PriorityClass,
    Source,
    TrainerFacts,
    TrainerNode,
    TrainerPod,
)
from scaler.model.trainers import TrainerSpec
from scaler.observe.kept import Kept, ask_each
from scaler.observe.trainer_cloud import CloudFacts, TrainerCloud
from scaler.observe.trainer_objects import (
    NODE_POOL_LABEL,
    budget,
    has_ended,
    neighbour,
    node_claim,
    node_pool,
    priority_class,
    trainer_node,
    trainer_pod,
)

SLOW_S = 60.0
_INDEX_MAX_AGE_S = 120.0
"""A watch that has not proved itself for this long may hide anything."""
_LISTS_AT_ONCE = 8
_SYSTEM_PRIORITY = "system-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where facts come from. `aws` None: no access is configured."""

    kube: KubeApi
    nodes: NodeIndex
    pods: PodIndex
    aws: Aws | None
    clock: Clock


class TrainerObserver:
    """See the module's docstring."""

    def __init__(self, ports: Ports, *, slow_s: float = SLOW_S) -> None:
        self._ports = ports
        self._slow_s = slow_s
        self._classes: Kept[Mapping[str, PriorityClass]] = Kept({}, ports.clock, every_s=slow_s)
        self._watched: dict[str, _Watched] = {}

    async def read(self, trainers: Sequence[TrainerSpec]) -> tuple[TrainerFacts, ...]:
        """Facts of each trainer, in their order. Never raises for a source."""
        self._watched = {
            trainer.name: self._watched.get(trainer.name) or _Watched(self._ports, self._slow_s) for trainer in trainers
        }
        if not trainers:
            return ()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._classes.ask(self._read_classes))
            for trainer in trainers:
                group.create_task(self._watched[trainer.name].look(trainer, trainers))
        rollouts, why_not = self._rollout_classes(trainers)
        return tuple(self._facts(trainer, rollouts, why_not) for trainer in trainers)

    def hurry(self) -> None:
        """Ask every source anew at the next look: something was changed."""
        for watched in self._watched.values():
            watched.hurry()

    def _facts(self, trainer: TrainerSpec, rollouts: frozenset[str], why_not: str | None) -> TrainerFacts:
        watched = self._watched[trainer.name]
        unread = {**watched.unread(), **_reason(Source.PRIORITY_CLASSES, self._classes.unread)}
        cloud = watched.cloud_facts
        return TrainerFacts(
            trainer=trainer.name,
            read_at_s=watched.pods.answered_at_s,
            pods=watched.pods.value,
            nodes=watched.nodes,
            neighbours=watched.neighbours.value,
            budgets=watched.budgets.value,
            priority_classes=self._classes.value,
            rollout_classes=rollouts,
            node_pools=watched.karpenter.value[0],
            claims=watched.karpenter.value[1],
            instances=cloud.instances,
            members=cloud.members,
            groups=cloud.groups,
            events=cloud.events,
            termination_protected=cloud.termination_protected,
            reservations=cloud.reservations,
            shapes=cloud.shapes,
            unread={**unread, **_reason(Source.ROLLOUTS, why_not), **cloud.unread},
        )

    async def _read_classes(self) -> Mapping[str, PriorityClass]:
        listing = await self._ports.kube.list(PRIORITY_CLASSES)
        return {each.name: each for each in map(priority_class, listing.items)}

    def _rollout_classes(self, trainers: Sequence[TrainerSpec]) -> tuple[frozenset[str], str | None]:
        """Priority classes of pods on nodes of any fleet, trainers' and the system's own left out; and why not."""
        why_not = _behind(self._ports.pods.current_at_s, self._ports.clock, "pods")
        if why_not is not None:
            return frozenset(), why_not
        fleet_nodes = {node.name for node in self._ports.nodes.all() if node.labels.get(FLEET_LABEL)}
        return frozenset(
            pod.priority_class
            for pod in self._ports.pods.all()
            if pod.node_name in fleet_nodes
            and not pod.priority_class.startswith(_SYSTEM_PRIORITY)
            and not any(trainer.selects(pod.namespace, pod.labels) for trainer in trainers)
        ), None


class _Watched:
    """One trainer's sources."""

    def __init__(self, ports: Ports, slow_s: float) -> None:
        clock = ports.clock
        self._ports = ports
        self.pods: Kept[tuple[TrainerPod, ...]] = Kept((), clock, every_s=0.0, keep_s=60.0)
        self.budgets: Kept[tuple[Budget, ...]] = Kept((), clock, every_s=slow_s)
        self.neighbours: Kept[Mapping[str, tuple[Neighbour, ...]]] = Kept({}, clock, every_s=slow_s)
        self.karpenter: Kept[tuple[Mapping[str, NodePool], tuple[NodeClaim, ...]]] = Kept(
            ({}, ()), clock, every_s=slow_s
        )
        self.nodes: tuple[TrainerNode, ...] = ()
        self._nodes_unread: str | None = "not looked at yet"
        self._cloud = TrainerCloud(ports.aws, clock, every_s=slow_s)
        self.cloud_facts = CloudFacts()

    async def look(self, trainer: TrainerSpec, trainers: Sequence[TrainerSpec]) -> None:
        """Pods and nodes first: what else there is to ask follows from them."""
        who = (trainer.namespace, tuple(sorted(trainer.match_labels.items())))
        await self.pods.ask(lambda: self._read_pods(trainer), who)
        self._find_nodes(trainer)
        names = frozenset(node.name for node in self.nodes)
        pools = frozenset(node.node_pool for node in self.nodes if node.node_pool)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.budgets.ask(lambda: self._read_budgets(trainer), trainer.namespace))
            group.create_task(self.neighbours.ask(lambda: self._read_neighbours(names, trainers), names))
            group.create_task(self.karpenter.ask(lambda: self._read_karpenter(pools), pools))
            cloud = group.create_task(self._cloud.look(self.nodes))
        self.cloud_facts = cloud.result()

    def hurry(self) -> None:
        """Ask anew next time."""
        self.budgets.hurry()
        self._cloud.hurry()

    def unread(self) -> dict[Source, str]:
        """What of Kubernetes could not be read."""
        return {
            **_reason(Source.PODS, self.pods.unread),
            **_reason(Source.NODES, self._nodes_unread or self.pods.unread),
            **_reason(Source.DISRUPTION_BUDGETS, self.budgets.unread),
            **_reason(Source.NEIGHBOURS, self.neighbours.unread),
            **_reason(Source.NODE_POOLS, self.karpenter.unread),
        }

    def _find_nodes(self, trainer: TrainerSpec) -> None:
        index = self._ports.nodes
        self._nodes_unread = _behind(index.current_at_s, self._ports.clock, "nodes")
        names = {pod.node_name for pod in self.pods.value if pod.node_name}
        found = [node for node in index.all() if node.name in names or trainer.owns_node(node.labels)]
        self.nodes = tuple(map(trainer_node, sorted(found, key=lambda each: each.name)))

    async def _read_pods(self, trainer: TrainerSpec) -> tuple[TrainerPod, ...]:
        labels = ",".join(f"{key}={value}" for key, value in sorted(trainer.match_labels.items()))
        listing = await self._ports.kube.list(PODS, namespace=trainer.namespace, label_selector=labels)
        return tuple(trainer_pod(pod) for pod in listing.items if not has_ended(pod))

    async def _read_budgets(self, trainer: TrainerSpec) -> tuple[Budget, ...]:
        listing = await self._ports.kube.list(DISRUPTION_BUDGETS, namespace=trainer.namespace)
        return tuple(map(budget, listing.items))

    async def _read_neighbours(
        self, names: frozenset[str], trainers: Sequence[TrainerSpec]
    ) -> Mapping[str, tuple[Neighbour, ...]]:
        """The API server serves pods of one node from an index; a list of all pods would be large."""

        async def on(name: str) -> tuple[Neighbour, ...]:
            listing = await self._ports.kube.list(PODS, field_selector=f"spec.nodeName={name}")
            return tuple(neighbour(pod) for pod in listing.items if not has_ended(pod) and not _ours(pod, trainers))

        return await ask_each(sorted(names), on, at_once=_LISTS_AT_ONCE)

    async def _read_karpenter(self, pools: frozenset[str]) -> tuple[Mapping[str, NodePool], tuple[NodeClaim, ...]]:
        if not pools:
            return {}, ()
        found = map(node_pool, await self._list_if_served(NODE_POOLS))
        selector = f"{NODE_POOL_LABEL} in ({','.join(sorted(pools))})"
        claims = map(node_claim, await self._list_if_served(NODE_CLAIMS, label_selector=selector))
        return {each.name: each for each in found if each.name in pools}, tuple(claims)

    async def _list_if_served(self, resource: Resource, **selectors: Any) -> tuple[Json, ...]:
        """Nothing where the definition is not installed."""
        try:
            return (await self._ports.kube.list(resource, **selectors)).items
        except NotFound:
            return ()


def _ours(pod: Json, trainers: Sequence[TrainerSpec]) -> bool:
    metadata = pod.get("metadata", {})
    namespace, labels = metadata.get("namespace", ""), metadata.get("labels") or {}
    return any(trainer.selects(namespace, labels) for trainer in trainers)


def _behind(current_at_s: float | None, clock: Clock, what: str) -> str | None:
    if current_at_s is None:
        return f"{what} have not been listed yet"
    age_s = clock.now_s() - current_at_s
    return f"the watch of {what} is {age_s:.0f} s behind" if age_s > _INDEX_MAX_AGE_S else None


def _reason(source: Source, why: str | None) -> dict[Source, str]:
    return {} if why is None else {source: why}
