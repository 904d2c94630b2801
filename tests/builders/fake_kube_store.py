"""The memory of a fake API server: objects, versions, preconditions, the history that watches read.

Kept as the real one keeps it: one growing resource version for all objects, no event for a change that changes nothing,
status apart from the rest, deletion in two steps where there are finalizers or a grace period to wait for.
Not kept: admission, defaulting, validation of fields, managed fields, quotas, and every controller (nothing owns, counts
or collects garbage) but the disruption controller's sum, which evictions need. Namespaces need not exist.
"""

import asyncio
import re
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scaler.kube.contract import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    Change,
    Conflict,
    Gone,
    Invalid,
    Json,
    NotFound,
    Resource,
    TooMany,
)
from scaler.model.clock import Clock
from tests.builders.kube_objects import clone, dig

WITHOUT_STATUS = {r.plural for r in (CONFIG_MAPS, EVENTS, LEASES, PRIORITY_CLASSES, SECRETS)}
_KEEPS_STATUS_AT_CREATION = {NODES.plural}
_ENDED = ("Succeeded", "Failed")
_PART = r"[A-Za-z0-9._:~-]+"

Key = tuple[str, str, str]
"""(plural.group, namespace, name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One write: the object before (None: new) and after (None: gone; `before` then has the version of its end)."""

    version: int
    kind: str
    before: Json | None
    after: Json | None


def kind_of(resource: Resource) -> str:
    """One name for a resource of a group."""
    return f"{resource.plural}.{resource.group}"


