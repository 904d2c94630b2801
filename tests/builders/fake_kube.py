"""An API server in memory: `KubeApi` with failures on order. The suite in tests/kube/contract holds it to the real one.

`FakeKube(clock)` is server and client in one; `client()` gives another client of the same server, with its own counts
and its own failures. What the server does and does not do is in `fake_kube_store`; a server-side apply is a merge that
creates what is missing. `place` puts an object there as it is, status and all. A scheduled pod that is deleted or evicted
stays, with its deletion timestamp, until `end_pods()` (or a deletion with `grace_s=0`) plays the kubelet.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from scaler.kube.contract import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NODE_POOLS,
    PODS,
    REPLICA_SETS,
    Change,
    Invalid,
    Json,
    KubeUnreachable,
    Listing,
    NotFound,
    PatchType,
    Resource,
    WatchEvent,
)
from scaler.model.clock import Clock
from tests.builders.fake_kube_store import FakeStore, kind_of, told
from tests.builders.kube_objects import (
    clone,
    dig,
    field_matcher,
    json_patch,
    label_matcher,
    merge_patch,
    strategic_patch,
)

CALL_TIME_OUT_S = 10.0
PAGE = 500
_SCALABLE = (DEPLOYMENTS, REPLICA_SETS, LEADER_WORKER_SETS, NODE_POOLS)
_FOR_EVER = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class Fault:
    """What goes wrong with a kind of call: after `delay_s` the call is carried out (`landed`) or not, and `error` raised."""

    error: Exception | None
    times: int
    landed: bool = False
    delay_s: float = 0.0
    late: bool = False
    """Carried out after the delay, even if the caller has given up by then."""
    hit: int = field(default=0)
    """How often it has gone wrong."""


class FakeKube:
    """A `KubeApi`. `verb` is RBAC's; `plural` is a resource's, or `plural/subresource`; "*" stands for any."""

    def __init__(self, clock: Clock, *, store: FakeStore | None = None) -> None:
        self.store = store or FakeStore(clock)
        self.skew_s: float | None = 0.0
        """What `ahead_s` says."""
        self.closed = False
        self._clock = clock
        self._counts: Counter[tuple[str, str]] = Counter()
        self._faults: list[tuple[str, str, Fault]] = []

    def client(self) -> "FakeKube":
        """Another client of this server."""
        return FakeKube(self._clock, store=self.store)

    def place(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        """Put an object there as it is; returns it as stored."""
        if not resource.namespaced:
            return clone(self.store.add(resource, body, None, whole=True))
        return clone(self.store.add(resource, body, namespace or dig(body, "metadata.namespace"), whole=True))

    def end_pods(self) -> None:
        """The kubelet's part: pods that are being deleted are gone."""
        for pod in list(self.store.every(PODS, None)):
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                self.store.remove(PODS, meta["namespace"], meta["name"], None, 0)

    def fail_next(
        self, verb: str, plural: str, error: Exception, times: int = 1, *, landed: bool = False, delay_s: float = 0.0
    ) -> Fault:
        """The next calls raise `error`; `landed`: having been carried out, so that only the answer is lost."""
        return self._order(verb, plural, Fault(error=error, times=times, landed=landed, delay_s=delay_s))

    def hang(self, verb: str, plural: str, *, times: int = _FOR_EVER, landed: bool = False) -> Fault:
        """Calls get no answer until they time out; a watch goes silent."""
        error = KubeUnreachable("no answer in time")
        return self._order(verb, plural, Fault(error=error, times=times, landed=landed, delay_s=CALL_TIME_OUT_S))

    def slow(self, verb: str, plural: str, seconds: float, *, times: int = _FOR_EVER) -> Fault:
        """Calls are carried out at once and answered late."""
        return self._order(verb, plural, Fault(error=None, times=times, landed=True, delay_s=seconds))

    def lag(self, verb: str, plural: str, seconds: float, *, times: int = _FOR_EVER) -> Fault:
        """Calls arrive late, and then are carried out even if the caller has given up."""
        return self._order(verb, plural, Fault(error=None, times=times, late=True, delay_s=seconds))

    def heal(self) -> None:
        """All that was ordered to go wrong is off."""
        self._faults.clear()

    def _order(self, verb: str, plural: str, fault: Fault) -> Fault:
        self._faults.append((verb, plural, fault))
        return fault

    def expire_watches(self) -> None:
        """Compaction: running watches and older resource versions are `Gone`."""
        self.store.expire()
        self.end_watches()

    def end_watches(self, error: Exception | None = None) -> None:
        """The server ends all watches, in good order or by `error`."""
        self.store.round += 1
        self.store.broken = error
        self.store.tell()

    def bookmark(self) -> None:
        """Every running watch is told the newest resource version."""
        self.store.bookmarks += 1
        self.store.tell()

    async def _call(self, verb: str, plural: str, act: Callable[[], Json]) -> Json:
        self._counts[verb, plural] += 1
        await asyncio.sleep(0)
        fault = self._fault(verb, plural)
        if fault is None:
            return clone(act())
        if fault.late:
            return await asyncio.shield(asyncio.ensure_future(self._later(fault.delay_s, act)))
        done = clone(act()) if fault.landed else None
        if fault.delay_s:
            await self._clock.sleep(fault.delay_s)
        if fault.error is not None:
            raise fault.error
        return done if done is not None else clone(act())

    async def _later(self, seconds: float, act: Callable[[], Json]) -> Json:
        await self._clock.sleep(seconds)
        return clone(act())

    def _fault(self, verb: str, plural: str) -> Fault | None:
        for on_verb, on_plural, fault in self._faults:
            if on_verb in ("*", verb) and on_plural in ("*", plural) and fault.times > fault.hit:
                fault.hit += 1
                return fault
        return None

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        return await self._call("get", resource.plural, lambda: self.store.find(resource, namespace, name))

    async def list(
        self, resource: Resource, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        matches = _matcher(resource, label_selector, field_selector)

        def act() -> Json:
            items = [_bare(resource, body) for body in self.store.every(resource, namespace) if matches(body)]
            return {"items": items, "version": self.store.version}

        answer = await self._call("list", resource.plural, act)
        return Listing(items=tuple(answer["items"]), resource_version=answer["version"])

    async def pages(
        self, resource: Resource, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        listing = await self.list(
            resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        for at in range(0, max(1, len(listing.items)), PAGE):
            yield Listing(items=listing.items[at : at + PAGE], resource_version=listing.resource_version)

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        time_out_s: float = 300.0,
        silent_s: float = 90.0,
    ) -> AsyncIterator[WatchEvent]:
        self._counts["watch", resource.plural] += 1
        await asyncio.sleep(0)
        if (fault := self._fault("watch", resource.plural)) is not None:
            await self._clock.sleep(silent_s if fault.delay_s else 0.0)
            raise fault.error or KubeUnreachable("the watch went silent")
        matches = _matcher(resource, label_selector, field_selector)
        async for event in self._events(resource, resource_version, namespace, matches, time_out_s):
            yield event

    async def _events(
        self,
        resource: Resource,
        version: str,
        namespace: str | None,
        matches: Callable[[Json], bool],
        time_out_s: float,
    ) -> AsyncIterator[WatchEvent]:
        ends_at_s = self._clock.monotonic_s() + time_out_s
        began, marks, first = self.store.round, self.store.bookmarks, int(version) if version.isdecimal() else 0
        while True:
            for past in self.store.since(version, kind_of(resource)):
                version = str(past.version)
                news = told(
                    past, lambda body: namespace in (None, "", dig(body, "metadata.namespace")) and matches(body)
                )
                if news is not None:
                    yield WatchEvent(change=news[0], body=clone(news[1]))
            if self.store.round != began:
                if self.store.broken is not None:
                    raise self.store.broken
                return
            over = self._clock.monotonic_s() >= ends_at_s
            if self.store.bookmarks != marks or (over and self.store.newest(kind_of(resource)) > first):
                marks, version = self.store.bookmarks, self.store.version
                yield WatchEvent(change=Change.BOOKMARK, body=_bookmark(resource, version))
            if over:
                return
            if int(version) < self.store.newest(kind_of(resource)):
                continue
            await self._news(ends_at_s - self._clock.monotonic_s())

    async def _news(self, seconds: float) -> None:
        ways = {asyncio.ensure_future(self.store.news()), asyncio.ensure_future(self._clock.sleep(seconds))}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        return await self._call("create", resource.plural, lambda: self.store.add(resource, body, namespace))

    async def replace(
        self, resource: Resource, name: str, body: Json, *, namespace: str | None = None, subresource: str = ""
    ) -> Json:
        body = clone(body)
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self._change("update", resource, name, namespace, subresource, lambda _: {**body, **head})

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json | Sequence[Json],
        *,
        namespace: str | None = None,
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
    ) -> Json:
        make = _patcher(resource, patch, patch_type)
        missing = patch_type is PatchType.APPLY and not subresource
        return await self._change("patch", resource, name, namespace, subresource, make, missing=missing)

    async def _change(
        self,
        verb: str,
        resource: Resource,
        name: str,
        namespace: str | None,
        sub: str,
        make: Callable[[Json], Json],
        *,
        missing: bool = False,
    ) -> Json:
        if sub == "scale":
            return await self._scale(verb, resource, name, namespace, make)

        def act() -> Json:
            if missing and not self.store.has(resource, namespace, name):
                self.store.add(resource, {"metadata": {"name": name}}, namespace)
            return self.store.change(resource, namespace, name, sub, make)

        return await self._call(verb, f"{resource.plural}/{sub}" if sub else resource.plural, act)

    async def _scale(
        self, verb: str, resource: Resource, name: str, namespace: str | None, make: Callable[[Json], Json]
    ) -> Json:
        def act() -> Json:
            if resource not in _SCALABLE:
                raise NotFound("the server could not find the requested resource", status=404, reason="NotFound")
            wanted = make(_scale_of(self.store.find(resource, namespace, name)))
            spec = {"replicas": wanted["spec"].get("replicas", 0)}
            version = wanted["metadata"].get("resourceVersion")
            change = {"metadata": {"resourceVersion": version}, "spec": spec}
            return _scale_of(self.store.change(resource, namespace, name, "", lambda old: merge_patch(old, change)))

        return await self._call(verb, f"{resource.plural}/scale", act)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        def act() -> Json:
            self.store.remove(resource, namespace, name, uid, grace_s)
            return {}

        await self._call("delete", resource.plural, act)

    async def evict(self, name: str, *, namespace: str, pod_uid: str, grace_s: int | None = None) -> None:
        def act() -> Json:
            self.store.evict(namespace, name, pod_uid, grace_s)
            return {}

        await self._call("create", "pods/eviction", act)

    def ahead_s(self) -> float | None:
        return self.skew_s

    def counts(self) -> Mapping[tuple[str, str], int]:
        return dict(self._counts)

    async def close(self) -> None:
        self.closed = True


def _matcher(resource: Resource, labels: str, fields: str) -> Callable[[Json], bool]:
    by_label, by_field = label_matcher(labels), field_matcher(resource.plural, fields)
    return lambda body: by_label(body) and by_field(body)


def _patcher(resource: Resource, patch: Any, patch_type: PatchType) -> Callable[[Json], Json]:
    if patch_type is PatchType.JSON:
        return lambda old: json_patch(old, patch)
    if patch_type is PatchType.STRATEGIC:
        if "." in resource.group and not resource.group.endswith(".k8s.io"):
            raise Invalid("the body of the request was in an unknown format", status=415, reason="UnsupportedMediaType")
        return lambda old: cast("Json", strategic_patch(old, patch))
    return lambda old: cast("Json", merge_patch(old, patch))


def _bare(resource: Resource, body: Json) -> Json:
    """Items of a list of built-in kinds come without kind and version."""
    if "." in resource.group and not resource.group.endswith(".k8s.io"):
        return body
    return {key: value for key, value in body.items() if key not in ("kind", "apiVersion")}


def _bookmark(resource: Resource, version: str) -> Json:
    meta = {"resourceVersion": version}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def _scale_of(body: Json) -> Json:
    meta = {key: body["metadata"].get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    labels: Json = dig(body, "spec.selector.matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {key: value for key, value in meta.items() if value is not None},
        "spec": {"replicas": dig(body, "spec.replicas") or 0},
        "status": {"replicas": dig(body, "status.replicas") or 0, "selector": selector},
    }
