"""`open_api`: the API server over HTTP, as `KubeApi` asks.

Policy: raw JSON; the official client gives configuration, TLS and tokens and decodes nothing (its models refuse whole lists
for one odd object, and cost 190 MiB). Each request's time-out starts when its turn comes: the wait for a turn is our own
limit's doing. Within it are repeated
* reads: whatever happened, unless the answer was a plain no;
* any call that was refused before it was carried out: 401 once, with credentials read anew, and 429 with Retry-After,
  but never an eviction's 429, which is a disruption budget's;
* on 503: deletions, replacements, merge and apply patches. A creation and a JSON patch could then be done twice;
* by aiohttp itself, once, reads, deletions and replacements whose connection ends before there is an answer.
A half-open connection is found by its silence (for reads a part of the time-out, so that a second one gets its chance), by
TCP keep-alive and by unacknowledged bytes.
Invariants: no call without a name reaches the server (`DELETE` of a collection would empty it); redirects are not followed.
Non-goals: compression (the server is near, and both sides would pay for it in CPU); HTTP/2.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from scaler.kube.answers import EventLines, json_object
from scaler.kube.contract import (
    LEASES,
    PODS,
    Gone,
    Invalid,
    Json,
    KubeApi,
    KubeUnreachable,
    Listing,
    PatchType,
    Resource,
    WatchEvent,
)
from scaler.kube.credentials import Credentials, FromKubeconfig, FromPod, Loader
from scaler.kube.limits import Turnstile
from scaler.kube.wire import Request, Wire
from scaler.model.clock import Clock

_MANAGER = "headrace"
_PAGE = 500
_AT_ONCE = 64
_LEASE_PER_S, _LEASE_BURST, _LEASE_AT_ONCE = 10.0, 20, 4
_WATCH_GRACE_S = 15.0
"""How much longer than asked for a watch may take to end."""


def open_api(
    kubeconfig: Path | None,
    *,
    clock: Clock,
    qps: float = 200.0,
    burst: int = 400,
    time_out_s: float = 10.0,
    may_write: Callable[[], bool] | None = None,
) -> KubeApi:
    """A client of the cluster of a kubeconfig, or of the one that this pod runs in (None). Connects at the first call.

    Leases have a lane of their own: 10 requests a second, their own connections. `may_write`: whether this process may change
    anything but leases, asked once more when a request's turn has come; default: always.
    """
    return connect(
        FromPod() if kubeconfig is None else FromKubeconfig(kubeconfig),
        clock=clock,
        qps=qps,
        burst=burst,
        time_out_s=time_out_s,
        may_write=may_write,
    )


def connect(
    loader: Loader,
    *,
    clock: Clock,
    qps: float,
    burst: int,
    time_out_s: float,
    may_write: Callable[[], bool] | None = None,
) -> KubeApi:
    """As `open_api`, with a configuration from elsewhere."""
    credentials = Credentials(loader, clock)
    work = Turnstile(clock, per_s=qps, burst=burst, at_once=_AT_ONCE)
    leases = Turnstile(clock, per_s=_LEASE_PER_S, burst=_LEASE_BURST, at_once=_LEASE_AT_ONCE)
    return _HttpApi(
        Wire(credentials, clock, work, time_out_s, may_write),
        Wire(credentials, clock, leases, time_out_s),
    )


class _HttpApi:
    def __init__(self, work: Wire, leases: Wire) -> None:
        self._work = work
        self._leases = leases
        self._counts: Counter[tuple[str, str]] = Counter()

    def _wire(self, resource: Resource) -> Wire:
        return self._leases if resource == LEASES else self._work

    def _counted(self, verb: str, resource: Resource, subresource: str = "") -> Callable[[], None]:
        key = verb, f"{resource.plural}/{subresource}" if subresource else resource.plural
        return lambda: self._counts.update((key,))

    async def _object(self, verb: str, resource: Resource, request: Request, subresource: str = "") -> Json:
        return json_object(await self._wire(resource).call(request, self._counted(verb, resource, subresource)))

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        request = Request(method="GET", path=_path(resource, name, namespace), reads=True)
        return await self._object("get", resource, request)

    async def list(
        self, resource: Resource, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        try:
            return await self._whole(resource, namespace, label_selector, field_selector)
        except Gone:
            return await self._whole(resource, namespace, label_selector, field_selector)

    async def _whole(self, resource: Resource, namespace: str | None, labels: str, fields: str) -> Listing:
        items: list[Json] = []
        version = ""
        async for page in self.pages(resource, namespace=namespace, label_selector=labels, field_selector=fields):
            items += page.items
            version = page.resource_version
        return Listing(items=tuple(items), resource_version=version)

    async def pages(
        self, resource: Resource, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        query = _selection(label_selector, field_selector) | {"limit": str(_PAGE)}
        path = resource.path(namespace=_checked(namespace))
        while True:
            page = await self._object("list", resource, Request(method="GET", path=path, query=query, reads=True))
            meta, items = page.get("metadata"), page.get("items") or []
            if not isinstance(meta, dict) or not isinstance(items, list) or not meta.get("resourceVersion"):
                raise KubeUnreachable(f"the answer is no list of {resource.plural}")
            yield Listing(items=tuple(items), resource_version=str(meta["resourceVersion"]))
            if not meta.get("continue"):
                return
            query["continue"] = str(meta["continue"])

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
        asked = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(time_out_s))),
        }
        path = resource.path(namespace=_checked(namespace))
        query = _selection(label_selector, field_selector) | asked
        reply = await self._wire(resource).stream(
            Request(method="GET", path=path, query=query, reads=True),
            self._counted("watch", resource),
            time_out_s=time_out_s + _WATCH_GRACE_S,
            silent_s=silent_s,
        )
        lines = EventLines()
        try:
            async for chunk in reply.content.iter_any():
                for event in lines.feed(chunk):
                    yield event
        except (aiohttp.ClientError, OSError) as error:
            raise KubeUnreachable(f"the watch of {resource.plural} broke: {error!r}") from error
        finally:
            reply.close()

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        place = _checked(namespace or (body.get("metadata") or {}).get("namespace"))
        if resource.namespaced and not place:
            raise Invalid(f"a {resource.kind} needs a namespace")
        request = _write("POST", resource.path(namespace=place), body)
        return await self._object("create", resource, request)

    async def replace(
        self, resource: Resource, name: str, body: Json, *, namespace: str | None = None, subresource: str = ""
    ) -> Json:
        request = _write("PUT", _path(resource, name, namespace, subresource), body, repeatable=True)
        return await self._object("update", resource, request, subresource)

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
        request = _write(
            "PATCH",
            _path(resource, name, namespace, subresource),
            patch,
            content_type=patch_type.value,
            query={"force": "true"} if patch_type is PatchType.APPLY else {},
            repeatable=patch_type is not PatchType.JSON,
        )
        return await self._object("patch", resource, request, subresource)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        path = _path(resource, name, namespace)
        request = Request(method="DELETE", path=path, body=_json(_deletion(uid, grace_s)), repeatable=True)
        await self._wire(resource).call(request, self._counted("delete", resource))

    async def evict(self, name: str, *, namespace: str, pod_uid: str, grace_s: int | None = None) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _deletion(pod_uid, grace_s),
        }
        request = Request(
            method="POST",
            path=_path(PODS, name, namespace, "eviction"),
            body=_json(body),
            repeatable=True,
            budgeted=True,
        )
        await self._wire(PODS).call(request, self._counted("create", PODS, "eviction"))

    def ahead_s(self) -> float | None:
        return self._work.ahead_s if self._work.ahead_s is not None else self._leases.ahead_s

    def counts(self) -> Mapping[tuple[str, str], int]:
        return dict(self._counts)

    async def close(self) -> None:
        await self._work.close()
        await self._leases.close()


def _write(
    method: str,
    path: str,
    body: Any,
    *,
    content_type: str = "application/json",
    query: Mapping[str, str] | None = None,
    repeatable: bool = False,
) -> Request:
    return Request(
        method=method,
        path=path,
        query={"fieldManager": _MANAGER, **(query or {})},
        body=_json(body),
        content_type=content_type,
        repeatable=repeatable,
    )


def _json(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _path(resource: Resource, name: str, namespace: str | None, subresource: str = "") -> str:
    if not _checked(name):
        raise Invalid(f"a {resource.kind} without a name")
    if resource.namespaced and not namespace:
        raise Invalid(f"{resource.kind} {name} needs a namespace")
    return resource.path(name, _checked(namespace), subresource)


def _checked(part: str | None) -> str | None:
    """A part of a path that stays one part."""
    if part and (quote(part, safe=":") != part or part in (".", "..")):
        raise Invalid(f"{part!r} is no name")
    return part


def _selection(labels: str, fields: str) -> dict[str, str]:
    asked = {"labelSelector": labels, "fieldSelector": fields}
    return {key: text for key, text in asked.items() if text}


def _deletion(uid: str | None, grace_s: int | None) -> Json:
    body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid is not None:
        body["preconditions"] = {"uid": uid}
    if grace_s is not None:
        body["gracePeriodSeconds"] = max(0, grace_s)
    return body
