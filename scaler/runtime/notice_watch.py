"""All notice sources as one: their standing notices, deduplicated, and one event that wakes the loop.

A source that fails keeps the notices it told last; it never takes another source, or the loop, with it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import structlog

from scaler.interruptions.base import NoticeSource, SourceHealth
from scaler.interruptions.skew import Skew
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice, NoticeKind

log = structlog.get_logger()

_SETTLE_S = 0.05
"""Notices come in bursts: one early look for a burst, not one for each notice."""
_RETRY_S = 5.0
"""After a source that cannot tell; its notices are still asked for at every turn."""


class NoticeWatch:
    """See the module's docstring."""

    def __init__(
        self,
        sources: Mapping[str, NoticeSource],
        clock: Clock,
        time_out_s: float = 5.0,
        ahead_s: Mapping[str, Callable[[], float | None]] | None = None,
    ) -> None:
        """`ahead_s`: by source, how far the clock of its notices is ahead of ours, where it is not ours; None: not known yet."""
        self._skews = {name: Skew(ask) for name, ask in (ahead_s or {}).items()}
        self._sources = dict(sources)
        self._clock = clock
        self._time_out_s = time_out_s
        self._away: set[str] = set()
        self._told: dict[str, tuple[InterruptionNotice, ...]] = {}

    async def poll(self) -> None:
        """Ask every source at once."""
        async with asyncio.TaskGroup() as group:
            for name, source in self._sources.items():
                group.create_task(self._ask(name, source))

    def current(self) -> tuple[InterruptionNotice, ...]:
        """Every standing notice once, the nearest deadline first."""
        unique: dict[tuple[str, NoticeKind], InterruptionNotice] = {}
        for notice in sorted((_legible(each) for told in self._told.values() for each in told), key=_deadline):
            unique.setdefault((notice.instance_id, notice.kind), notice)
        return tuple(unique.values())

    def health(self) -> dict[str, SourceHealth]:
        """How each source does."""
        return {name: source.health() for name, source in self._sources.items()}

    async def watch(self, wake: asyncio.Event) -> None:
        """Run every source, and set `wake` whenever one may have news; never returns."""
        async with asyncio.TaskGroup() as group:
            for name, source in self._sources.items():
                group.create_task(self._run(name, source))
                group.create_task(self._watch(name, source, wake))

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """Tell every source for which instances all its notices are recorded; at every turn, for the whole set."""
        await self._tell(lambda source: source.recorded(instance_ids))

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """Tell every source on which instances nothing is left to hand over; at every turn, for the whole set."""
        await self._tell(lambda source: source.drained(instance_ids))

    async def _tell(self, call: Callable[[NoticeSource], Awaitable[None]]) -> None:
        for name, source in self._sources.items():
            try:
                async with asyncio.timeout(self._time_out_s):
                    await call(source)
            except Exception:
                log.warning("notice_source_hears_nothing", source=name, exc_info=True)

    async def _run(self, name: str, source: NoticeSource) -> None:
        """Again after a failure: what a source does between looks never takes the controller with it."""
        while True:
            try:
                return await source.run()
            except Exception:
                log.warning("notice_source_broke", source=name, exc_info=True)
                await self._clock.sleep(_RETRY_S)

    async def _ask(self, name: str, source: NoticeSource) -> None:
        try:
            async with asyncio.timeout(self._time_out_s):
                told = await source.current()
                self._told[name] = self._skews[name].ours(told) if name in self._skews else told
            self._away.discard(name)
        except Exception:
            if name not in self._away:
                log.warning("notice_source_away", source=name, exc_info=True)
            self._away.add(name)

    async def _watch(self, name: str, source: NoticeSource, wake: asyncio.Event) -> None:
        while True:
            try:
                await source.changed()
            except Exception:
                log.warning("notice_source_cannot_wait", source=name, exc_info=True)
                await self._clock.sleep(_RETRY_S)
            await self._clock.sleep(_RETRY_S if name in self._away else _SETTLE_S)
            wake.set()


def _legible(notice: InterruptionNotice) -> InterruptionNotice:
    """A deadline that is no number names none; compared as it is, it would let later deadlines hide earlier ones."""
    if notice.deadline_s is None or math.isfinite(notice.deadline_s):
        return notice
    return replace(notice, deadline_s=None)


def _deadline(notice: InterruptionNotice) -> tuple[float, str]:
    return (float("inf") if notice.deadline_s is None else notice.deadline_s), notice.instance_id
