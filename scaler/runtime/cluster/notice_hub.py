"""Notice sources are the cluster's, fleets share them: one hub asks, every fleet looks at what it was told.

Invariants: a source hears of `recorded` and `drained` for all fleets together, whole sets every time; a fleet that goes, or
hangs, takes only its own share with it. A wake-up reaches every fleet.
"""

import asyncio
from collections.abc import Callable, Mapping

from scaler.interruptions.base import SourceHealth
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice
from scaler.runtime.notice_watch import NoticeWatch

_ASK_EVERY_S = 5.0
"""Besides every wake-up: sources are level-based."""


class NoticeHub:
    """See the module's docstring."""

    def __init__(self, watch: NoticeWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._news = asyncio.Event()
        self._fleets: dict[str, FleetNotices] = {}

    def join(self, fleet: str, wake: Callable[[], None]) -> "FleetNotices":
        """A fleet's view; `wake` is called whenever there may be something new."""
        self._fleets[fleet] = FleetNotices(self, wake)
        return self._fleets[fleet]

    def leave(self, fleet: str) -> None:
        """The fleet is no more, or begins anew: what it had recorded is asked for no longer."""
        self._fleets.pop(fleet, None)

    async def run(self) -> None:
        """Ask, and wake; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.watch(self._news))
            while True:
                await self._ask()
                await self._pause()

    async def _ask(self) -> None:
        before = self._watch.current()
        await self._watch.poll()
        if self._watch.current() != before:
            for fleet in list(self._fleets.values()):
                fleet.wake()

    async def _pause(self) -> None:
        async with asyncio.TaskGroup() as group:
            ways = {group.create_task(self._clock.sleep(_ASK_EVERY_S)), group.create_task(self._news.wait())}
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        self._news.clear()

    def current(self) -> tuple[InterruptionNotice, ...]:
        """Every standing notice once, as last asked."""
        return self._watch.current()

    def health(self) -> Mapping[str, SourceHealth]:
        """How each source does."""
        return self._watch.health()

    async def tell(self) -> None:
        """Pass on what all fleets together have recorded and drained."""
        fleets = list(self._fleets.values())
        await self._watch.recorded(frozenset().union(*(fleet.recorded_ids for fleet in fleets)))
        await self._watch.drained(frozenset().union(*(fleet.drained_ids for fleet in fleets)))


class FleetNotices:
    """One fleet's view of the hub."""

    def __init__(self, hub: NoticeHub, wake: Callable[[], None]) -> None:
        self._hub = hub
        self.wake = wake
        self.recorded_ids: frozenset[str] = frozenset()
        self.drained_ids: frozenset[str] = frozenset()

    async def poll(self) -> None:
        """The hub asks."""

    def current(self) -> tuple[InterruptionNotice, ...]:
        """Every standing notice once; those of others' instances are nobody's business here."""
        return self._hub.current()

    def health(self) -> Mapping[str, SourceHealth]:
        """How each source does."""
        return self._hub.health()

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """Of this fleet's instances, those whose notice a crash cannot lose any more."""
        self.recorded_ids = instance_ids
        await self._hub.tell()

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """Of this fleet's instances, those with nothing left to hand over."""
        self.drained_ids = instance_ids
        await self._hub.tell()
