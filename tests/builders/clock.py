"""A clock that stands still until told: sleepers wake in the order of their deadlines, ties in the order of their calls."""

import asyncio
import heapq
from itertools import count

_ROUNDS = 50
"""Turns of the event loop that everything woken gets before time moves on; chains of awaits in tests are shorter."""


class FakeClock:
    """`scaler.model.clock.Clock`. Wall and monotonic time run together unless `step` moves the wall."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self._wall_s = now_s
        self._monotonic_s = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        return self._wall_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic_s + seconds, next(self._order), future))
        await future

    def step(self, seconds: float) -> None:
        """Move the wall clock alone, as a clock that is set does."""
        self._wall_s += seconds

    def pass_time(self, seconds: float) -> None:
        """Let time pass without waking anybody: for code that does not wait."""
        self._wall_s += seconds
        self._monotonic_s += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass; everybody due on the way wakes at its own time."""
        end_s = self._monotonic_s + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, future = heapq.heappop(self._sleepers)
            self.pass_time(due_s - self._monotonic_s)
            if not future.done():
                future.set_result(None)
            await self.settle()
        self.pass_time(end_s - self._monotonic_s)

    async def settle(self) -> None:
        """Let everything that can run now run."""
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
