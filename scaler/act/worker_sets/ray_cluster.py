"""A worker group of a RayCluster: one pod a replica, one count, and the list of workers to delete.

* Up: `replicas` plus one, with the launch's token noted in the same write.
* Down: the named pod into `workersToDelete`, `replicas` minus one, the removal noted: one write. The KubeRay operator deletes
  named pods first and then as many others, whichever comes first, as there are more than `replicas` (it counts pods that
  are on their way out, but not named ones). So the count falls only together with a name, names stay until their pods
  are gone, and then they are taken out of the list: the operator never does that itself.
* Refused: Ray's own autoscaler, several hosts a replica, a suspended group or cluster.

Invariants: the count is never below the group's pods without the named ones, by our doing; `minReplicas` and `maxReplicas`
hold. Non-goals: placement; a group's pods are all alike.
Source: KubeRay 1.5, `reconcilePods` as observed on a running operator, and its RayCluster reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.act.base import NotYet
from scaler.act.worker_sets.base import SetRefused, WorkerSetView
from scaler.act.worker_sets.calls import current_at_s, reading
from scaler.act.worker_sets.counted import CountedObject, refused
from scaler.act.worker_sets.notes import Launch, Notes, Removal
from scaler.act.worker_sets.pairing import VOID_AFTER_S, Pairing, counts, pair
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.contract import PODS, RAY_CLUSTERS, Json
from scaler.kube.facts import PodFacts
from scaler.model.clock import Clock

GROUP_LABEL = "ray.io/group"
CLEARED_AFTER_S = 10.0
"""A name stays at least this long: the operator may learn of its pod's end later than we do, if it was not by its doing."""
WITHDRAWN_AFTER_S = VOID_AFTER_S
"""A launch whose pod has not been made after this long is held up (a quota, an admission hook) and may be given up: before,
the operator could be making it, and would then delete another one for it."""


