"""What a fleet has left on nodes, worker sets, pods and NodeClaims, and how it is taken away.

Policy
* Found by what the objects themselves say, so that it works when the fleet's own object is gone: the fleet's label or
  `marked-by` on a node; launch tokens, which begin with the fleet's name, on worker sets and pods.
* Each is one compare-and-set patch on the version that was looked at: what somebody writes meanwhile is never lost.
* Nodes come last (`Marks.nodes`): their labels say where to look for the rest.
* A node whose interruption notice still runs keeps its mark: pods would be put on it for its last minutes.

Stays: counts, pods, copies of a LeaderWorkerSet with their label `headrace.dev/template` (it is in their pods' template too, and
a later fleet adopts by it), everything on trainers, and what other fleets or people have set: `headrace.dev/trainer`,
`headrace.dev/capacity-type`, a cordon that is not ours.
Non-goals: whether this may be done now (the command asks), and AWS (`release_instances`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scaler.act.karpenter import ENDS_ANNOTATION
from scaler.act.node_marks import marked_by, seconds, undoing
from scaler.act.release_step import Step
from scaler.act.worker_sets import notes
from scaler.act.worker_sets.leader_worker_set import OFFERING_ANNOTATION
from scaler.act.worker_sets.notes import LAUNCHES_ANNOTATION, REMOVALS_ANNOTATION, Notes
from scaler.act.worker_sets.replica_set_order import COST_ANNOTATION, HIGHEST_MARK, cost
from scaler.kube.contract import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NODE_CLAIMS,
    NODES,
    PODS,
    RAY_CLUSTERS,
    Denied,
    Json,
    KubeApi,
    NotFound,
    Resource,
)
from scaler.kube.facts import (
    DEADLINE_ANNOTATION,
    DRAIN_TAINT,
    EXPIRY_ANNOTATION,
    FLEET_LABEL,
    NOTICE_ANNOTATION,
    POOL_LABEL,
    TOKEN_ANNOTATION,
    NodeFacts,
)
from scaler.kube.reading import node_facts
from scaler.model.interruption import BINDING
from scaler.model.notice_file import parse_notice

_WORKER_SETS = (DEPLOYMENTS, LEADER_WORKER_SETS, RAY_CLUSTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """The fleet. `worker_namespaces`: where its spec says that workers are, besides its own namespace."""

    namespace: str
    name: str
    worker_namespaces: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """As nodes and instances carry it."""
        return f"{self.namespace}.{self.name}"

    def launched(self, token: str) -> bool:
        """Whether a launch token is of a fleet of this name."""
        return token.startswith(f"{self.name}.")


@dataclass(slots=True, kw_only=True)
class Marks:
    """What was found."""

    others: list[Step] = field(default_factory=list)
    nodes: list[Step] = field(default_factory=list)
    instance_ids: set[str] = field(default_factory=set)
    """Of the fleet's nodes."""
    left: list[str] = field(default_factory=list)
    """What is not taken away, and why."""


async def look(kube: KubeApi, who: Who, *, now_s: float) -> Marks:
    """Everything of the fleet's in the cluster.

    Raises:
        KubeError: a list is not to be had; kinds that are not served, or not allowed, are told in `left` instead.
    """
    found = Marks()
    nodes = [node for node in map(node_facts, (await kube.list(NODES)).items) if node and _concerns(node, who)]
    names = {node.name for node in nodes if node.labels.get(FLEET_LABEL) == who.key}
    pods = [pod async for page in kube.pages(PODS) for pod in page.items if _has_marks(pod)]
    places = {who.namespace, *who.worker_namespaces, *(_place(pod) for pod in pods if _node_of(pod) in names)}
    for resource in _WORKER_SETS:
        for body in await _listed(kube, resource, found):
            if _place(body) in places:
                found.others += _of_worker_set(kube, resource, body, who)
    noted = {uid for pod in pods if _place(pod) in places for uid in [pod["metadata"]["uid"]] if _told(pod, who)}
    for pod in pods:
        if _place(pod) in places and (pod["metadata"]["uid"] in noted or _node_of(pod) in names):
            found.others += _of_pod(kube, pod, who)
    for claim in await _listed(kube, NODE_CLAIMS, found):
        if (claim.get("status") or {}).get("nodeName") in names:
            found.others += _of_claim(kube, claim)
    for node in nodes:
        _of_node(kube, node, who, found, now_s)
    return found


async def _listed(kube: KubeApi, resource: Resource, found: Marks) -> Sequence[Json]:
    try:
        return (await kube.list(resource)).items
    except NotFound:
        return ()
    except Denied as error:
        found.left.append(f"{resource.plural} were not looked at: {error}")
        return ()


def _of_worker_set(kube: KubeApi, resource: Resource, body: Json, who: Who) -> Iterator[Step]:
    changed, ours = body, False
    for scope in _scopes(body):
        if any(who.launched(launch.token) for launch in notes.read(body, scope).launches):
            ours = True
            patched = notes.annotations(changed, scope, Notes())
            changed = {**changed, "metadata": {**changed["metadata"], "annotations": _merged(changed, patched)}}
    gone: dict[str, str | None] = {}
    if ours:
        after = changed["metadata"]["annotations"]
        gone = {key: after.get(key) for key in (LAUNCHES_ANNOTATION, REMOVALS_ANNOTATION) if _annotation(body, key)}
    if who.launched(_annotation(body, TOKEN_ANNOTATION)):
        gone |= {key: None for key in (TOKEN_ANNOTATION, OFFERING_ANNOTATION) if _annotation(body, key)}
    if gone:
        yield _step(kube, resource, body, {"annotations": gone}, sorted(gone))


