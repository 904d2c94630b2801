"""Lists every pool at once, each with its own time-out; keeps the last complete list of each.

An adapter that fails in any way, its own faults included, is a pool that could not be listed: its list grows old, which
the engine sees, and no other pool waits for it.
"""

import asyncio
from collections.abc import Mapping

import structlog

from scaler.act.base import OfferingFacts, PoolActor, PoolObservation, PoolUnavailable

log = structlog.get_logger()


class PoolWatch:
    """The last complete list of each pool."""

    def __init__(self, time_out_s: float = 10.0) -> None:
        self._time_out_s = time_out_s
        self.observations: dict[str, PoolObservation] = {}
        self.failures_in_a_row: dict[str, int] = {}
        self.facts: dict[str, Mapping[str, OfferingFacts]] = {}
        """What each pool's provider told last of its offerings."""

    async def poll(self, actors: Mapping[str, PoolActor]) -> None:
        """List all pools; forget those that are not in the fleet any more."""
        for name in self.observations.keys() - actors.keys():
            del self.observations[name]
            self.facts.pop(name, None)
        async with asyncio.TaskGroup() as group:
            for name, actor in actors.items():
                group.create_task(self._list(name, actor))

    async def _list(self, name: str, actor: PoolActor) -> None:
        try:
            async with asyncio.timeout(self._time_out_s):
                self.observations[name] = await actor.observe()
                self.facts[name] = actor.facts()
        except (PoolUnavailable, TimeoutError, OSError) as error:
            self._failed(name, repr(error))
        except Exception as error:
            log.exception("pool_adapter_broken", pool=name)
            self._failed(name, repr(error))
        else:
            if self.failures_in_a_row.pop(name, 0):
                log.info("pool_back", pool=name)

    def _failed(self, name: str, error: str) -> None:
        failures = self.failures_in_a_row.get(name, 0) + 1
        self.failures_in_a_row[name] = failures
        if failures == 1:
            log.warning("pool_away", pool=name, error=error)
