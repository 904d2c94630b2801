"""What EC2 says of our instances when asked: scheduled events, failing status checks, states that end them.

Asked every minute, in batches, all instances of ours. It is the level beneath the queue's edges: an event that was lost
shows here. A notice falls when EC2 says it no more: "[Completed]" and "[Canceled]" events stay listed for a week and count
for nothing. A batch that fails leaves what is known of its instances as it was; an instance that EC2 does not know (any
more) is left out of the batch, and never fails it for the others.

    a scheduled event               SCHEDULED_CHANGE, by its notBefore (none where it has none)
    system or instance "impaired"   NODE_DISRUPTED, two minutes after two minutes of it: a reboot passes sooner
    stopping ... terminated         STATE_CHANGE, as of when it was first seen
Call: ec2 DescribeInstanceStatus.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from scaler.aws.contract import Aws, AwsError, AwsFault
from scaler.interruptions.base import SourceHealth, Unacknowledged, by_deadline
from scaler.interruptions.counts import Counts
from scaler.interruptions.messages.state_change import ENDING
from scaler.interruptions.messages.times import time_s
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice, NoticeKind

log = structlog.get_logger()

BATCH = 100
"""Instances that one call may name."""
IMPAIRED_S = 120.0
"""So long a check has to fail before it counts, and so long is left then."""
_OVER = ("[completed]", "[canceled]", "[cancelled]")
_ID = re.compile(r"i-[0-9a-z]+")

Key = tuple[str, NoticeKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatusSettings:
    """Whom to ask, and about which instances."""

    aws: Aws
    instances: Callable[[], Iterable[str]]
    """Ids of our instances, those that are launching included."""
    every_s: float = 60.0


class InstanceStatusNotices(Unacknowledged):
    """A `NoticeSource`; see the module's docstring."""

    def __init__(self, settings: InstanceStatusSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._counts = Counts()
        self._found: dict[str, tuple[InterruptionNotice, ...]] = {}
        self._first_seen_s: dict[tuple[str, str], float] = {}
        self._known: set[Key] = set()
        self._news = asyncio.Event()
        self._answered_at_s: float | None = None
        self._error = ""

    async def current(self) -> tuple[InterruptionNotice, ...]:
        """All standing notices, by deadline, on the cloud's clock."""
        self._news.clear()
        return tuple(sorted((notice for found in self._found.values() for notice in found), key=by_deadline))

    async def changed(self) -> None:
        """Return when EC2 has said something else than before."""
        await self._news.wait()
        self._news.clear()

    async def run(self) -> None:
        """Ask every minute until cancelled."""
        while True:
            await self.ask()
            await self._clock.sleep(self._settings.every_s)

    def health(self) -> SourceHealth:
        """Counters since start, and what is wrong."""
        return self._counts.health(self._answered_at_s, error=self._error)

    async def ask(self) -> None:
        """Ask about every instance once."""
        instance_ids = sorted(set(self._settings.instances()))
        self._forget(set(instance_ids))
        errors = [await self._ask(instance_ids[n : n + BATCH]) for n in range(0, len(instance_ids), BATCH)]
        error = next((each for each in errors if each is not None), None)
        if error is None:
            self._answered_at_s = self._clock.now_s()
        elif not self._error:
            log.warning("instance_status_unknown", error=str(error))
        self._error = "" if error is None else f"instance status: {error}"

    async def _ask(self, instance_ids: Sequence[str]) -> AwsError | None:
        try:
            statuses = await self._statuses(instance_ids)
        except AwsError as error:
            return error
        told = {str(status.get("InstanceId")): status for status in statuses}
        for instance_id in instance_ids:
            self._take(instance_id, told.get(instance_id, {}))
        return None

    async def _statuses(self, instance_ids: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
        """Of those that EC2 knows; one unknown id makes it refuse the whole call."""
        if not instance_ids:
            return ()
        try:
            return await self._settings.aws.pages(
                "ec2",
                "DescribeInstanceStatus",
                "InstanceStatuses",
                InstanceIds=list(instance_ids),
                IncludeAllInstances=True,
            )
        except AwsError as error:
            if error.fault is not AwsFault.NOT_FOUND:
                raise
            named = set(_ID.findall(str(error)))
        known = [each for each in instance_ids if each not in named]
        if len(known) < len(instance_ids):
            return await self._statuses(known)
        if len(instance_ids) == 1:
            return ()
        half = len(instance_ids) // 2
        return await self._statuses(instance_ids[:half]) + await self._statuses(instance_ids[half:])

    def _take(self, instance_id: str, status: Mapping[str, Any]) -> None:
        found = tuple(_earliest(self._notices(instance_id, status)))
        if found != self._found.get(instance_id, ()):
            self._news.set()
        for notice in found:
            key = (notice.instance_id, notice.kind)
            self._counts.received += key not in self._known
            self._known.add(key)
        self._found[instance_id] = found

    def _notices(self, instance_id: str, status: Mapping[str, Any]) -> Iterator[InterruptionNotice]:
        now_s = self._now_s()
        for event in _items(status, "Events"):
            if not str(event.get("Description", "")).lower().startswith(_OVER):
                seen_s = self._seen(instance_id, str(event.get("InstanceEventId") or event.get("Code")), now_s)
                yield _notice(instance_id, NoticeKind.SCHEDULED_CHANGE, seen_s, time_s(event.get("NotBefore")))
        since_s = self._impaired_since_s(instance_id, status, now_s)
        if since_s is not None and now_s >= since_s + IMPAIRED_S:
            yield _notice(instance_id, NoticeKind.NODE_DISRUPTED, since_s, since_s + 2 * IMPAIRED_S)
        if _name(status, "InstanceState", "Name") in ENDING:
            seen_s = self._seen(instance_id, "state", now_s)
            yield _notice(instance_id, NoticeKind.STATE_CHANGE, seen_s, seen_s)

    def _impaired_since_s(self, instance_id: str, status: Mapping[str, Any], now_s: float) -> float | None:
        """Since when a check of it has been failing; first sight where EC2 does not say."""
        checks = [status.get(name) for name in ("SystemStatus", "InstanceStatus")]
        failing = [check for check in checks if isinstance(check, Mapping) and check.get("Status") == "impaired"]
        if not failing:
            self._first_seen_s.pop((instance_id, "impaired"), None)
            return None
        seen_s = self._seen(instance_id, "impaired", now_s)
        said = (time_s(detail.get("ImpairedSince")) for check in failing for detail in _items(check, "Details"))
        return min((at_s for at_s in said if at_s is not None), default=seen_s)

    def _seen(self, instance_id: str, what: str, now_s: float) -> float:
        return self._first_seen_s.setdefault((instance_id, what), now_s)

    def _forget(self, instance_ids: set[str]) -> None:
        if any(self._found.get(gone) for gone in self._found.keys() - instance_ids):
            self._news.set()
        self._found = {each: found for each, found in self._found.items() if each in instance_ids}
        self._first_seen_s = {key: at_s for key, at_s in self._first_seen_s.items() if key[0] in instance_ids}
        self._known = {key for key in self._known if key[0] in instance_ids}

    def _now_s(self) -> float:
        return self._clock.now_s() + (self._settings.aws.ahead_s() or 0.0)


def make(settings: object, *, clock: Clock) -> InstanceStatusNotices:
    """The source of EC2's statuses; `TypeError` where the settings are another source's."""
    if not isinstance(settings, InstanceStatusSettings):
        raise TypeError(f"instance status takes InstanceStatusSettings, not {type(settings).__name__}")
    return InstanceStatusNotices(settings, clock=clock)


def _earliest(notices: Iterable[InterruptionNotice]) -> Iterable[InterruptionNotice]:
    """One of each kind: several events of an instance are one scheduled change, the first of them."""
    first: dict[NoticeKind, InterruptionNotice] = {}
    for notice in sorted(notices, key=by_deadline):
        first.setdefault(notice.kind, notice)
    return first.values()


def _notice(instance_id: str, kind: NoticeKind, noticed_at_s: float, deadline_s: float | None) -> InterruptionNotice:
    return InterruptionNotice(instance_id=instance_id, kind=kind, noticed_at_s=noticed_at_s, deadline_s=deadline_s)


def _items(status: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = status.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _name(status: Mapping[str, Any], key: str, inner: str) -> str:
    found = status.get(key)
    return str(found.get(inner, "")) if isinstance(found, Mapping) else ""
