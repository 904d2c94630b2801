"""How far a long command is, on standard error: a bar where a person looks at it, elsewhere a plain line now and then.

Policy: a line is due at each tenth that is done, `BETWEEN_S` after the one before it at the earliest, and at anything done
after `QUIET_S` without one, since what reads logs may take silence for a standstill. What is done sooner says nothing.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from scaler.model.clock import Clock
from scaler.runtime.clock import SystemClock
from scaler.simulate.report.amounts import duration, in_terminal

BETWEEN_S = 10.0
QUIET_S = 60.0

Tell: TypeAlias = Callable[[float], None]
"""To be called with how much is done so far, of the total; as often as one likes."""


@contextmanager
def progress(label: str, total: float, *, as_share: bool = False, clock: Clock | None = None) -> Iterator[Tell]:
    """Tell how far it is. `as_share`: in percent of the total, which is no number of things."""
    if not sys.stderr.isatty():
        yield _Lines(label, total, as_share, clock or SystemClock()).tell
        return
    far = TaskProgressColumn() if as_share else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), far, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total)
        yield lambda done: shown.update(task, completed=done)


class _Lines:
    """What was told last, and when."""

    def __init__(self, label: str, total: float, as_share: bool, clock: Clock) -> None:
        self._label, self._total, self._as_share, self._clock = label, total, as_share, clock
        self._told = 0.0
        self._began_s = self._told_s = clock.monotonic_s()

    def tell(self, done: float) -> None:
        now_s = self._clock.monotonic_s()
        if done > self._told and now_s - self._told_s >= (BETWEEN_S if self._is_another_tenth(done) else QUIET_S):
            passed = in_terminal(duration((now_s - self._began_s) / 3600.0))
            print(f"{self._label}: {self._far(done)} after {passed}", file=sys.stderr)
            self._told, self._told_s = done, now_s

    def _is_another_tenth(self, done: float) -> bool:
        return 10.0 * done // self._total > 10.0 * self._told // self._total

    def _far(self, done: float) -> str:
        return f"{done / self._total:.0%}" if self._as_share else f"{done:g} of {self._total:g}"
