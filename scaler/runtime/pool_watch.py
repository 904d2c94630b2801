"""Lists every pool at once, each with its own time-out; keeps the last complete list of each.

Policy: a list of thousands of instances takes seconds, and no decision waits for it longer than a moment, or at all where the
last one took longer: it goes on beside the loop, one of a pool at a time, and the turn is made on the list before. One that
comes late and tells something new wakes the loop. After it the pool is left alone for a multiple of the time that its list took,
as far as the age of its list allows: a large fleet always has something new to tell, and lists close upon lists would take the
processor from the decisions, and AWS's rate from the launches. How old a list is stands in it (`listed_at_s`), and the engine
holds on one that is too old.

An adapter that fails in any way, its own faults included, is a pool that could not be listed: its list grows old, which
the engine sees, and no other pool waits for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from scaler.act.base import OfferingFacts, PoolActor, PoolObservation, PoolUnavailable
from scaler.model.clock import Clock

log = structlog.get_logger()

PATIENCE_S = 0.2
"""So long a turn waits for lists: those of small pools are there by then."""
_LISTS_TAKE_ONE_IN = 5.0
"""Of the time, where lists come late."""
_Task = asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Slow:
    """A pool whose last list came late: no turn waits for the next one either."""

    actor: PoolActor
    rests_until_s: float
    """Monotonic."""


def rest_s(took_s: float, oldest_s: float) -> float:
    """How long a pool is left alone whose list took so long, and may be so old before the next one is there."""
    return max(0.0, min((_LISTS_TAKE_ONE_IN - 1.0) * took_s, oldest_s - 2.0 * took_s))


def _nobody() -> None:
    """Where nobody is to be woken."""


class PoolWatch:
    """The last complete list of each pool."""

    def __init__(self, clock: Clock, time_out_s: float = 30.0, patience_s: float = PATIENCE_S) -> None:
        self._clock = clock
        self._time_out_s = time_out_s
        self._patience_s = patience_s
        self._under_way: dict[str, tuple[PoolActor, _Task]] = {}
        self._waited_for = False
        self._oldest_s = 0.0
        self._slow: dict[str, _Slow] = {}
        self.late: Callable[[], None] = _nobody
        """Hears of a list that came when no turn waited for it, and is not the one before."""
        self.observations: dict[str, PoolObservation] = {}
        self.failures_in_a_row: dict[str, int] = {}
        self.facts: dict[str, Mapping[str, OfferingFacts]] = {}
        """What each pool's provider told last of its offerings."""

    async def poll(self, actors: Mapping[str, PoolActor], group: asyncio.TaskGroup, oldest_s: float) -> None:
        """Have all pools listed, in `group`, and wait for it a while; forget those that are not in the fleet any more.

        `oldest_s`: how old a list may be when the next one is there, if that takes no longer.
        """
        self._oldest_s = oldest_s
        for name in self.observations.keys() - actors.keys():
            del self.observations[name]
            self.facts.pop(name, None)
        self._slow = {name: slow for name, slow in self._slow.items() if slow.actor is actors.get(name)}
        due = {name: actor for name, actor in actors.items() if not self._is_at_rest(name)}
        self._under_way = {name: (actor, self._listing(name, actor, group)) for name, actor in due.items()}
        quick = [task for name, (_, task) in self._under_way.items() if name not in self._slow]
        if quick:
            self._waited_for = True
            try:
                await asyncio.wait(quick, timeout=self._patience_s)
            finally:
                self._waited_for = False

    def _is_at_rest(self, name: str) -> bool:
        slow = self._slow.get(name)
        return slow is not None and self._clock.monotonic_s() < slow.rests_until_s

    def _listing(self, name: str, actor: PoolActor, group: asyncio.TaskGroup) -> _Task:
        """The list that is being made of a pool; one by an actor that is no more is left to itself."""
        whose, task = self._under_way.get(name, (None, None))
        if task is not None and whose is actor and not task.done():
            return task
        return group.create_task(self._list(name, actor))

    async def _list(self, name: str, actor: PoolActor) -> None:
        began_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(self._time_out_s):
                listed = await actor.observe()
            facts = actor.facts()
        except (PoolUnavailable, TimeoutError, OSError) as error:
            self._failed(name, repr(error))
            self._time(name, actor, began_s, rests=False)
        except Exception as error:
            log.exception("pool_adapter_broken", pool=name)
            self._failed(name, repr(error))
        else:
            if self._under_way.get(name, (None, None))[0] is actor:
                self._take(name, listed, facts)
                self._time(name, actor, began_s, rests=True)
            if self.failures_in_a_row.pop(name, 0):
                log.info("pool_back", pool=name)

    def _time(self, name: str, actor: PoolActor, began_s: float, *, rests: bool) -> None:
        now_s = self._clock.monotonic_s()
        took_s = now_s - began_s
        self._slow.pop(name, None)
        if took_s > self._patience_s:
            self._slow[name] = _Slow(actor, now_s + (rest_s(took_s, self._oldest_s) if rests else 0.0))

    def _take(self, name: str, listed: PoolObservation, facts: Mapping[str, OfferingFacts]) -> None:
        before = self.observations.get(name)
        self.observations[name], self.facts[name] = listed, facts
        if not self._waited_for and not _tells_the_same(before, listed):
            self.late()

    def _failed(self, name: str, error: str) -> None:
        failures = self.failures_in_a_row.get(name, 0) + 1
        self.failures_in_a_row[name] = failures
        if failures == 1:
            log.warning("pool_away", pool=name, error=error)


def _tells_the_same(before: PoolObservation | None, now: PoolObservation) -> bool:
    """Whether a decision on one could be no other than on the other, but for their age."""
    return before is not None and replace(before, listed_at_s=now.listed_at_s) == now
