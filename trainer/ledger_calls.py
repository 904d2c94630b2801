"""Calls to a ledger that may be away: repeated with back-off until they succeed or the trainer is asked to stop.

Every call of the contract may be repeated. `StaleEpoch` and `LedgerRefused` are answers and go through.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_when_event_set, wait_exponential

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
        retrying = Retrying(
            retry=retry_if_exception_type(LedgerUnavailable),
            wait=wait_exponential(multiplier=self.backoff_initial_s, max=self.backoff_max_s),
            stop=stop_when_event_set(self.stop),
            sleep=self.clock.pause,
            reraise=True,
        )
        try:
            return retrying(action, self.ledger)
        except LedgerUnavailable as error:
            raise Stopped from error

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
