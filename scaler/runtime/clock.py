"""The system's clock: with the ledger's store clock, the only place where time is read."""

import asyncio
import time


class SystemClock:
    """`scaler.model.clock.Clock` on this machine."""

    def now_s(self) -> float:
        """UTC seconds since the epoch; may step."""
        return time.time()  # noqa: TID251 - the one place

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()  # noqa: TID251 - the one place

    async def sleep(self, seconds: float) -> None:
        """Wait; not positive yields once."""
        await asyncio.sleep(max(0.0, seconds))
