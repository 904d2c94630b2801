"""The trainer's sense of time: phases, waits, and how long a version takes to reach all workers."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from scaler.model.job import Phase, WorkerRecord

PhaseListener = Callable[[int, str], None]
"""Called with (step, phase) as a phase is entered."""

ACKNOWLEDGE = "acknowledge"
"""The one moment that is no `Phase` of the design and that a user may want to see: the ledger is told of a checkpoint."""


class TrainerClock(Protocol):
    """Wall and monotonic seconds, and a pause that a stop request ends early."""

    def now_s(self) -> float:
        """UTC seconds since the epoch; may step."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait; returns at once when asked to stop."""
        ...


class SystemClock:
    """This machine's clock; `stop` ends pauses."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def now_s(self) -> float:
        """UTC seconds since the epoch."""
        return time.time()  # noqa: TID251 -- this is the clock that is handed in

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()  # noqa: TID251 -- this is the clock that is handed in

    def pause(self, seconds: float) -> None:
        """Wait for `seconds` or for the stop request."""
        self._stop.wait(seconds)


class PhaseTimer:
    """Seconds spent in each phase of one iteration; phases may be entered more than once, never within each other."""

    def __init__(self, clock: TrainerClock, step: int, listener: PhaseListener) -> None:
        self._clock = clock
        self._step = step
        self._listener = listener
        self._started_s = clock.monotonic_s()
        self.phase_s: dict[Phase, float] = {}

    @contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        """Count what happens inside to `phase`."""
        self._listener(self._step, phase.value)
        entered_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + self._clock.monotonic_s() - entered_s

    def announce(self, moment: str) -> None:
        """Tell the listener of a moment that is not timed."""
        self._listener(self._step, moment)

    @property
    def iteration_s(self) -> float:
        """Seconds since the iteration began."""
        return self._clock.monotonic_s() - self._started_s

    @property
    def wait_s(self) -> float:
        """Seconds of it spent waiting for samples."""
        return self.phase_s.get(Phase.BUFFER_WAIT, 0.0)


class RedistributionWatch:
    """How long the last version took until every ready worker had it; looks only when it is shown the workers.

    A version that is superseded before it was everywhere leaves no figure: there is none.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._published_s = 0.0
        self.last_s: float | None = None

    def published(self, step: int, at_s: float) -> None:
        """A version's weights are readable from now (monotonic seconds) on."""
        self._step, self._published_s = step, at_s

    def observe(self, workers: Sequence[WorkerRecord], at_s: float) -> None:
        """Compare the workers' versions with the one published."""
        ready = [w for w in workers if w.status.ready and not w.gone and w.drain is None]
        step = self._step
        if step is None or not ready:
            return
        if all(w.status.version is not None and w.status.version >= step for w in ready):
            self.last_s, self._step = at_s - self._published_s, None
