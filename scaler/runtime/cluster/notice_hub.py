"""Notice sources are the cluster's, fleets share them: one hub asks, every fleet looks at what it was told.

Invariants
* A source hears of `recorded` and `drained` for all fleets together, whole sets every time; a fleet that goes, or hangs, takes
  only its own share with it, and never waits for a source. A wake-up reaches every fleet.
* A fleet has recorded what it saw when it looked last. An instance of which the sources have told something else since is left
  out of what they hear, until the fleet has looked again: a notice that nobody acted on yet is never acknowledged.
* Asking and telling take turns, so that a source is never told about more than it was asked for.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from scaler.interruptions.base import SourceHealth
from scaler.kube.waiting import first_of
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice
from scaler.runtime.notice_watch import NoticeWatch

_ASK_EVERY_S = 5.0
"""Besides every wake-up: sources are level-based."""

Seen = Mapping[str, frozenset[InterruptionNotice]]


class NoticeHub:
    """See the module's docstring."""

    def __init__(self, watch: NoticeWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._news = asyncio.Event()
        self._told_us = asyncio.Event()
        self._fleets: dict[str, FleetNotices] = {}
        self._current: tuple[InterruptionNotice, ...] = ()
        self._by_instance: Seen = {}

    def join(self, fleet: str, wake: Callable[[], None]) -> "FleetNotices":
        """A fleet's view, by its UID; `wake` is called whenever there may be something new."""
        self._fleets[fleet] = FleetNotices(self, wake)
        return self._fleets[fleet]

    def leave(self, fleet: str) -> None:
        """The fleet is no more, or begins anew: what it had recorded is asked for no longer."""
        self._fleets.pop(fleet, None)

    async def run(self) -> None:
        """Ask, wake and tell; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.watch(self._news))
            group.create_task(self._tick())
            while True:
                if self._news.is_set():
                    self._news.clear()
                    await self._ask()
                self._told_us.clear()
                await self._tell()
                await self._pause()

    async def _tick(self) -> None:
        while True:
            self._news.set()
            await self._clock.sleep(_ASK_EVERY_S)

    async def _ask(self) -> None:
        await self._watch.poll()
        current = self._watch.current()
        if current == self._current:
            return
        self._current, self._by_instance = current, _by_instance(current)
        for fleet in list(self._fleets.values()):
            fleet.wake()

    async def _tell(self) -> None:
        fleets = list(self._fleets.values())
        await self._watch.recorded(frozenset().union(*(fleet.still_recorded(self._by_instance) for fleet in fleets)))
        await self._watch.drained(frozenset().union(*(fleet.drained_ids for fleet in fleets)))

    async def _pause(self) -> None:
        await first_of(self._news.wait(), self._told_us.wait())

    def tell_soon(self) -> None:
        """A fleet has something to tell."""
        self._told_us.set()

    def current(self) -> tuple[InterruptionNotice, ...]:
        """Every standing notice once, as last asked."""
        return self._current

    def by_instance(self) -> Seen:
        """The same, by instance."""
        return self._by_instance

    def health(self) -> Mapping[str, SourceHealth]:
        """How each source does."""
        return self._watch.health()


class FleetNotices:
    """One fleet's view of the hub."""

    def __init__(self, hub: NoticeHub, wake: Callable[[], None]) -> None:
        self._hub = hub
        self._seen: Seen = {}
        self._recorded: Mapping[str, frozenset[InterruptionNotice]] = {}
        self.wake = wake
        self.drained_ids: frozenset[str] = frozenset()

    async def poll(self) -> None:
        """The hub asks."""

    def current(self) -> tuple[InterruptionNotice, ...]:
        """Every standing notice once; those of others' instances are nobody's business here."""
        self._seen = self._hub.by_instance()
        return self._hub.current()

    def health(self) -> Mapping[str, SourceHealth]:
        """How each source does."""
        return self._hub.health()

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """Of this fleet's instances, those of which all that `current` told last is where a crash cannot lose it."""
        self._recorded = {each: self._seen.get(each, frozenset()) for each in instance_ids}
        self._hub.tell_soon()

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """Of this fleet's instances, those with nothing left to hand over."""
        self.drained_ids = instance_ids
        self._hub.tell_soon()

    def still_recorded(self, told: Seen) -> Iterable[str]:
        """Those of which the sources have told nothing else since."""
        return (each for each, notices in self._recorded.items() if told.get(each, frozenset()) <= notices)


def _by_instance(notices: Iterable[InterruptionNotice]) -> Seen:
    found: dict[str, set[InterruptionNotice]] = {}
    for notice in notices:
        found.setdefault(notice.instance_id, set()).add(notice)
    return {instance_id: frozenset(each) for instance_id, each in found.items()}
