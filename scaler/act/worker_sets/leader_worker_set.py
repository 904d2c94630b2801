"""LeaderWorkerSets: k pods a replica that live and die together, one object with `replicas: 1` for each replica.

One LeaderWorkerSet scales down from its highest ordinal only, so no victim could be named. The object that the settings name
is therefore the *template* and has `replicas: 0` itself (else it is refused); every replica is a copy of it.

* Up: a copy, named by a digest of the launch's token, so that a repeat finds it there; owned by the template; its pods ask
  for nodes of the launch's offering.
* Down: the token is noted on the template, so that no late repeat makes the copy again; the copy is deleted by its UID; done
  when no pod of it is left.

Invariants: a replica's key is its object's name, which no other launch ever has, and which its pods carry when the object is
gone already. A group that is made anew (a pod of it failed or was evicted) keeps the key; pods of the group before, while
they go, are a replica of their own (`<name>.before`), so that the new group is not taken for one that goes.
Source: LeaderWorkerSet API v1, labels as its controller sets them.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scaler.act.worker_sets.base import SetRefused, WaitingLaunch, WorkerPod, WorkerSetView
from scaler.act.worker_sets.calls import current_at_s, reading, writing
from scaler.act.worker_sets.counted import CountedObject, worker_pod
from scaler.act.worker_sets.notes import Launch, Notes
from scaler.act.worker_sets.pairing import ENDED
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.contract import LEADER_WORKER_SETS, Conflict, Json, NotFound
from scaler.kube.facts import TOKEN_ANNOTATION, PodFacts
from scaler.model.clock import Clock

TEMPLATE_LABEL = "headrace.dev/template"
OFFERING_ANNOTATION = "headrace.dev/offering"
NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
"""On every pod, its object's name."""
_BEFORE = ".before"
_NAME_LENGTH = 40
"""What is kept of the template's name: pods and StatefulSets add to it, and labels end at 63."""


