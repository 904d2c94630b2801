"""The veto: no command, taint, eviction or deletion that names a trainer's instance, node or pod passes.

Invariants
* What was ever seen of a trainer is kept until whole readings have shown for half an hour that it is not the trainer's any
  more: old facts forbid, they never allow, and a trainer that restarts does not lose its nodes in between.
* While trainers were never read, or not lately, only instances whose node carries this fleet's label may be touched at all.
* A pool that is where a trainer lives gets no launch.
* Guards are for what we do by choice as for what a notice makes us do; a rollout node is never protected by them, so that a
  noticed one is always drained.
Non-goals: judging whether a command is wise.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scaler.kube.facts import FLEET_LABEL, NodeFacts, NodeIndex, PodIndex
from scaler.model.clock import Clock
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    ReleaseReplicaWork,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.trainer_facts import Source, TrainerFacts, place_key
from scaler.model.trainers import TrainerSpec

KEPT_S = 1800.0
FRESH_S = 120.0
"""Age up to which a reading of trainers says where they are."""
_WHOLE = frozenset({Source.PODS, Source.NODES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouchable:
    """What belongs to trainers, by every name that a command could use."""

    instance_ids: frozenset[str] = frozenset()
    node_names: frozenset[str] = frozenset()
    node_uids: frozenset[str] = frozenset()
    pod_uids: frozenset[str] = frozenset()
    places: frozenset[tuple[str, str]] = frozenset()
    """As `place_key` names them."""
    names: frozenset[str] = field(init=False)
    """Every name of a thing."""

    def __post_init__(self) -> None:
        """One set to look names up in."""
        names = self.instance_ids | self.node_names | self.node_uids | self.pod_uids
        object.__setattr__(self, "names", names)


@dataclass(slots=True)
class _Memory:
    """What one trainer was seen to have; the value is since when whole readings have lacked it, None: it is there."""

    things: dict[tuple[str, str], float | None] = field(default_factory=dict)

    def learn(self, facts: TrainerFacts, now_s: float) -> None:
        seen = dict.fromkeys(_things(facts))
        if facts.unread.keys() & _WHOLE:
            self.things |= seen
            return
        for thing, since_s in self.things.items():
            if thing not in seen:
                seen[thing] = now_s if since_s is None else since_s
        self.things = {thing: since_s for thing, since_s in seen.items() if since_s is None or now_s - since_s < KEPT_S}


def _things(facts: TrainerFacts) -> Iterator[tuple[str, str]]:
    for pod in facts.pods:
        yield "pod_uids", pod.uid
        yield "node_names", pod.node_name
    for node in facts.nodes:
        yield "node_names", node.name
        yield "node_uids", node.uid
        yield "instance_ids", node.instance_id
    for kind, name in facts.places:
        yield "places", f"{kind}/{name}"


class Protector:
    """See the module's docstring.

    `trainers` tells `scaler.guard.watch.trainers_of` the specification in use, `fleet` the value of `FLEET_LABEL` on this
    fleet's nodes, `places` each pool's place (`ProviderModel.place`), and `count` hears the kind of everything refused.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        nodes: NodeIndex,
        pods: PodIndex,
        trainers: Callable[[], Sequence[TrainerSpec]],
        fleet: Callable[[], str],
        places: Callable[[], Mapping[str, str]],
        count: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._nodes = nodes
        self._pods = pods
        self._trainers = trainers
        self._fleet = fleet
        self._places = places
        self._count = count
        self._memories: dict[str, _Memory] = {}
        self._whole_at_s: dict[str, float] = {}
        self.untouchable = Untouchable()
        """Everything of the trainers that are configured, present or remembered."""

    def learn(self, facts: Sequence[TrainerFacts]) -> None:
        """Remember what was read; a reading that was not whole adds and takes nothing away."""
        now_s = self._clock.monotonic_s()
        for each in facts:
            self._memories.setdefault(each.trainer, _Memory()).learn(each, now_s)
            if not each.unread.keys() & _WHOLE and each.read_at_s is not None:
                self._whole_at_s[each.trainer] = now_s - max(0.0, self._clock.now_s() - each.read_at_s)
        self.untouchable = self._gather()

    def _gather(self) -> Untouchable:
        wanted = {trainer.name for trainer in self._trainers()}
        things = [thing for name, memory in self._memories.items() if name in wanted for thing in memory.things]

        def of(kind: str) -> frozenset[str]:
            return frozenset(name for each, name in things if each == kind and name)

        return Untouchable(
            instance_ids=of("instance_ids"),
            node_names=of("node_names"),
            node_uids=of("node_uids"),
            pod_uids=of("pod_uids"),
            places=frozenset(map(place_key, of("places"))),
        )

    def objection(self, command: Command) -> str | None:
        """Why a command must not be carried out; None: no trainer is touched by it."""
        if not self._trainers():
            return None
        match command:
            case LaunchReplica():
                why = self._against_place(command.pool)
            case DrainReplica() | TerminateReplica() | DetachReplica():
                names = (command.replica_id, getattr(command, "worker", None) or "", *command.instance_ids)
                why = self._against_names(names) or self._against_instances(command.instance_ids)
            case UndrainReplica() | ReleaseReplicaWork():
                why = self._against_names((command.replica_id, command.worker))
        return self._refuse(type(command).__name__, why)

    def against_instance(self, instance_id: str) -> str | None:
        """Likewise of any other act on an instance."""
        why = self._against_instances((instance_id,)) if self._trainers() else None
        return self._refuse("instance", why)

    def against_node(self, name: str, uid: str = "") -> str | None:
        """Likewise of a taint, a label, a cordon or a deletion of a node or of its NodeClaim."""
        why = self._against_node(name, uid) if self._trainers() else None
        return self._refuse("node", why)

    def guards(self, node: NodeFacts) -> bool:
        """Whether a node is known to be a trainer's: it is then nobody's to list, count or touch."""
        return bool(self._trainers()) and self._against_trainers(node) is not None

    def against_pod(self, uid: str, node_name: str = "") -> str | None:
        """Likewise of an eviction or deletion of a pod."""
        why = self._against_pod(uid, node_name) if self._trainers() else None
        return self._refuse("pod", why)

    def _against_place(self, pool: str) -> str | None:
        place = self._places().get(pool, "")
        return f"a trainer lives in {place}" if place_key(place) in self.untouchable.places else None

    def _against_names(self, names: Sequence[str]) -> str | None:
        found = self.untouchable.names.intersection(names)
        return f"{min(found)} is a trainer's" if found else None

    def _against_instances(self, instance_ids: Sequence[str]) -> str | None:
        return next(filter(None, map(self._against_one, instance_ids)), None)

    def _against_one(self, instance_id: str) -> str | None:
        if instance_id in self.untouchable.instance_ids:
            return f"{instance_id} is a trainer's"
        node = self._nodes.by_instance(instance_id)
        if node is not None:
            return self._against_known(node)
        return None if self._fresh() else f"nobody knows whether {instance_id} is a trainer's"

    def _against_node(self, name: str, uid: str) -> str | None:
        if self.untouchable.names & {name, uid}:
            return f"node {name} is a trainer's"
        node = self._nodes.by_name(name)
        if node is not None:
            return self._against_known(node)
        return None if self._fresh() else f"nobody knows whether node {name} is a trainer's"

    def _against_known(self, node: NodeFacts) -> str | None:
        why = self._against_trainers(node)
        if why is not None:
            return why
        if not self._fresh() and node.labels.get(FLEET_LABEL) != self._fleet():
            return f"node {node.name} is not known to be this fleet's, and trainers were not read lately"
        return None

    def _against_trainers(self, node: NodeFacts) -> str | None:
        trainers = self._trainers()
        if self.untouchable.names & {node.name, node.uid}:
            return f"node {node.name} is a trainer's"
        if any(trainer.owns_node(node.labels) for trainer in trainers):
            return f"node {node.name} is set aside for a trainer"
        for pod in self._pods.on_node(node.name):
            if any(trainer.selects(pod.namespace, pod.labels) for trainer in trainers):
                return f"a trainer's pod runs on node {node.name}"
        return None

    def _against_pod(self, uid: str, node_name: str) -> str | None:
        if uid in self.untouchable.pod_uids:
            return "the pod is a trainer's"
        pod = self._pods.by_uid(uid)
        if pod is not None and any(each.selects(pod.namespace, pod.labels) for each in self._trainers()):
            return "the pod is a trainer's"
        place = node_name or (pod.node_name if pod else "")
        if place:
            return self._against_node(place, "")
        return None if self._fresh() else "nobody knows whether the pod is a trainer's"

    def _fresh(self) -> bool:
        """Whether every trainer and the nodes have been read, lately and whole."""
        now_s = self._clock.monotonic_s()
        read = all(now_s - self._whole_at_s.get(each.name, -math.inf) <= FRESH_S for each in self._trainers())
        nodes_at_s = self._nodes.current_at_s
        return read and nodes_at_s is not None and self._clock.now_s() - nodes_at_s <= FRESH_S

    def _refuse(self, kind: str, why: str | None) -> str | None:
        if why is not None:
            self._count(kind)
        return why
