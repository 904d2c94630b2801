"""Time, chance and names of the simulated region.

Policy: nothing runs by itself. What is due is done, in its order and at its own time, when anybody looks (`advance`), so a
fake clock can jump hours and a server over real time only has to look often. The region's clock runs on the injected clock's
monotonic time from its wall time at the start: a step of the controller's clock moves nothing here, and `skew_s` sets this
region apart from it.
Invariants: one lock guards the whole region; ties run in the order in which they were planned.
"""

import heapq
import random
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count

from scaler.model.clock import Clock


class Timer:
    """Something planned; may be called off."""

    __slots__ = ("act", "due_s")

    def __init__(self, due_s: float, act: Callable[[], None]) -> None:
        self.due_s = due_s
        self.act: Callable[[], None] | None = act

    def cancel(self) -> None:
        """Never run it."""
        self.act = None


class Kernel:
    """See the module's docstring. Times told to others are seconds of UTC on the region's clock."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.lock = threading.RLock()
        self.rng = random.Random(seed)
        self.skew_s = 0.0
        self._clock = clock
        self._wall_s = clock.now_s()
        self._started_s = clock.monotonic_s()
        self._elapsed_s = 0.0
        self._agenda: list[tuple[float, int, Timer]] = []
        self._order = count()

    def now_s(self) -> float:
        """The region's wall time of what is being done now."""
        return self._wall_s + self._elapsed_s + self.skew_s

    def date(self) -> datetime:
        """The same as a date."""
        return as_date(self.now_s())

    def after(self, delay_s: float, act: Callable[[], None]) -> Timer:
        """Plan something."""
        timer = Timer(self._elapsed_s + max(0.0, delay_s), act)
        heapq.heappush(self._agenda, (timer.due_s, next(self._order), timer))
        return timer

    def advance(self) -> None:
        """Do everything that is due by the injected clock."""
        until_s = max(self._elapsed_s, self._clock.monotonic_s() - self._started_s)
        while self._agenda and self._agenda[0][0] <= until_s:
            _, _, timer = heapq.heappop(self._agenda)
            self._elapsed_s = max(self._elapsed_s, timer.due_s)
            act, timer.act = timer.act, None
            if act is not None:
                act()
        self._elapsed_s = until_s

    def hex_id(self, prefix: str, digits: int = 17) -> str:
        """A new name, such as `i-0123456789abcdef0`."""
        return f"{prefix}{self.rng.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        """A new UUID of the seed."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


def as_date(at_s: float) -> datetime:
    """Seconds of UTC as a date."""
    return datetime.fromtimestamp(at_s, UTC)


def iso(at_s: float) -> str:
    """`2026-01-31T12:00:00Z`."""
    return as_date(at_s).strftime("%Y-%m-%dT%H:%M:%SZ")