class LeaderWorkerSets:
    """A `WorkerSet`; see the module's docstring."""

    def __init__(self, settings: WorkerSetSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._template = CountedObject(settings, resource=LEADER_WORKER_SETS, count=_replicas, clock=clock)
        self._empty_since_s: dict[str, float] = {}
        """UIDs of objects without live pods, and since when: a group that is made anew has its whole time to come."""

    async def observe(self) -> WorkerSetView:
        """All pods of all copies, and copies that have none yet.

        Raises:
            PoolUnavailable: no answer, or the pods were never listed.
        """
        listed_at_s = min(current_at_s(self._settings.pods), self._clock.now_s())
        copies = {each["metadata"]["name"]: each for each in await self._copies()}
        try:
            reason = await self._refused_reason(await self._template.found())
        except SetRefused as error:
            reason = str(error)
        pods = [pod for pod in self._settings.pods.all() if self._is_ours(pod, copies)]
        return WorkerSetView(
            listed_at_s=listed_at_s,
            pods=tuple(_worker_pod(pod, copies.get(pod.labels[NAME_LABEL])) for pod in pods),
            desired=sum(not _is_going(copy) for copy in copies.values()),
            waiting=tuple(self._waiting(copies, pods)),
            refused_reason=reason,
        )

    async def add(self, token: str, offering_id: str) -> bool:
        """A copy of the template, once a token.

        Raises:
            SetRefused: the template is not one, or the server will not take its copy.
        """
        template = await self._template.read()
        if self._template.notes_of(template).launch(token) is not None:
            return False
        if reason := _wrong_shape(template, self._settings):
            raise SetRefused(reason)
        copy = self._copy(template, token, offering_id)
        with writing(self._template.what):
            try:
                await self._settings.kube.create(LEADER_WORKER_SETS, copy, namespace=self._settings.namespace)
            except Conflict:
                return False
        return True

    async def remove(self, replica_key: str) -> bool:
        """Delete this copy; a launch's token stands for the copy that it made."""
        name = self._named(replica_key)
        copy = await self._copy_named(name)
        if copy is None:
            return not self._pods_of(name)
        if replica_key.endswith(_BEFORE):
            return not any(pod.deleting for pod in self._pods_of(name))
        if not _is_going(copy):
            await self._delete(copy)
        return False

    async def close(self) -> None:
        """Nothing is held."""

    async def _delete(self, copy: Json) -> None:
        meta = copy["metadata"]
        await self._note(_token(copy))
        with writing(f"LeaderWorkerSet {meta['name']}"):
            try:
                await self._settings.kube.delete(
                    LEADER_WORKER_SETS, meta["name"], namespace=meta["namespace"], uid=meta["uid"]
                )
            except NotFound:
                return

    async def _note(self, token: str) -> None:
        """On the template: this launch is over. Not where the template is gone: then nothing can be made of it."""

        def over(body: Json) -> Json | None:
            noted: Notes = self._template.notes_of(body)
            if not token or noted.launch(token) is not None:
                return None
            launch = Launch(token=token, offering_id="", at_s=self._clock.now_s(), pod_uid=self._name(token))
            return self._template.patch(body, noted.with_launch(launch))

        try:
            await self._template.change(over)
        except SetRefused:
            return

    async def _copies(self) -> Iterable[Json]:
        with reading(self._template.what):
            listed = await self._settings.kube.list(
                LEADER_WORKER_SETS,
                namespace=self._settings.namespace,
                label_selector=f"{TEMPLATE_LABEL}={self._settings.name}",
            )
        return listed.items

    async def _copy_named(self, name: str) -> Json | None:
        try:
            with reading(f"LeaderWorkerSet {name}"):
                found = await self._settings.kube.get(LEADER_WORKER_SETS, name, namespace=self._settings.namespace)
        except SetRefused:
            return None
        ours = (found["metadata"].get("labels") or {}).get(TEMPLATE_LABEL) == self._settings.name
        return found if ours else None

    def _name(self, token: str) -> str:
        return f"{self._stem}-{hashlib.sha256(token.encode()).hexdigest()[:10]}"

    def _named(self, replica_key: str) -> str:
        """The object's name; a key that is none is the token of a launch."""
        name = replica_key.removesuffix(_BEFORE)
        is_one = re.fullmatch(rf"{re.escape(self._stem)}-[0-9a-f]{{10}}", name)
        return name if is_one else self._name(replica_key)

    @property
    def _stem(self) -> str:
        return self._settings.name[:_NAME_LENGTH].rstrip("-")

    def _copy(self, template: Json, token: str, offering_id: str) -> Json:
        meta = template["metadata"]
        owner = {
            "apiVersion": LEADER_WORKER_SETS.api_version,
            "kind": LEADER_WORKER_SETS.kind,
            "name": meta["name"],
            "uid": meta["uid"],
        }
        return {
            "apiVersion": LEADER_WORKER_SETS.api_version,
            "kind": LEADER_WORKER_SETS.kind,
            "metadata": {
                "name": self._name(token),
                "labels": {**(meta.get("labels") or {}), TEMPLATE_LABEL: meta["name"]},
                "annotations": {
                    **{key: value for key, value in (meta.get("annotations") or {}).items() if _is_inherited(key)},
                    TOKEN_ANNOTATION: token,
                    OFFERING_ANNOTATION: offering_id,
                },
                "ownerReferences": [owner],
            },
            "spec": self._placed(template["spec"], self._settings.node_selectors.get(offering_id, {})),
        }

    def _placed(self, spec: Mapping[str, Any], selector: Mapping[str, str]) -> Json:
        """The template's spec for one replica, both of its pod templates bound to the offering's nodes."""
        group = dict(spec["leaderWorkerTemplate"])
        for name in ("leaderTemplate", "workerTemplate"):
            if group.get(name):
                group[name] = self._pod_template(group[name], selector)
        return {**spec, "replicas": 1, "leaderWorkerTemplate": group}

    def _pod_template(self, template: Mapping[str, Any], selector: Mapping[str, str]) -> Json:
        meta, spec = template.get("metadata") or {}, template.get("spec") or {}
        labels = {**(meta.get("labels") or {}), TEMPLATE_LABEL: self._settings.name}
        placed = {**spec, "nodeSelector": {**(spec.get("nodeSelector") or {}), **selector}}
        return {**template, "metadata": {**meta, "labels": labels}, "spec": placed}

    async def _refused_reason(self, template: Json) -> str | None:
        return _wrong_shape(template, self._settings) or await self._template.refused_reason(template)

    def _is_ours(self, pod: PodFacts, copies: Mapping[str, Json]) -> bool:
        """Of a copy, or of one that is gone while its pods are not."""
        name = pod.labels.get(NAME_LABEL, "")
        ours = name in copies or (name and pod.labels.get(TEMPLATE_LABEL) == self._settings.name)
        return bool(ours) and pod.namespace == self._settings.namespace and pod.phase not in ENDED

    def _pods_of(self, name: str) -> list[PodFacts]:
        pods = self._settings.pods.all()
        return [p for p in pods if p.namespace == self._settings.namespace and p.labels.get(NAME_LABEL) == name]

    def _waiting(self, copies: Mapping[str, Json], pods: Iterable[PodFacts]) -> Iterable[WaitingLaunch]:
        live = {pod.labels[NAME_LABEL] for pod in pods if not pod.deleting}
        empty = {name: copy for name, copy in copies.items() if name not in live and not _is_going(copy)}
        since_s = {copy["metadata"]["uid"]: self._clock.now_s() for copy in empty.values()}
        self._empty_since_s = {uid: self._empty_since_s.get(uid, now_s) for uid, now_s in since_s.items()}
        for copy in empty.values():
            yield WaitingLaunch(
                token=_token(copy),
                offering_id=_annotation(copy, OFFERING_ANNOTATION),
                since_s=self._empty_since_s[copy["metadata"]["uid"]],
            )


def _worker_pod(pod: PodFacts, copy: Json | None) -> WorkerPod:
    """Where the object goes or is gone, its pods go, whether they have been told yet or not."""
    name = pod.labels[NAME_LABEL]
    if copy is None:
        return replace(worker_pod(pod, name), terminating=True)
    launch = Launch(token=_token(copy), offering_id=_annotation(copy, OFFERING_ANNOTATION), at_s=pod.created_at_s)
    if _is_going(copy):
        return replace(worker_pod(pod, name, launch), terminating=True)
    return worker_pod(pod, name + _BEFORE if pod.deleting else name, launch)


def _is_inherited(annotation: str) -> bool:
    return not annotation.startswith(("headrace.dev/", "kubectl.kubernetes.io/"))


def _wrong_shape(template: Json, settings: WorkerSetSettings) -> str | None:
    if _replicas(template) != 0:
        return f"LeaderWorkerSet {settings} is the template of the replicas' own objects: set its replicas to 0"
    size = int(template["spec"]["leaderWorkerTemplate"].get("size") or 1)
    if size != settings.nodes_per_replica:
        return (
            f"LeaderWorkerSet {settings} has {size} pods a group where a replica has {settings.nodes_per_replica} nodes"
        )
    return None


def _replicas(body: Json) -> int:
    count = (body.get("spec") or {}).get("replicas")
    return 1 if count is None else int(count)


def _is_going(body: Json) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))


def _token(copy: Json) -> str:
    return _annotation(copy, TOKEN_ANNOTATION)


def _annotation(body: Json, key: str) -> str:
    return str((body["metadata"].get("annotations") or {}).get(key, ""))


def make(settings: WorkerSetSettings, *, clock: Clock) -> LeaderWorkerSets:
    """The worker set of a template of LeaderWorkerSets."""
    return LeaderWorkerSets(settings, clock=clock)
