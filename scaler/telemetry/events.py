"""Kubernetes Events: what a person sees with `kubectl describe rfleet`.

Policy: Events of one object, reason and type are one Event whose count goes up and whose message is the newest; a token
bucket bounds what is sent, and what waits is bounded too: under a storm counts stay right for what is kept, and what did
not fit is counted. Sending never holds anybody up, and a failure is tried again with the newest count.
Invariants: reasons are bounded words in CamelCase; messages are bounded; nothing depends on an Event being there.
Non-goals: history: the API server forgets Events after an hour or so.
Source of the shape: Kubernetes API reference, Event v1 core.
"""

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from scaler.kube.contract import EVENTS, Conflict, Json, KubeApi, KubeError, NotFound
from scaler.model.clock import Clock
from scaler.model.units import utc_text

log = structlog.get_logger()

_MAX_MESSAGE = 1024
"""The API server's own bound."""
_FORGET_S = 1800.0
"""An Event of a reason that was silent for so long begins a new one: the old one may be gone by then."""
_RETRY_S = 5.0


class EventType(StrEnum):
    """Kubernetes has two."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Involved:
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for nodes, whose Events live in namespace default."""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something worth telling."""

    reason: str
    message: str
    type: EventType = EventType.NORMAL
    about: Involved | None = None
    """None: the fleet."""


@dataclass(frozen=True, slots=True)
class _Key:
    about: Involved
    reason: str
    type: EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    name: str
    """Of the Event."""
    message: str
    count: int
    first_at_s: float
    last_at_s: float
    sent: bool = False
    """It has been made."""


class EventRecorder:
    """See the module's docstring. `about` is the fleet; `identity` is who says it."""

    def __init__(
        self,
        kube: KubeApi,
        *,
        clock: Clock,
        about: Involved,
        identity: str,
        per_s: float = 0.5,
        burst: int = 25,
        most: int = 256,
    ) -> None:
        self._kube, self._clock, self._about, self._identity = kube, clock, about, identity
        self._per_s, self._burst, self._most = per_s, float(burst), most
        self._tokens, self._filled_at_s = float(burst), clock.monotonic_s()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._waiting: OrderedDict[_Key, None] = OrderedDict()
        self._news = asyncio.Event()
        self.dropped = 0
        """Notes that did not fit."""
        self.sent = 0
        """Requests that carried an Event."""

    def record(self, note: Note) -> None:
        """Tell it, sooner or later."""
        key, now_s = _Key(note.about or self._about, note.reason, note.type), self._clock.now_s()
        old = self._series.pop(key, None)
        if old is not None and now_s - old.last_at_s > _FORGET_S and key not in self._waiting:
            old = None
        if old is None and not self._room():
            self.dropped += 1
            return
        text = note.message if len(note.message) <= _MAX_MESSAGE else note.message[: _MAX_MESSAGE - 3] + "..."
        if old is None:
            self._series[key] = _Series(
                name=self._name_of(key, now_s), message=text, count=1, first_at_s=now_s, last_at_s=now_s
            )
        else:
            self._series[key] = replace(old, message=text, count=old.count + 1, last_at_s=now_s)
        self._waiting[key] = None
        self._news.set()

    def _room(self) -> bool:
        """Make room by forgetting the series that was silent longest and waits for nothing."""
        if len(self._series) < self._most:
            return True
        idle = next((key for key in self._series if key not in self._waiting), None)
        if idle is None:
            return False
        del self._series[idle]
        return True

    def _name_of(self, key: _Key, now_s: float) -> str:
        unique = f"{self._identity}/{key.about.uid}/{key.about.name}/{key.reason}/{key.type}/{now_s}"
        return f"{key.about.name[:200]}.{hashlib.sha256(unique.encode()).hexdigest()[:16]}"

    async def run(self) -> None:
        """Send what waits, as fast as the bucket lets; never returns."""
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            await self._clock.sleep(self._next_in_s())
            if not await self.send_one():
                await self._clock.sleep(_RETRY_S)

    def _next_in_s(self) -> float:
        """When the bucket has a token."""
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_at_s) * self._per_s)
        self._filled_at_s = now_s
        return max(0.0, (1.0 - self._tokens) / self._per_s)

    async def send_one(self) -> bool:
        """Send the Event that waits longest. False: it could not be sent now, and waits on."""
        key = next(iter(self._waiting))
        del self._waiting[key]
        series = self._series[key]
        self._tokens -= 1.0
        try:
            await self._send(key, series)
        except KubeError as error:
            log.warning("event_not_sent", reason=key.reason, error=str(error))
            self._waiting.setdefault(key)
            return False
        self.sent += 1
        newest = self._series.get(key)
        if newest is not None and newest.name == series.name:
            self._series[key] = replace(newest, sent=True)
        return True

    async def _send(self, key: _Key, series: _Series) -> None:
        namespace = key.about.namespace or "default"
        if series.sent:
            change = {"count": series.count, "lastTimestamp": utc_text(series.last_at_s), "message": series.message}
            try:
                await self._kube.patch(EVENTS, series.name, change, namespace=namespace)
                return
            except NotFound:
                pass  # the API server has forgotten it: made anew below, with its count
        try:
            await self._kube.create(EVENTS, self._body(key, series, namespace), namespace=namespace)
        except Conflict:
            return  # an answer was lost: it is there

    def _body(self, key: _Key, series: _Series, namespace: str) -> Json:
        about = key.about
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": involved,
            "reason": key.reason,
            "message": series.message,
            "type": key.type.value,
            "count": series.count,
            "firstTimestamp": utc_text(series.first_at_s),
            "lastTimestamp": utc_text(series.last_at_s),
            "source": {"component": "headrace", "host": self._identity},
            "reportingComponent": "headrace.dev/controller",
            "reportingInstance": self._identity[:128],
        }