class RayWorkerGroup:
    """A `WorkerSet`; see the module's docstring. A replica's key is its pod's UID."""

    def __init__(self, settings: WorkerSetSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._object = CountedObject(settings, resource=RAY_CLUSTERS, count=self._replicas, clock=clock)

    async def observe(self) -> WorkerSetView:
        """All worker pods of the group; also tells new ones their tokens, and takes done names out of the list.

        Raises:
            PoolUnavailable: no answer, or the pods were never listed.
        """
        listed_at_s = min(current_at_s(self._settings.pods), self._clock.now_s())
        try:
            body = await self._object.found()
            reason = self._wrong_shape(body) or await self._object.refused_reason(body)
        except SetRefused as error:
            return refused(str(error), listed_at_s)
        body = await self._object.latest(body)
        pods = self._pods(body)
        pairing = self._pair(body, pods)
        if reason is None:
            await self._object.settle(pairing, frozenset())
            await self._clear_done()
        return self._object.view(body, pods, pairing, listed_at_s=listed_at_s, refused_reason=reason)

    async def add(self, token: str, offering_id: str) -> bool:
        """`replicas` plus one, once a token. `SetRefused` at `maxReplicas`."""
        return await self._object.add(token, offering_id, self._one_more)

    async def remove(self, replica_key: str) -> bool:
        """The next step of taking this pod out, or a launch that waits; see the module's docstring."""
        body = await self._object.read()
        if reason := self._wrong_shape(body):
            raise SetRefused(reason)
        noted = self._object.notes_of(body)
        pods = await self._listed(body)
        if launch := noted.launch(replica_key):
            return await self._withdraw(launch, pods)
        victim = next((pod for pod in pods if pod["metadata"]["uid"] == replica_key), None)
        if victim is None:
            await self._clear_done()
            return True
        if replica_key not in noted.going:
            await self._name(victim)
        return False

    async def close(self) -> None:
        """Nothing is held."""

    async def _name(self, victim: Json) -> None:
        meta = victim["metadata"]
        removal = Removal(pod_uid=meta["uid"], pod_name=meta["name"], at_s=self._clock.now_s())

        def one_less(body: Json) -> Json | None:
            noted, group = self._object.notes_of(body), self._group(body)
            if removal.pod_uid in noted.going or meta["name"] in _named(group):
                return None
            self._check_floor(group)
            named = [*_named(group), meta["name"]]
            return self._patch(body, noted.with_removal(removal), replicas=self._replicas(body) - 1, named=named)

        await self._object.change(one_less)

    def _check_floor(self, group: Mapping[str, Any]) -> None:
        least = int(group.get("minReplicas") or 0)
        if int(group.get("replicas") or 0) <= least:
            raise SetRefused(f"{self._what} is at its minReplicas of {least}: a pod that is taken out would come again")

    def _one_more(self, body: Json) -> Mapping[str, Any]:
        if reason := self._wrong_shape(body):
            raise SetRefused(reason)
        replicas, group = self._replicas(body), self._group(body)
        most = group.get("maxReplicas")
        if most is not None and replicas >= int(most):
            raise SetRefused(f"{self._what} is at its maxReplicas of {most}")
        return self._groups(body, replicas=replicas + 1, named=_named(group))

    async def _withdraw(self, launch: Launch, pods: Sequence[Json]) -> bool:
        if launch.pod_uid:
            raise NotYet("its pod has come meanwhile")
        if self._clock.now_s() - launch.at_s < WITHDRAWN_AFTER_S:
            raise NotYet("its pod may be on its way: another one would be deleted for it")

        def one_less(body: Json) -> Json | None:
            noted = self._object.notes_of(body)
            named = _named(self._group(body))
            held = sum(pod["metadata"]["name"] not in named for pod in pods)
            if launch not in noted.waiting or self._replicas(body) <= held:
                return None
            kept = noted.without_launches({launch.token})
            return self._patch(body, kept, replicas=self._replicas(body) - 1, named=named)

        if await self._object.change(one_less) is None:
            raise NotYet("its pod has come meanwhile")
        return True

    async def _clear_done(self) -> None:
        """Take names and notes away whose pods are gone, by a list made now: a name that goes early costs another pod."""
        body = await self._object.read()
        before, named = self._object.notes_of(body), _named(self._group(body))
        if not (before.removals or named):
            return
        listed = await self._listed(body)
        there = {pod["metadata"]["uid"] for pod in listed}
        recent_s = self._clock.now_s() - CLEARED_AFTER_S
        done = {removal.pod_uid for removal in before.removals if removal.at_s <= recent_s} - there
        kept = {pod["metadata"]["name"] for pod in listed}
        kept |= {removal.pod_name for removal in before.removals if removal.pod_uid not in done}
        over = {name for name in named if name not in kept}

        def cleared(found: Json) -> Json | None:
            noted = self._object.notes_of(found).without_removals(done)
            left = [name for name in _named(self._group(found)) if name not in over]
            if noted == self._object.notes_of(found) and left == _named(self._group(found)):
                return None
            return self._patch(found, noted, replicas=self._replicas(found), named=left)

        if done or over:
            await self._object.change(cleared)

    def _patch(self, body: Json, noted: Notes, *, replicas: int, named: Sequence[str]) -> Json:
        return self._object.patch(body, noted, self._groups(body, replicas=replicas, named=named))

    def _groups(self, body: Json, *, replicas: int, named: Sequence[str]) -> Mapping[str, Any]:
        """The spec's list of groups, ours changed; a merge patch replaces lists whole."""
        group = self._group(body)
        strategy = {**(group.get("scaleStrategy") or {}), "workersToDelete": list(named)}
        ours = {**group, "replicas": replicas, "scaleStrategy": strategy}
        groups = body["spec"]["workerGroupSpecs"]
        return {"workerGroupSpecs": [ours if each is group else each for each in groups]}

    def _pair(self, body: Json, pods: Sequence[PodFacts]) -> Pairing:
        named = _named(self._group(body))
        held = sum(pod.name not in named for pod in pods)
        return pair(
            self._object.notes_of(body),
            pods,
            self._object.precedence,
            candidates=[pod for pod in pods if counts(pod) and pod.name not in named],
            missing=max(0, self._replicas(body) - held),
            now_s=self._clock.now_s(),
        )

    def _wrong_shape(self, body: Json) -> str | None:
        group = self._group(body)
        if not group:
            return f"RayCluster {self._settings} has no worker group {self._settings.group!r}"
        if self._settings.nodes_per_replica != 1 or int(group.get("numOfHosts") or 1) != 1:
            return f"{self._what} has several hosts a replica; use a leader_worker_set for those"
        if (body.get("spec") or {}).get("suspend") or group.get("suspend"):
            return f"{self._what} is suspended"
        return None

    @property
    def _what(self) -> str:
        return f"group {self._settings.group} of RayCluster {self._settings}"

    def _group(self, body: Json) -> Mapping[str, Any]:
        groups = (body.get("spec") or {}).get("workerGroupSpecs") or ()
        return next((each for each in groups if each.get("groupName") == self._settings.group), {})

    def _replicas(self, body: Json) -> int:
        """What the operator makes of the count: it holds it within the group's bounds."""
        group = self._group(body)
        least, most = int(group.get("minReplicas") or 0), group.get("maxReplicas")
        replicas = max(least, int(group.get("replicas") or 0))
        return replicas if most is None else min(replicas, int(most))

    def _pods(self, body: Json) -> list[PodFacts]:
        owned = self._settings.pods.owned_by(body["metadata"]["uid"])
        return [pod for pod in owned if pod.labels.get(GROUP_LABEL) == self._settings.group]

    async def _listed(self, body: Json) -> list[Json]:
        selector = f"{GROUP_LABEL}={self._settings.group}"
        with reading(self._what):
            listed = await self._settings.kube.list(PODS, namespace=self._settings.namespace, label_selector=selector)
        uid = body["metadata"]["uid"]
        return [
            pod for pod in listed.items if uid in {ref["uid"] for ref in pod["metadata"].get("ownerReferences") or ()}
        ]


def _named(group: Mapping[str, Any]) -> list[str]:
    return list((group.get("scaleStrategy") or {}).get("workersToDelete") or ())


def make(settings: WorkerSetSettings, *, clock: Clock) -> RayWorkerGroup:
    """The worker set of a RayCluster's worker group. `ValueError` where no group is named."""
    if not settings.group:
        raise ValueError(f"RayCluster {settings}: name the worker group")
    return RayWorkerGroup(settings, clock=clock)
