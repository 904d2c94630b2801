"""A Karpenter NodePool: pods ask for nodes, and Karpenter launches, taints, evicts and replaces them.

* Observe: a replica is its pods with their nodes. A pod without a node is a pending instance `pod:<uid>`, a launch without a
  pod `token:<token>`; a replica's id is its key in the worker set, so that it stays when its node comes. Nodes without a pod
  of ours are Karpenter's to consolidate. What was begun is moved on here: a claim whose replica is gone is deleted.
* Launch: one replica more in the worker set. While pods have waited unschedulable for `unschedulable_after_s` with no claim on
  its way for them, more launches are refused: those that wait are the probe, and end by the fleet's launch time-out.
* Terminate, after the drain: mark the claims of the replica's nodes, take exactly this replica out of the worker set, and once
  its pods are gone by UID delete the claims, by UID, on whose nodes no other pod runs. Karpenter taints before it empties a
  node, so a pod that lands there in between is evicted, not killed.

Refused: a static NodePool, a worker set with another owner or without a count, a node with two worker pods.
Invariants: nothing is decided on lists that are not whole; no node is ended that runs anybody's pod; `do-not-disrupt` is not
ours to set, since each disruption is a notice to us and its replacement comes by itself.
Non-goals: notices, taints and evictions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from scaler.act.base import (
    Instance,
    InstanceState,
    LaunchOutcome,
    LaunchResult,
    NotYet,
    OfferingFacts,
    PoolObservation,
    PoolUnavailable,
)
from scaler.act.karpenter_claims import ClaimFacts, ClaimIndex
from scaler.act.karpenter_pool import available, refused_reason
from scaler.act.worker_sets.base import SetRefused, WorkerPod, WorkerSet, WorkerSetView
from scaler.act.worker_sets.calls import reading
from scaler.kube.contract import NODE_CLAIMS, NODE_POOLS, PODS, Json, KubeApi, KubeError, NotFound
from scaler.kube.facts import EXPIRY_ANNOTATION, FLEET_LABEL, NodeFacts, NodeIndex
from scaler.model.capacity import CapacityType, Offering
from scaler.model.clock import Clock
from scaler.model.plan import DetachReplica, LaunchReplica, TerminateReplica

ENDS_ANNOTATION = "headrace.dev/ends-with-replica"
"""On a NodeClaim: the key of the replica that is being taken out; the claim goes once that is gone and the node is empty."""
MARK_VALID_S = 3600.0
POD_ID = "pod:"
TOKEN_ID = "token:"


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterSettings:
    """What the actor of a NodePool needs to know."""

    kube: KubeApi
    nodes: NodeIndex
    claims: ClaimIndex
    worker_set: WorkerSet
    node_pool: str
    fleet: str
    """`<namespace>.<name>`."""
    offerings: tuple[Offering, ...]
    placed: bool = False
    """A launch's pods ask for its offering's nodes; else any offering may serve any launch, and all are refused together."""
    unschedulable_after_s: float = 60.0
    """A pod that has waited this long with no NodeClaim under way for it was refused. Karpenter makes a claim within ten
    seconds, or not before its memory of refusals (three minutes) ends."""


class KarpenterPool:
    """A `PoolActor`; see the module's docstring."""

    def __init__(self, settings: KarpenterSettings, *, pool: str, clock: Clock) -> None:
        self._settings = settings
        self._pool = pool
        self._clock = clock
        self._view: WorkerSetView | None = None
        self._refused_at_s: Mapping[str, float] = {}
        """Offerings for which pods wait in vain now, and since when."""

    async def observe(self) -> PoolObservation:
        """Everything of ours; also deletes the claims of replicas that are gone.

        Raises:
            PoolUnavailable: something did not answer, or was never listed.
        """
        lists_at_s = self._lists_at_s()
        view = self._view = await self._settings.worker_set.observe()
        node_pool = await self._node_pool()
        instances, shared = self._instances(view)
        await self._finish(view)
        self._refused_at_s = self._waiting_in_vain(view)
        return PoolObservation(
            listed_at_s=min(view.listed_at_s, lists_at_s),
            instances=instances,
            refused_reason=self._refused_reason(view, node_pool) or shared,
            available=available(node_pool, self._settings.offerings),
            missing=view.missing,
        )

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """One replica more, once a token.

        Raises:
            PoolUnavailable: no answer; it may have been carried out.
        """
        if self._view is not None and command.token in _tokens(self._view):
            return LaunchOutcome(result=LaunchResult.ALREADY)
        if command.offering_id in self._refused_at_s:
            message = "pods wait for nodes, and no NodeClaim is under way for them"
            return LaunchOutcome(result=LaunchResult.INSUFFICIENT_CAPACITY, message=message)
        try:
            added = await self._settings.worker_set.add(command.token, command.offering_id)
        except SetRefused as reason:
            return LaunchOutcome(result=LaunchResult.CONFIGURATION, message=str(reason))
        return LaunchOutcome(result=LaunchResult.LAUNCHED if added else LaunchResult.ALREADY)

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """Take exactly this replica out, if its instances are still those named.

        Raises:
            NotYet: a step was taken, or another pod would go instead.
            PoolUnavailable: something did not answer.
        """
        self._lists_at_s()
        view = await self._settings.worker_set.observe()
        listed = [each for each in self._instances(view)[0] if each.replica_id == command.replica_id]
        if not listed or {each.instance_id for each in listed} != set(command.instance_ids):
            return ()
        for claim in self._claims_of(listed):
            await self._mark(claim, command.replica_id)
        await self._take_out(command.replica_id)
        await self._finish(await self._settings.worker_set.observe())
        return command.instance_ids

    async def _take_out(self, key: str) -> None:
        try:
            gone = await self._settings.worker_set.remove(key)
        except SetRefused as reason:
            raise NotYet(str(reason)) from reason
        if not gone:
            raise NotYet("its pods are on their way out")

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """Nothing: Karpenter's nodes are in no group."""
        return ()

    def facts(self) -> Mapping[str, OfferingFacts]:
        """When each offering was last refused, as far as claims and waiting pods tell."""
        found = {}
        for offering in self._settings.offerings:
            row, name = self._settings.claims.row(offering), offering.offering_id
            if row is not None:
                at_s = max(row.at_s, self._refused_at_s.get(name, row.at_s))
                found[name] = OfferingFacts(refused_at_s=at_s, refusals=row.refusals)
            elif name in self._refused_at_s:
                found[name] = OfferingFacts(refused_at_s=self._refused_at_s[name])
        return found

    async def close(self) -> None:
        """Give up the worker set's watches; nodes stay."""
        await self._settings.worker_set.close()

    def _lists_at_s(self) -> float:
        at_s = (self._settings.nodes.current_at_s, self._settings.claims.current_at_s)
        if at_s[0] is None or at_s[1] is None:
            raise PoolUnavailable(f"pool {self._pool}: nodes and NodeClaims have not been listed yet")
        return min(at_s[0], at_s[1], self._clock.now_s())

    async def _node_pool(self) -> Json | None:
        try:
            with reading(f"NodePool {self._settings.node_pool}"):
                return await self._settings.kube.get(NODE_POOLS, self._settings.node_pool)
        except SetRefused:
            return None

    def _refused_reason(self, view: WorkerSetView, node_pool: Json | None) -> str | None:
        if view.refused_reason is not None:
            return view.refused_reason
        if view.desired is None:
            return "a worker set without a count makes Karpenter launch nothing"
        return refused_reason(node_pool, self._settings.node_pool)

    def _instances(self, view: WorkerSetView) -> tuple[tuple[Instance, ...], str | None]:
        """One instance a pod, and why the pool is refused where two live pods share a node.

        A node that has a live pod again is that pod's, not the one's that goes.
        """
        found: dict[str, Instance] = {}
        shared = None
        for pod in sorted(view.pods, key=lambda pod: (pod.terminating, pod.created_at_s, pod.uid)):
            node = self._node(pod)
            if node is None or node.instance_id not in found:
                instance = self._instance(pod, node)
            elif pod.terminating:
                continue
            else:
                shared = f"two worker pods share the node {node.name}: a replica needs whole nodes"
                instance = self._instance(pod, None)
            found[instance.instance_id] = instance
        waiting = {
            TOKEN_ID + each.token: self._waiting(each.token, each.offering_id, each.since_s) for each in view.waiting
        }
        return tuple((found | waiting).values()), shared

    def _node(self, pod: WorkerPod) -> NodeFacts | None:
        """The node of a pod, once it is known which instance it is."""
        node = self._settings.nodes.by_name(pod.node_name) if pod.node_name else None
        return node if node is not None and node.instance_id else None

    def _instance(self, pod: WorkerPod, node: NodeFacts | None) -> Instance:
        here = InstanceState.PENDING if node is None else InstanceState.RUNNING
        return Instance(
            instance_id=POD_ID + pod.uid if node is None else node.instance_id,
            replica_id=pod.replica_key,
            offering_id=self._asked_of(pod.offering_id) if node is None else _offering_id(node),
            state=InstanceState.SHUTTING_DOWN if pod.terminating else here,
            launched_at_s=pod.created_at_s,
            launch_token=pod.launch_token,
            node_name="" if node is None else node.name,
            node_uid="" if node is None else node.uid,
        )

    def _waiting(self, token: str, offering_id: str, since_s: float) -> Instance:
        return Instance(
            instance_id=TOKEN_ID + token,
            replica_id=token,
            offering_id=self._asked_of(offering_id),
            state=InstanceState.PENDING,
            launched_at_s=since_s,
            launch_token=token,
        )

    def _asked_of(self, offering_id: str) -> str:
        """A pod that answers no launch, and has no node yet, could come from anywhere: the first offering stands for it."""
        return offering_id or (self._settings.offerings[0].offering_id if self._settings.offerings else "")

    def _waiting_in_vain(self, view: WorkerSetView) -> Mapping[str, float]:
        unplaced = [pod for pod in view.pods if not pod.node_name and pod.unschedulable and not pod.terminating]
        over_s = self._settings.unschedulable_after_s
        late = [pod for pod in unplaced if self._clock.now_s() - pod.created_at_s > over_s]
        if not late or len(unplaced) <= self._under_way(view):
            return {}
        since_s = max(pod.created_at_s for pod in late) + over_s
        asked = {pod.offering_id for pod in late} if self._settings.placed else set()
        return {o.offering_id: since_s for o in self._settings.offerings if not asked or o.offering_id in asked}

    def _under_way(self, view: WorkerSetView) -> int:
        """Claims that may still take a waiting pod."""
        used = {pod.node_name for pod in view.pods if pod.node_name}
        claims = self._settings.claims.all()
        return sum(not (claim.deleting or claim.trouble) and claim.node_name not in used for claim in claims)

    def _claims_of(self, instances: Sequence[Instance]) -> Iterable[ClaimFacts]:
        names = {instance.node_name for instance in instances if instance.node_name}
        return [claim for claim in self._settings.claims.all() if claim.node_name in names and not claim.deleting]

    async def _mark(self, claim: ClaimFacts, key: str) -> None:
        if claim.annotations.get(ENDS_ANNOTATION) != key:
            until = datetime.fromtimestamp(self._clock.now_s() + MARK_VALID_S, UTC).isoformat()
            await self._annotate(claim, {ENDS_ANNOTATION: key, EXPIRY_ANNOTATION: until})

    async def _annotate(self, claim: ClaimFacts, annotations: Mapping[str, str | None]) -> None:
        try:
            await self._settings.kube.patch(NODE_CLAIMS, claim.name, {"metadata": {"annotations": dict(annotations)}})
        except NotFound:
            return
        except KubeError as error:
            raise PoolUnavailable(f"NodeClaim {claim.name}: {error}") from error

    async def _finish(self, view: WorkerSetView) -> None:
        """End the claims whose replica is gone."""
        there = {pod.replica_key for pod in view.pods} | {launch.token for launch in view.waiting}
        for claim in self._settings.claims.all():
            key = claim.annotations.get(ENDS_ANNOTATION)
            if key and key not in there and not claim.deleting:
                await self._end(claim)

    async def _end(self, claim: ClaimFacts) -> None:
        """Delete an empty claim; wait for pods that go; leave it to Karpenter where somebody else uses the node."""
        others = await self._others_on(claim)
        if self._is_void(claim) or any(not pod["metadata"].get("deletionTimestamp") for pod in others):
            await self._annotate(claim, {ENDS_ANNOTATION: None, EXPIRY_ANNOTATION: None})
        elif not others:
            try:
                await self._settings.kube.delete(NODE_CLAIMS, claim.name, uid=claim.uid)
            except NotFound:
                return
            except KubeError as error:
                raise PoolUnavailable(f"NodeClaim {claim.name}: {error}") from error

    def _is_void(self, claim: ClaimFacts) -> bool:
        node = self._settings.nodes.by_name(claim.node_name)
        if node is not None and node.labels.get(FLEET_LABEL, self._settings.fleet) != self._settings.fleet:
            return True
        try:
            until_s = datetime.fromisoformat(claim.annotations.get(EXPIRY_ANNOTATION, "")).timestamp()
        except ValueError:
            return True
        return until_s < self._clock.now_s()

    async def _others_on(self, claim: ClaimFacts) -> list[Json]:
        """Pods that use the claim's node, of all namespaces, asked for now: what looked empty may have been taken since."""
        with reading(f"pods of node {claim.node_name}"):
            listed = await self._settings.kube.list(PODS, field_selector=f"spec.nodeName={claim.node_name}")
        return [pod for pod in listed.items if _uses_node(pod)]


def _uses_node(pod: Json) -> bool:
    meta = pod["metadata"]
    daemon = any(owner.get("kind") in ("DaemonSet", "Node") for owner in meta.get("ownerReferences") or ())
    return not daemon and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _tokens(view: WorkerSetView) -> frozenset[str]:
    return frozenset({pod.launch_token for pod in view.pods} | {launch.token for launch in view.waiting}) - {""}


def _offering_id(node: NodeFacts) -> str:
    """Reserved capacity that is no capacity block is bought on demand."""
    bought = CapacityType.ON_DEMAND if node.capacity_type == "reserved" else node.capacity_type
    return f"{node.instance_type}/{node.zone}/{bought}"


def make(settings: object, *, pool: str, clock: Clock) -> KarpenterPool:
    """The actor of a NodePool; `TypeError` where the settings are another provider's."""
    if not isinstance(settings, KarpenterSettings):
        raise TypeError(f"pool {pool}: a Karpenter pool takes KarpenterSettings, not {type(settings).__name__}")
    return KarpenterPool(settings, pool=pool, clock=clock)
