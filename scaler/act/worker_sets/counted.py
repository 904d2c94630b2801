"""Writes to an object that holds a count: read, compare, set, with what it notes, in one patch.

Policy: a write carries the `resourceVersion` that was read; where somebody was quicker it is made anew from what is there
now, a few times. Writes of one controller to one object take turns, so that they do not refuse each other.
Invariants: a count is never written as a number of ours, only as what was read plus or minus one.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from scaler.act.base import PoolUnavailable
from scaler.act.worker_sets import notes
from scaler.act.worker_sets.base import SetRefused, WaitingLaunch, WorkerPod, WorkerSetView
from scaler.act.worker_sets.calls import reading, writing
from scaler.act.worker_sets.notes import Launch, Notes
from scaler.act.worker_sets.owners import marked_owner, other_owner
from scaler.act.worker_sets.pairing import ENDED, Pairing, Precedence, counts
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.kube.contract import PODS, Conflict, Json, KubeError, Resource
from scaler.kube.facts import TOKEN_ANNOTATION, PodFacts
from scaler.model.clock import Clock

log = structlog.get_logger()

MAX_WAITING = 512
"""Launches that may wait for pods at once: they must fit into an annotation, and more only queue up elsewhere."""
_TRIES = 6


class CountedObject:
    """One object with a count of replicas and notes."""

    def __init__(
        self,
        settings: WorkerSetSettings,
        *,
        resource: Resource,
        count: Callable[[Json], int],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._resource = resource
        self._count = count
        self._clock = clock
        self._turn = asyncio.Lock()
        self.precedence = Precedence()
        self._written: int | None = None
        """The count as we wrote or found it last."""
        self._done: Json | None = None
        """The object as we wrote it last, since it was found last."""

    @property
    def what(self) -> str:
        """As messages name it."""
        return f"{self._resource.kind} {self._settings}"

    async def read(self) -> Json:
        """The object. `SetRefused` where there is none, `PoolUnavailable` where that is not known."""
        with reading(self.what):
            return await self._settings.kube.get(
                self._resource, self._settings.name, namespace=self._settings.namespace
            )

    async def found(self) -> Json:
        """As `read`; says where somebody else has set the count since we wrote or found it. We go on from what is there."""
        async with self._turn:
            body = await self.read()
            self._done = None
        count = self._count(body)
        if self._written not in (None, count):
            log.warning("worker_set_counted_by_others", object=self.what, was=self._written, found=count)
        self._written = count
        return body

    async def latest(self, body: Json) -> Json:
        """What was found, or what we have written since: pods that are listed next are not ahead of it by our own doing."""
        async with self._turn:
            return self._done or body

    def notes_of(self, body: Json) -> Notes:
        """Its notes."""
        return notes.read(body, self._settings.group)

    def patch(self, body: Json, kept: Notes, spec: Mapping[str, Any] | None = None) -> Json:
        """A patch that puts notes, and a spec, there."""
        patch: Json = {"metadata": {"annotations": notes.annotations(body, self._settings.group, kept)}}
        return {**patch, "spec": dict(spec)} if spec else patch

    async def change(self, make: Callable[[Json], Json | None]) -> Json | None:
        """Compare and set: `make` gives the patch for what is there now, or None for nothing to do.

        Returns:
            The object as written; None where nothing was.

        Raises:
            PoolUnavailable: no answer, or others wrote at every try.
            SetRefused: the server will not take it, or `make` said so.
        """
        settings = self._settings
        async with self._turn:
            for _ in range(_TRIES):
                body = await self.read()
                patch = make(body)
                if patch is None:
                    return None
                patch["metadata"]["resourceVersion"] = body["metadata"]["resourceVersion"]
                with writing(self.what), suppress(Conflict):
                    done = await settings.kube.patch(self._resource, settings.name, patch, namespace=settings.namespace)
                    self._written, self._done = self._count(done), done
                    return done
        raise PoolUnavailable(f"{self.what} was written by others {_TRIES} times in between")

    async def add(self, token: str, offering_id: str, up: Callable[[Json], Mapping[str, Any]]) -> bool:
        """One replica more, by `up`'s spec; False where the token is noted. `SetRefused` where somebody else owns the count."""

        def one_more(body: Json) -> Json | None:
            kept = self.notes_of(body)
            if kept.launch(token) is not None:
                return None
            if owner := marked_owner(body):
                raise SetRefused(f"another owner: {owner}")
            if len(kept.waiting) >= MAX_WAITING:
                raise PoolUnavailable(f"{self.what}: {MAX_WAITING} launches wait for pods already")
            spec = up(body)
            self.precedence.launching(token, (pod.uid for pod in self._settings.pods.all()))
            launch = Launch(token=token, offering_id=offering_id, at_s=self._clock.now_s())
            return self.patch(body, kept.with_launch(launch), spec)

        return await self.change(one_more) is not None

    async def settle(self, pairing: Pairing, gone: frozenset[str]) -> None:
        """Note who answers what, on the pods first, and forget removals whose pods are `gone`."""
        told = await asyncio.gather(*(self._tell(launch, pod) for launch, pod in pairing.answers))
        said = {launch.token: pod.uid for (launch, pod), done in zip(pairing.answers, told, strict=True) if done}
        answered = said | pairing.known
        if answered or pairing.void or gone:
            await self.change(lambda body: self._settled(body, answered, pairing.void, gone))

    def _settled(
        self, body: Json, answered: Mapping[str, str], void: Iterable[str], gone: frozenset[str]
    ) -> Json | None:
        kept = self.notes_of(body)
        settled = kept.answered(answered).without_launches(set(void)).without_removals(gone)
        return None if settled == kept else self.patch(body, settled)

    async def _tell(self, launch: Launch, pod: PodFacts) -> bool:
        """Write the token on its pod; False where that did not work: the next list tells, and it is tried again."""
        patch = {
            "metadata": {
                "resourceVersion": pod.resource_version,
                "annotations": {TOKEN_ANNOTATION: launch.token},
            }
        }
        try:
            await self._settings.kube.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except KubeError:
            return False
        return True

    async def refused_reason(self, body: Json) -> str | None:
        """Why its count may not be written; None: it may."""
        if body["metadata"].get("deletionTimestamp"):
            return f"{self.what} is being deleted"
        with reading(self.what):
            return await other_owner(self._settings.kube, self._resource, body)

    def view(
        self,
        body: Json,
        pods: Sequence[PodFacts],
        pairing: Pairing,
        *,
        listed_at_s: float,
        refused_reason: str | None,
    ) -> WorkerSetView:
        """The object and its pods, each with the launch that it answers."""
        new = {launch.token: pod.uid for launch, pod in pairing.answers}
        kept = self.notes_of(body).answered(pairing.known | new)
        self.precedence.keep({launch.token for launch in kept.waiting}, {pod.uid for pod in pods})
        waiting = [launch for launch in kept.waiting if launch.token not in pairing.void]
        staying = sum(counts(pod) and pod.uid not in kept.going for pod in pods)
        return WorkerSetView(
            listed_at_s=listed_at_s,
            pods=tuple(worker_pod(pod, pod.uid, kept.launch_of(pod.uid)) for pod in pods if pod.phase not in ENDED),
            desired=self._count(body),
            waiting=tuple(
                WaitingLaunch(token=launch.token, offering_id=launch.offering_id, since_s=launch.at_s)
                for launch in waiting
            ),
            missing=max(0, self._count(body) - staying - len(waiting)),
            refused_reason=refused_reason,
        )


def refused(reason: str, listed_at_s: float) -> WorkerSetView:
    """The view of an object that is not there."""
    return WorkerSetView(listed_at_s=listed_at_s, pods=(), desired=None, refused_reason=reason)


def worker_pod(pod: PodFacts, replica_key: str, launch: Launch | None = None) -> WorkerPod:
    """A pod as an actor sees it."""
    return WorkerPod(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        node_name=pod.node_name,
        replica_key=replica_key,
        launch_token=launch.token if launch else pod.annotations.get(TOKEN_ANNOTATION, ""),
        created_at_s=pod.created_at_s,
        ready=pod.ready,
        terminating=pod.deleting,
        unschedulable=pod.unschedulable,
        offering_id=launch.offering_id if launch else "",
    )
