"""An event loop without a machine under it: time stands still while anything can run, then jumps to the next timer.

So hours pass in milliseconds, `asyncio` code of production runs unchanged, and one seed gives one order of events.
"""

import asyncio
from typing import Any, cast

START_S = 1_000_000.0
"""True time when the loop's clock shows 0."""


class _Skip:
    """Stands where a selector would wait for sockets."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set")
        self._loop.skip(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        ours = cast("Any", self)
        ours._selector = _Skip(self)
        # Sums of floats: timers that are due to within this are due.
        ours._clock_resolution = 1e-6

    def time(self) -> float:
        return self._now_s

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds

    def run_until_s(self, at_s: float) -> None:
        """Run everything that is due by `at_s`."""
        timer = self.call_at(at_s, self.stop)
        self.run_forever()
        timer.cancel()

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits in a system call."""


class HostClock:
    """A machine's clock (`scaler.model.clock.Clock`): its wall may be wrong and step, its monotonic time is true."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.ahead_s = 0.0
        self.stepped_at_s = float("-inf")
        """True time of the last step."""

    def now_s(self) -> float:
        return START_S + self._loop.time() + self.ahead_s

    def monotonic_s(self) -> float:
        return self._loop.time()

    def step(self, seconds: float) -> None:
        """Set the wall, as an operator or a time daemon does."""
        self.ahead_s += seconds
        self.stepped_at_s = self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
