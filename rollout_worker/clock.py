"""The machine's own clock: the one place of the worker that asks the operating system for the time."""

import asyncio
import time


class SystemClock:
    """A `scaler.model.clock.Clock` on the operating system's clocks."""

    def now_s(self) -> float:
        """UTC seconds since the epoch; may step."""
        return time.time()  # noqa: TID251 (this is the clock)

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()  # noqa: TID251 (this is the clock)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