class FakeStore:
    """Objects by key, and all that ever happened to them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[Key, Json] = {}
        self._version = 1
        self.floor = 0
        """Watches from an older version are refused: 410."""
        self.history: list[Past] = []
        self.broken: Exception | None = None
        self.round = 0
        """Raised to end every watch that runs; with `broken` where they end by an error."""
        self.bookmarks = 0
        """Raised to have every watch send one."""
        self._newest: dict[str, int] = {}
        self._news: list[asyncio.Future[None]] = []

    @property
    def version(self) -> str:
        """The newest resource version."""
        return str(self._version)

    def tell(self) -> None:
        """Wake every watch."""
        news, self._news = self._news, []
        for future in news:
            if not future.done():
                future.set_result(None)

    async def news(self) -> None:
        """Return at the next write."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.append(future)
        await future

    def expire(self) -> None:
        """Forget the history."""
        self._version += 1
        self.floor = self._version

    def has(self, resource: Resource, namespace: str | None, name: str) -> bool:
        """Whether it is there."""
        return (kind_of(resource), namespace or "", name) in self._objects

    def find(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """The object itself, not a copy."""
        if not re.fullmatch(_PART, name) or name in (".", "..") or (resource.namespaced and not namespace):
            raise Invalid(f"{name!r} in {namespace!r} is no {resource.kind}")
        found = self._objects.get((kind_of(resource), namespace or "", name))
        if found is None:
            raise NotFound(f'{resource.plural} "{name}" not found', status=404, reason="NotFound")
        return found

    def every(self, resource: Resource, namespace: str | None) -> Iterable[Json]:
        """Objects of a kind, in the order of their keys."""
        keys = sorted(k for k in self._objects if k[0] == kind_of(resource) and namespace in (None, "", k[1]))
        return [self._objects[key] for key in keys]

    def add(self, resource: Resource, body: Json, namespace: str | None, *, whole: bool = False) -> Json:
        """Create; `whole` keeps a status that a creation would lose."""
        body = self._newborn(resource, clone(body), namespace)
        if not whole and resource.plural not in WITHOUT_STATUS | _KEEPS_STATUS_AT_CREATION:
            body.pop("status", None)
        if resource == PODS and not dig(body, "status.phase"):
            body["status"] = {"phase": "Pending", **(body.get("status") or {})}
        key = self._key(resource, body)
        if key in self._objects:
            raise Conflict(f'{resource.plural} "{key[2]}" already exists', status=409, reason="AlreadyExists")
        return self._write(key, None, body)

    def _newborn(self, resource: Resource, body: Json, namespace: str | None) -> Json:
        meta = body.setdefault("metadata", {})
        if resource.namespaced:
            if not (namespace or meta.get("namespace")):
                raise Invalid("an empty namespace may not be set during creation", status=400, reason="BadRequest")
            if meta.setdefault("namespace", namespace) != (namespace or meta["namespace"]):
                raise Invalid("the namespace of the object does not match the request's", status=400)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.:-]*[a-z0-9])?", meta.get("name") or ""):
            raise Invalid(f"{meta.get('name')!r} is no name", status=422, reason="Invalid")
        body.update({"apiVersion": resource.api_version, "kind": resource.kind})
        meta.update(uid=str(uuid.uuid4()), creationTimestamp=self.stamp())
        if resource.plural not in WITHOUT_STATUS - {LEASES.plural} and resource not in (NODES, LEASES):
            meta["generation"] = 1
        return body

    def change(
        self, resource: Resource, namespace: str | None, name: str, subresource: str, make: Callable[[Json], Json]
    ) -> Json:
        """Put what `make` makes of the object there, as far as main object or `status` let it be changed."""
        old = self.find(resource, namespace, name)
        new = make(clone(old))
        meta = new.setdefault("metadata", {})
        wanted = meta.get("resourceVersion") or old["metadata"]["resourceVersion"]
        if wanted != old["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409, reason="Conflict")
        if (meta.get("uid") or old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise NotFound("Precondition failed: UID in precondition", status=409, reason="Conflict")
        if meta.get("name") != name:
            raise Invalid("the name of the object does not match the request's", status=400, reason="BadRequest")
        for kept in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "namespace"):
            meta.pop(kept, None)
            if kept in old["metadata"]:
                meta[kept] = old["metadata"][kept]
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self._change(resource, old, self._allowed(resource, old, new, subresource))

    def _allowed(self, resource: Resource, old: Json, new: Json, subresource: str) -> Json:
        if resource.plural in WITHOUT_STATUS:
            return new
        if subresource == "status":
            return {**old, "status": new.get("status"), "metadata": new["metadata"]}
        new.pop("status", None)
        return {**new, **({"status": old["status"]} if "status" in old else {})}

    def _change(self, resource: Resource, old: Json, new: Json) -> Json:
        if new == old:
            return old
        if "generation" in old["metadata"] and new.get("spec") != old.get("spec"):
            new["metadata"] = {**new["metadata"], "generation": old["metadata"]["generation"] + 1}
        key = self._key(resource, old)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers") and resource != PODS:
            return self._drop(key, old)
        return self._write(key, old, new)

    def remove(
        self, resource: Resource, namespace: str | None, name: str, uid: str | None, grace_s: int | None
    ) -> None:
        """Delete, or begin to: finalizers and, for scheduled pods, grace are waited for."""
        old = self.find(resource, namespace, name)
        meta = old["metadata"]
        if uid is not None and uid != meta["uid"]:
            raise NotFound("Precondition failed: UID in precondition", status=409, reason="Conflict")
        grace = self._grace_s(old, grace_s) if resource == PODS else 0
        if not meta.get("finalizers") and not grace:
            self._drop(self._key(resource, old), old)
        elif "deletionTimestamp" not in meta or grace < meta.get("deletionGracePeriodSeconds", 0):
            marks: Json = {"deletionTimestamp": self.stamp(grace), "deletionGracePeriodSeconds": grace}
            self._write(self._key(resource, old), old, {**old, "metadata": {**meta, **marks}})

    @staticmethod
    def _grace_s(pod: Json, grace_s: int | None) -> int:
        if not dig(pod, "spec.nodeName") or dig(pod, "status.phase") in _ENDED:
            return 0
        own = dig(pod, "spec.terminationGracePeriodSeconds")
        return int(grace_s if grace_s is not None else 30 if own is None else own)

    def evict(self, namespace: str, name: str, uid: str, grace_s: int | None) -> None:
        """Delete a pod if every budget that selects it allows one more to be away."""
        pod = self.find(PODS, namespace, name)
        if uid != pod["metadata"]["uid"]:
            raise NotFound("Precondition failed: UID in precondition", status=409, reason="Conflict")
        exempt = dig(pod, "status.phase") in ("Pending", *_ENDED) or "deletionTimestamp" in pod["metadata"]
        budgets = [b for b in self.every(DISRUPTION_BUDGETS, namespace) if selects(b, pod)]
        if budgets and not exempt and any(self._left(budget) <= 0 for budget in budgets):
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise TooMany(message, status=429, reason="TooManyRequests")
        if not exempt:
            for budget in budgets:
                self._use(budget)
        self.remove(PODS, namespace, name, uid, grace_s)

    def _use(self, budget: Json) -> None:
        left = dig(budget, "status.disruptionsAllowed")
        if left is not None:
            status = {**budget["status"], "disruptionsAllowed": max(0, left - 1)}
            self._change(DISRUPTION_BUDGETS, budget, {**budget, "metadata": {**budget["metadata"]}, "status": status})

    def _left(self, budget: Json) -> int:
        told = dig(budget, "status.disruptionsAllowed")
        if told is not None and dig(budget, "status.observedGeneration") == budget["metadata"].get("generation"):
            return int(told)
        pods = [p for p in self.every(PODS, budget["metadata"]["namespace"]) if selects(budget, p)]
        healthy = sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        least, most = dig(budget, "spec.minAvailable"), dig(budget, "spec.maxUnavailable")
        return healthy - (share(least, len(pods)) if least is not None else len(pods) - share(most, len(pods)))

    def stamp(self, in_s: float = 0.0) -> str:
        """A time as Kubernetes writes it."""
        return datetime.fromtimestamp(self._clock.now_s() + in_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _key(resource: Resource, body: Json) -> Key:
        return kind_of(resource), body["metadata"].get("namespace", ""), body["metadata"]["name"]

    def _write(self, key: Key, before: Json | None, after: Json) -> Json:
        self._version += 1
        after["metadata"]["resourceVersion"] = self.version
        self._objects[key] = after
        self._record(Past(version=self._version, kind=key[0], before=before, after=after))
        return after

    def _drop(self, key: Key, old: Json) -> Json:
        self._version += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": self.version}}
        del self._objects[key]
        self._record(Past(version=self._version, kind=key[0], before=last, after=None))
        return last

    def _record(self, past: Past) -> None:
        self.history.append(past)
        self._newest[past.kind] = past.version
        self.tell()

    def newest(self, kind: str) -> int:
        """The version of the last write to a kind."""
        return self._newest.get(kind, 0)

    def since(self, version: str, kind: str) -> list[Past]:
        """Writes after a version."""
        if not version.isdecimal():
            raise Invalid(f"invalid resource version {version!r}", status=400, reason="BadRequest")
        if int(version) < self.floor:
            raise Gone(f"too old resource version: {version}", status=410, reason="Expired")
        begin = bisect_right(self.history, int(version), key=lambda past: past.version)
        return [past for past in self.history[begin:] if past.kind == kind]


def told(past: Past, matches: Callable[[Json], bool]) -> tuple[Change, Json] | None:
    """What a watch with a selector says of a write: an object that leaves the selection is deleted for it."""
    was = past.before is not None and matches(past.before)
    if past.after is None:
        return (Change.DELETED, past.before) if was and past.before else None
    now = matches(past.after)
    change = {(False, True): Change.ADDED, (True, True): Change.MODIFIED, (True, False): Change.DELETED}.get((was, now))
    return (change, past.after) if change else None


def selects(owner: Json, pod: Json) -> bool:
    """Whether the label selector of an object matches a pod."""
    labels = dig(pod, "metadata.labels") or {}
    wanted = dig(owner, "spec.selector.matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def is_ready(pod: Json) -> bool:
    """By its Ready condition."""
    conditions: list[Json] = dig(pod, "status.conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def share(amount: Any, of: int) -> int:
    """An int, or a percentage rounded up."""
    return -(-int(amount[:-1]) * of // 100) if isinstance(amount, str) else int(amount)