def _of_pod(kube: KubeApi, pod: Json, who: Who) -> Iterator[Step]:
    gone: set[str] = set()
    if who.launched(_annotation(pod, TOKEN_ANNOTATION)):
        gone.add(TOKEN_ANNOTATION)
    if _annotation(pod, COST_ANNOTATION) and cost(pod) <= HIGHEST_MARK:
        gone |= {key for key in (COST_ANNOTATION, EXPIRY_ANNOTATION) if _annotation(pod, key)}
    if gone:
        yield _step(kube, PODS, pod, {"annotations": dict.fromkeys(gone)}, sorted(gone))


def _of_claim(kube: KubeApi, claim: Json) -> Iterator[Step]:
    if _annotation(claim, ENDS_ANNOTATION):
        gone = [key for key in (ENDS_ANNOTATION, EXPIRY_ANNOTATION) if _annotation(claim, key)]
        yield _step(kube, NODE_CLAIMS, claim, {"annotations": dict.fromkeys(gone)}, gone)


def _of_node(kube: KubeApi, node: NodeFacts, who: Who, found: Marks, now_s: float) -> None:
    mine = node.labels.get(FLEET_LABEL) == who.key
    if mine:
        found.instance_ids |= {node.instance_id} - {""}
    ours = marked_by(node) == who.key
    if ours and _is_noticed(node, now_s):
        goes_at = node.annotations.get(DEADLINE_ANNOTATION)
        found.left.append(f"Node {node.name} keeps its mark: it was noticed, and goes at {goes_at}")
        return
    patch: Json = (undoing(node) if ours else None) or {"metadata": {}}
    metadata, spec = patch["metadata"], patch.get("spec") or {}
    if mine:
        owner = {key: None for key in (FLEET_LABEL, POOL_LABEL) if key in node.labels}
        metadata["labels"] = {**metadata.get("labels", {}), **owner}
    taken = [*_of_spec(spec), *sorted({**metadata.get("labels", {}), **metadata.get("annotations", {})})]
    if taken:
        body = {"metadata": {"name": node.name, "uid": node.uid, "resourceVersion": node.resource_version}}
        parts = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
        found.nodes.append(_step(kube, NODES, body, parts, taken, spec=spec))


def _of_spec(spec: Mapping[str, Any]) -> Iterator[str]:
    if "taints" in spec:
        yield f"taint {DRAIN_TAINT}"
    if "unschedulable" in spec:
        yield "cordon"


def _is_noticed(node: NodeFacts, now_s: float) -> bool:
    """Whether somebody else has said that it goes, at a time that is still to come."""
    try:
        notice = parse_notice(node.annotations.get(NOTICE_ANNOTATION, ""))
    except ValueError:
        return False
    until_s = seconds(node.annotations.get(DEADLINE_ANNOTATION, ""), never_s=0.0)
    return notice.kind in BINDING and until_s > now_s


def _step(
    kube: KubeApi,
    resource: Resource,
    body: Json,
    metadata: Mapping[str, Any],
    taken: Iterable[str],
    *,
    spec: Mapping[str, Any] | None = None,
) -> Step:
    meta = body["metadata"]
    place = meta.get("namespace")
    patch: Json = {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], **metadata}}
    if spec:
        patch["spec"] = dict(spec)
    named = f"{place}/{meta['name']}" if place else meta["name"]
    return Step(
        subject=f"{resource.kind} {named}",
        takes=tuple(taken),
        act=partial(kube.patch, resource, meta["name"], patch, namespace=place),
    )


def _concerns(node: NodeFacts, who: Who) -> bool:
    return who.key in (node.labels.get(FLEET_LABEL), marked_by(node))


def _has_marks(pod: Json) -> bool:
    return bool(_annotation(pod, TOKEN_ANNOTATION) or _annotation(pod, COST_ANNOTATION))


def _told(pod: Json, who: Who) -> bool:
    return who.launched(_annotation(pod, TOKEN_ANNOTATION))


def _scopes(body: Json) -> set[str]:
    found: set[str] = set()
    for key in (LAUNCHES_ANNOTATION, REMOVALS_ANNOTATION):
        try:
            read = json.loads(_annotation(body, key) or "{}")
        except ValueError:
            continue
        found |= set(read) if isinstance(read, dict) else set()
    return found


def _merged(body: Json, changes: Mapping[str, str | None]) -> dict[str, str]:
    whole = {**(body["metadata"].get("annotations") or {}), **changes}
    return {key: value for key, value in whole.items() if value is not None}


def _annotation(body: Json, key: str) -> str:
    return str((body["metadata"].get("annotations") or {}).get(key, ""))


def _place(body: Json) -> str:
    return str(body["metadata"].get("namespace", ""))


def _node_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName", ""))
