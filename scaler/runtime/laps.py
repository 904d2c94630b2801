"""How long the parts of something take, one after another, and what of it is this thread's processor time.

On a busy machine the first tells how long something waited, too; the second does not.
"""

import time
from collections.abc import Callable, Mapping

from scaler.model.clock import Clock


class Laps:
    """Begins when it is made. `cpu_s`: processor time so far, seconds."""

    def __init__(self, clock: Clock, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._cpu_s = cpu_s
        self._began_cpu_s = cpu_s()
        self._began_s = self._since_s = clock.monotonic_s()
        self._taken_s: dict[str, float] = {}

    def end(self, part: str) -> None:
        """A part has ended now; the next one begins."""
        now_s = self._clock.monotonic_s()
        self._taken_s[part] = now_s - self._since_s
        self._since_s = now_s

    @property
    def taken_s(self) -> Mapping[str, float]:
        """Of each part that has ended, seconds."""
        return self._taken_s

    @property
    def total_s(self) -> float:
        """From the beginning to the end of the last part."""
        return self._since_s - self._began_s

    @property
    def cpu_s(self) -> float:
        """Processor time since the beginning: of whatever this thread did meanwhile."""
        return self._cpu_s() - self._began_cpu_s
