"""Time in a simulated world: a heap of things that will happen, in order of time, then of asking.

Invariants: time never goes back; what is asked for the past happens now; equal times happen in the order asked, so that a
run depends on nothing but its inputs.
"""

import gc
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[..., None]
PARTS = 200
"""Of a run: how often it is told how far it is."""


class Kernel:
    """The clock and the agenda. Times in seconds from the start of the world."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._asked = 0

    @property
    def events(self) -> int:
        """Things that have happened."""
        return self._asked - len(self._heap)

    def at(self, time_s: float, action: Action, argument: Any = None) -> None:
        """Call `action(argument)` at a time."""
        self._asked += 1
        if time_s < self.now_s:
            time_s = self.now_s
        heappush(self._heap, (time_s, self._asked, action, argument))

    def run(
        self,
        until_s: float,
        after: Callable[[], None] | None = None,
        passed: Callable[[float], None] | None = None,
    ) -> None:
        """Let everything happen that is due before `until_s`; `after` is called after each event, `passed` at times (s).

        Python's collector of cycles rests meanwhile: events leave none, and it would go through all that lives again and again.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            if passed is not None:
                self._run_in_parts(until_s, after, passed)
            self._run(until_s, after)
        finally:
            if collects:
                gc.enable()

    def _run_in_parts(self, until_s: float, after: Callable[[], None] | None, passed: Callable[[float], None]) -> None:
        """All but the last part."""
        begin_s = self.now_s
        for part in range(1, PARTS):
            self._run(begin_s + (until_s - begin_s) * part / PARTS, after)
            passed(self.now_s)

    def _run(self, until_s: float, after: Callable[[], None] | None) -> None:
        heap = self._heap
        while heap and heap[0][0] < until_s:
            self.now_s, _, action, argument = heappop(heap)
            action(argument)
            if after is not None:
                after()
        self.now_s = until_s
