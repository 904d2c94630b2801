"""A Deployment: one pod a replica, one count.

* Up: count plus one, with the launch's token noted in the same write; the pod that comes is told the token.
* Down, in steps that any controller can take up: the named pod gets a deletion cost that nobody else has; at a later call, once
  no other pod could go instead (`replica_set_order`), the count falls by one and the removal is noted in the same write;
  it is done when that very pod, by its UID, is gone. Where the ReplicaSet took another pod all the same, or one was lost at
  that moment, the count rises again by one and the removal begins anew.
* While two ReplicaSets hold pods (a rollout) nothing is taken out: the old one would choose by itself.

Invariants: a pod's removal lowers the count once; our costs are void after `COST_VALID_S` and are then taken away.
Non-goals: placement. A Deployment's pods are all alike; who wants an offering served uses a Deployment for each.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from scaler.act.base import NotYet
from scaler.act.worker_sets.base import SetRefused, WorkerSetView
from scaler.act.worker_sets.calls import current_at_s, reading, writing
from scaler.act.worker_sets.counted import CountedObject, refused
from scaler.act.worker_sets.notes import Launch, Removal
from scaler.act.worker_sets.pairing import VOID_AFTER_S, counts, pair
from scaler.act.worker_sets.replica_set_order import (
    COST_ANNOTATION,
    HIGHEST_MARK,
    active,
    cost,
    ended,
    next_mark,
    objection,
)
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.contract import DEPLOYMENTS, PODS, REPLICA_SETS, Conflict, Json, KubeError, NotFound
from scaler.kube.facts import EXPIRY_ANNOTATION, PodFacts
from scaler.model.clock import Clock

COST_VALID_S = 120.0
"""A removal that was begun and not carried out in this time was given up: its pod is no victim any more."""
_REVISION = "deployment.kubernetes.io/revision"


class Deployment:
    """A `WorkerSet`; see the module's docstring. A replica's key is its pod's UID."""

    def __init__(self, settings: WorkerSetSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._object = CountedObject(settings, resource=DEPLOYMENTS, count=_replicas, clock=clock)
        self._turn = asyncio.Lock()
        """Removals take turns: of two at once each would give its pod the cost that nobody has yet."""

    async def observe(self) -> WorkerSetView:
        """All pods; also tells new pods their tokens, and takes old costs away.

        Raises:
            PoolUnavailable: no answer, or the pods were never listed.
        """
        listed_at_s = min(current_at_s(self._settings.pods), self._clock.now_s())
        try:
            body = await self._object.found()
        except SetRefused as reason:
            return refused(str(reason), listed_at_s)
        return await self._view(body, listed_at_s)

    async def _view(self, body: Json, listed_at_s: float) -> WorkerSetView:
        sets = await self._replica_sets(body)
        body = await self._object.latest(body)
        pods = self._pods(sets)
        noted = self._object.notes_of(body)
        live = [pod for pod in pods if counts(pod)]
        pairing = pair(
            noted,
            pods,
            self._object.precedence,
            candidates=[pod for pod in live if sets and pod.owner_uid == sets[-1]["metadata"]["uid"]],
            missing=max(0, _replicas(body) - len(live)),
            now_s=self._clock.now_s(),
        )
        await self._object.settle(pairing, self._forgotten(noted.removals, pods))
        await self._clear_old_costs(pods, noted.going)
        reason = await self._refused_reason(body)
        return self._object.view(body, pods, pairing, listed_at_s=listed_at_s, refused_reason=reason)

    async def add(self, token: str, offering_id: str) -> bool:
        """Count plus one, once a token."""
        return await self._object.add(token, offering_id, lambda body: {"replicas": _replicas(body) + 1})

    async def remove(self, replica_key: str) -> bool:
        """The next step of taking this pod out, or a launch that waits; see the module's docstring."""
        async with self._turn:
            return await self._remove(replica_key)

    async def _remove(self, replica_key: str) -> bool:
        body = await self._object.read()
        noted = self._object.notes_of(body)
        pods = await self._listed(body)
        if launch := noted.launch(replica_key):
            return await self._withdraw(launch, pods)
        victim = next((pod for pod in pods if pod["metadata"]["uid"] == replica_key and not ended(pod)), None)
        if victim is None:
            await self._forget(replica_key)
            return True
        if not active(victim):
            return False
        if replica_key in noted.going:
            await self._check_that_it_goes(body, victim, pods)
            return False
        others = [pod for pod in pods if pod is not victim and active(pod)]
        if cost(victim) > HIGHEST_MARK or any(cost(pod) == cost(victim) for pod in others):
            # The count falls at a later call: the controller may see the pod change after the count.
            await self._mark(victim, next_mark(others))
        else:
            await self._begin(victim, [pod for pod in others if pod["metadata"]["uid"] not in noted.going])
        return False

    async def close(self) -> None:
        """Nothing is held."""

    async def _begin(self, victim: Json, others: Sequence[Json]) -> None:
        """Lower the count if that takes the marked victim and nobody else."""
        owners = {_owner_uid(pod) for pod in (victim, *others)}
        if len(owners) > 1:
            raise NotYet("a rollout is under way: which pod would go is not ours to say")
        if reason := objection(victim, others):
            raise NotYet(reason)
        await self._lower(victim)

    async def _lower(self, victim: Json) -> None:
        meta = victim["metadata"]
        removal = Removal(pod_uid=meta["uid"], pod_name=meta["name"], at_s=self._clock.now_s())

        def one_less(body: Json) -> Json | None:
            noted = self._object.notes_of(body)
            if removal.pod_uid in noted.going or _replicas(body) < 1:
                return None
            kept = noted.with_removal(removal)
            return self._object.patch(body, kept, {"replicas": _replicas(body) - 1})

        await self._object.change(one_less)

    async def _check_that_it_goes(self, body: Json, victim: Json, pods: Sequence[Json]) -> None:
        """Where as many pods are left as the count asks for and ours is one of them, another one went."""
        if sum(map(active, pods)) > _replicas(body):
            return
        uid = victim["metadata"]["uid"]

        def one_more(found: Json) -> Json | None:
            noted = self._object.notes_of(found)
            if uid not in noted.going:
                return None
            return self._object.patch(found, noted.without_removals({uid}), {"replicas": _replicas(found) + 1})

        await self._object.change(one_more)
        raise NotYet(
            "another pod went instead of the named one: the count is raised again, and the removal begins anew"
        )

    async def _withdraw(self, launch: Launch, pods: Sequence[Json]) -> bool:
        """Give up a launch whose pod has not come."""
        live = sum(map(active, pods))
        if launch.pod_uid:
            raise NotYet("its pod has come meanwhile")

        def one_less(body: Json) -> Json | None:
            noted = self._object.notes_of(body)
            if launch not in noted.waiting or _replicas(body) <= live:
                return None
            kept = noted.without_launches({launch.token})
            return self._object.patch(body, kept, {"replicas": _replicas(body) - 1})

        if await self._object.change(one_less) is None:
            raise NotYet("its pod has come meanwhile")
        return True

    async def _forget(self, pod_uid: str) -> None:
        def without(body: Json) -> Json | None:
            noted = self._object.notes_of(body)
            if pod_uid not in noted.going:
                return None
            return self._object.patch(body, noted.without_removals({pod_uid}))

        await self._object.change(without)

    def _forgotten(self, removals: Sequence[Removal], pods: Sequence[PodFacts]) -> frozenset[str]:
        """Removals whose pods are gone and that nobody asks for any more."""
        there, now_s = {pod.uid for pod in pods}, self._clock.now_s()
        over = (known for known in removals if known.pod_uid not in there and now_s - known.at_s > VOID_AFTER_S)
        return frozenset(removal.pod_uid for removal in over)

    async def _mark(self, pod: Json, to: int) -> None:
        until = datetime.fromtimestamp(self._clock.now_s() + COST_VALID_S, UTC).isoformat()
        marks = {COST_ANNOTATION: str(to), EXPIRY_ANNOTATION: until}
        meta = pod["metadata"]
        # Where the pod has changed or gone meanwhile, the next call finds it as it is then.
        with writing(f"pod {meta['name']}"), suppress(Conflict, NotFound):
            await self._patch_pod(meta["name"], meta["resourceVersion"], marks)

    async def _clear_old_costs(self, pods: Sequence[PodFacts], going: frozenset[str]) -> None:
        now_s = self._clock.now_s()
        old = [pod for pod in pods if counts(pod) and pod.uid not in going and _mark_is_void(pod, now_s)]
        await asyncio.gather(*(self._clear(pod) for pod in old))

    async def _clear(self, pod: PodFacts) -> None:
        marks = {COST_ANNOTATION: None, EXPIRY_ANNOTATION: None}
        with suppress(KubeError):  # tried again with the next list
            await self._patch_pod(pod.name, pod.resource_version, marks)

    async def _patch_pod(self, name: str, version: str, marks: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"resourceVersion": version, "annotations": marks}}
        await self._settings.kube.patch(PODS, name, patch, namespace=self._settings.namespace)

    async def _refused_reason(self, body: Json) -> str | None:
        if self._settings.nodes_per_replica != 1:
            return f"{self._object.what} has one pod a replica; several nodes a replica need a leader_worker_set"
        return await self._object.refused_reason(body)

    async def _replica_sets(self, body: Json) -> list[Json]:
        """Those of this Deployment, by UID, the newest last."""
        with reading(self._object.what):
            listed = await self._settings.kube.list(
                REPLICA_SETS, namespace=self._settings.namespace, label_selector=_selector(body)
            )
        ours = [each for each in listed.items if _owner_uid(each) == body["metadata"]["uid"]]
        return sorted(ours, key=_revision)

    def _pods(self, sets: Sequence[Json]) -> list[PodFacts]:
        return [pod for each in sets for pod in self._settings.pods.owned_by(each["metadata"]["uid"])]

    async def _listed(self, body: Json) -> list[Json]:
        """All of its pods, asked for now: who goes depends on what each of them is at this moment."""
        uids = {each["metadata"]["uid"] for each in await self._replica_sets(body)}
        with reading(self._object.what):
            listed = await self._settings.kube.list(
                PODS, namespace=self._settings.namespace, label_selector=_selector(body)
            )
        return [pod for pod in listed.items if _owner_uid(pod) in uids]


