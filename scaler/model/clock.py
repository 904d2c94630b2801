"""The one way to ask for the time: time is always handed in, so that tests and the simulator own it."""

from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time, in seconds, and a way to wait."""

    def now_s(self) -> float:
        """UTC seconds since the epoch; may step."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` on this clock."""
        ...
