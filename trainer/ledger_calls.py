"""Calls to a ledger that may be away: repeated with back-off until they succeed or the trainer is asked to stop.

Every call of the contract may be repeated. `StaleEpoch` and `LedgerRefused` are answers and go through.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from scaler.ledger.contract import Ledger, LedgerUnavailable
from trainer.timing import TrainerClock

T = TypeVar("T")


class Stopped(Exception):
    """The trainer was asked to stop while it waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCalls:
    """The ledger, reached patiently."""

    ledger: Ledger
    clock: TrainerClock
    stop: threading.Event
    backoff_initial_s: float = 0.1
    backoff_max_s: float = 5.0

    def call(self, action: Callable[[Ledger], T]) -> T:
        """The action's answer; `Stopped` where none came before the stop request."""
        wait_s = self.backoff_initial_s
        while True:
            try:
                return action(self.ledger)
            except LedgerUnavailable as error:
                if self.stop.is_set():
                    raise Stopped from error
            self.clock.pause(wait_s)
            wait_s = min(2.0 * wait_s, self.backoff_max_s)

    def wait_for(
        self, action: Callable[[Ledger], T | None], *, poll_s: float, limit_s: float | None, idle: Callable[[], None]
    ) -> T | None:
        """The action's first answer that is not None; None after `limit_s` seconds. `idle` is called between attempts.

        Raises:
            Stopped: asked to stop before an answer came.
        """
        began_s = self.clock.monotonic_s()
        while (answer := self.call(action)) is None:
            if self.stop.is_set():
                raise Stopped
            if limit_s is not None and self.clock.monotonic_s() - began_s >= limit_s:
                return None
            idle()
            self.clock.pause(poll_s)
        return answer
