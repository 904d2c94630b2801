"""How fast and how many at once we may ask: a token bucket with a queue in order of arrival, and a bound on what is open.

The default of other clients (5 a second) stretched 50 interruptions at once to minutes and lost taints: ours are sized for
mass interruption (kubernetes' own flow control is what protects the server). Leases have a lane of their own, so that no
amount of work delays a renewal.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scaler.model.clock import Clock


class TokenBucket:
    """At most `burst` at once and `per_s` a second on the long run. Who gives up waiting has used its token."""

    def __init__(self, clock: Clock, *, per_s: float, burst: int) -> None:
        self._clock = clock
        self._each_s = 1.0 / per_s
        self._credit_s = (burst - 1) * self._each_s
        self._free_at_s = clock.monotonic_s() - self._credit_s

    async def take(self) -> None:
        """Wait for a token."""
        now_s = self._clock.monotonic_s()
        mine_at_s = max(self._free_at_s, now_s - self._credit_s)
        self._free_at_s = mine_at_s + self._each_s
        if mine_at_s > now_s:
            await self._clock.sleep(mine_at_s - now_s)


class Turnstile:
    """A bucket, and room for so many requests at a time."""

    def __init__(self, clock: Clock, *, per_s: float, burst: int, at_once: int) -> None:
        self._bucket = TokenBucket(clock, per_s=per_s, burst=burst)
        self._room = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One request's turn."""
        await self._bucket.take()
        async with self._room:
            yield

    async def token(self) -> None:
        """A token alone: for what stays open long, such as a watch."""
        await self._bucket.take()