def make(settings: WorkerSetSettings, *, clock: Clock) -> Deployment:
    """The worker set of a Deployment."""
    return Deployment(settings, clock=clock)


def _replicas(body: Json) -> int:
    count = (body.get("spec") or {}).get("replicas")
    return 1 if count is None else int(count)


def _owner_uid(body: Json) -> str:
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _revision(replica_set: Json) -> int:
    raw = (replica_set["metadata"].get("annotations") or {}).get(_REVISION, "0")
    return int(raw) if raw.isdecimal() else 0


def _selector(body: Json) -> str:
    selector: Mapping[str, Any] = (body.get("spec") or {}).get("selector") or {}
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return ",".join([*equal, *(_term(each) for each in selector.get("matchExpressions") or ())])


def _term(expression: Mapping[str, Any]) -> str:
    key, values = expression["key"], ",".join(expression.get("values") or ())
    terms: dict[str, str] = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    return terms[str(expression["operator"])]


def _mark_is_void(pod: PodFacts, now_s: float) -> bool:
    """Our cost, and past its expiry or without one."""
    raw = pod.annotations.get(COST_ANNOTATION, "0")
    if not raw.lstrip("-").isdecimal() or int(raw) > HIGHEST_MARK:
        return False
    try:
        return datetime.fromisoformat(pod.annotations.get(EXPIRY_ANNOTATION, "")).timestamp() < now_s
    except ValueError:
        return True
