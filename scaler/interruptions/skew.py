"""Notices of another clock, on ours: deadlines are reckoned by the clock that keeps them, and kept by ours.

Policy: the difference is known to a second or so, and is applied once it is more than that; a new one is taken only where it
differs clearly, so that a deadline does not wobble from look to look.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from scaler.model.interruption import InterruptionNotice

_CLEARLY_S = 2.0


class Skew:
    """How far another clock is ahead. `ask` gives seconds, good to one; None where nobody knows yet."""

    def __init__(self, ask: Callable[[], float | None]) -> None:
        self._ask = ask
        self._applied_s = 0.0

    def ours(self, notices: Sequence[InterruptionNotice]) -> tuple[InterruptionNotice, ...]:
        """The notices with their times on our clock."""
        told_s = self._ask()
        if told_s is not None and abs(told_s - self._applied_s) > _CLEARLY_S:
            self._applied_s = told_s
        return tuple(map(self._shifted, notices)) if self._applied_s else tuple(notices)

    def _shifted(self, notice: InterruptionNotice) -> InterruptionNotice:
        deadline_s = None if notice.deadline_s is None else notice.deadline_s - self._applied_s
        return replace(notice, noticed_at_s=notice.noticed_at_s - self._applied_s, deadline_s=deadline_s)
