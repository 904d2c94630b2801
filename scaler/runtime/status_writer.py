"""Writes a fleet's status: the newest one only, when it differs, and not too often.

Policy: what a person or a tool waits for (sizes, conditions, reasons, the spec accepted) is written at once, yet not more
than once a second; what only wobbles (messages with numbers, spending) once a minute. The whole status is replaced, so
that nothing old stays in it. A status that somebody else changed is put right with the next look.
Invariants: the object is the one of that UID, or nothing is written; offering never waits; a failed write is repeated with
the newest status, never with the one that failed.
Non-goals: fencing. Whoever leads writes its own status over a late one within a minute.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from scaler.kube.contract import ROLLOUT_FLEETS, Invalid, Json, KubeApi, KubeError, NotFound, PatchType
from scaler.kube.waiting import first_of
from scaler.model.clock import Clock

log = structlog.get_logger()

_LOUD_EVERY_S = 1.0
_QUIET_EVERY_S = 60.0
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0
_WOBBLES = frozenset({"message", "spendUsdPerH", "wanted", "allowed"})


class StatusWriter:
    """See the module's docstring. `seen` is the object as last watched."""

    def __init__(
        self, kube: KubeApi, *, clock: Clock, namespace: str, name: str, uid: str, seen: Callable[[], Json]
    ) -> None:
        self._kube, self._clock = kube, clock
        self._namespace, self._name, self._uid = namespace, name, uid
        self._seen = seen
        self._newest: Json | None = None
        self._written: Json = dict(seen().get("status") or {})
        self._written_at_s = float("-inf")
        self._offered = asyncio.Event()
        self.writes = 0
        """Statuses written so far."""

    @property
    def previous(self) -> Mapping[str, Any]:
        """The status that the next one is made after."""
        return self._written

    def offer(self, status: Json) -> None:
        """This is the status now."""
        self._newest = status
        self._offered.set()

    async def run(self) -> None:
        """Write what is offered; returns when the object is gone."""
        retry_s = _FIRST_RETRY_S
        while True:
            await self._offered.wait()
            wait_s = self._due_in_s()
            if wait_s > 0:
                await self._wait(wait_s)
                continue
            self._offered.clear()
            try:
                if not await self.write():
                    return
                retry_s = _FIRST_RETRY_S
            except KubeError as error:
                log.warning("status_not_written", error=str(error), again_in_s=retry_s)
                await self._clock.sleep(retry_s)
                retry_s = min(_LONGEST_RETRY_S, retry_s * 2.0)
                self._offered.set()

    async def write(self) -> bool:
        """Write the newest status if it differs. False: the object is gone, for good. Any other `KubeError` is raised."""
        status = self._newest
        if status is None or (status == self._written and not self._disturbed()):
            return True
        change: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": self._uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            await self._kube.patch(
                ROLLOUT_FLEETS,
                self._name,
                change,
                namespace=self._namespace,
                subresource="status",
                patch_type=PatchType.JSON,
            )
        except NotFound:
            return False
        except Invalid:
            if await self._is_there():
                raise
            return False
        self._written, self._written_at_s = status, self._clock.monotonic_s()
        self.writes += 1
        return True

    async def _is_there(self) -> bool:
        """Whether the object of this name is still ours."""
        try:
            body = await self._kube.get(ROLLOUT_FLEETS, self._name, namespace=self._namespace)
        except NotFound:
            return False
        return bool(body["metadata"]["uid"] == self._uid)

    def _disturbed(self) -> bool:
        """Whether the object shows another status than the one written; watches have caught up by the time it is asked."""
        return bool(self._seen().get("status") != self._written)

    def _due_in_s(self) -> float:
        loud = _loud(self._newest) != _loud(self._written)
        return self._written_at_s + (_LOUD_EVERY_S if loud else _QUIET_EVERY_S) - self._clock.monotonic_s()

    async def _wait(self, seconds: float) -> None:
        """Wait so long, or until there is a newer offer; the one there is stands."""
        self._offered.clear()
        await first_of(self._clock.sleep(seconds), self._offered.wait())
        self._offered.set()


def _loud(value: Any) -> Any:
    """The part that somebody waits for."""
    if isinstance(value, Mapping):
        return {key: _loud(each) for key, each in value.items() if key not in _WOBBLES}
    return [_loud(each) for each in value] if isinstance(value, list) else value
