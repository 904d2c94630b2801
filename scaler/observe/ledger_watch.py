"""The ledger as the controller sees it: one reading of stats and workers a tick, and what it read last.

Invariants: a store that is away changes nothing of the last reading, not even its time, so that readings grow old and
are never taken for zero. The store's clock is used for nothing but its distance to ours.
Non-goals: no call here changes the ledger.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from scaler.ledger.contract import Ledger, LedgerError, LedgerUnavailable
from scaler.model.clock import Clock
from scaler.model.job import LedgerStats, WorkerRecord

T = TypeVar("T")


class LedgerCalls(Protocol):
    """How the controller calls its ledger: one job at a time, off the event loop, never longer than its time-out."""

    async def call(self, job: Callable[[Ledger], T], time_out_s: float | None = None) -> T:
        """Run `job` on the ledger.

        Raises:
            LedgerUnavailable: the store, or the job, did not answer in time.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReading:
    """One consistent reading. `read_at_s` is the controller's clock when the question was asked."""

    stats: LedgerStats
    workers: tuple[WorkerRecord, ...]
    read_at_s: float
    store_ahead_s: float
    """Store clock minus controller's clock; good to half a round trip."""

    def local_s(self, store_s: float) -> float:
        """The controller's time of a store's time."""
        return store_s - self.store_ahead_s


_GAP_S = 30.0
"""A store that was away for longer leaves time in which a worker may have come, or been unable to, and nobody saw it."""


class LedgerWatch:
    """Reads the ledger, keeps the last reading and says how the store does."""

    def __init__(self, calls: LedgerCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self.reading: LedgerReading | None = None
        self.failures_in_a_row = 0
        self.errors = 0
        self.last_error: str | None = None
        self.away = False
        """It did not answer when it was last read."""
        self.refuses = False
        """It did answer when it was last read, and may not be used as it is: no rights, another version, no rules yet."""
        self._gapless_since_s = 0.0

    def gapless_since_s(self) -> float:
        """Since when (our clock) there has been no gap between readings; now, where there is one."""
        now_s = self._clock.now_s()
        return now_s if self._is_gap(now_s) else self._gapless_since_s

    async def poll(self) -> bool:
        """Read once; False where the store is away or may not be used, and then the last reading stands."""
        asked_at_s = self._clock.now_s()
        try:
            stats, workers = await self._calls.call(_read)
        except LedgerError as error:
            self.failures_in_a_row += 1
            self.errors += 1
            self.last_error = f"{type(error).__name__}: {error}"
            self.away = isinstance(error, LedgerUnavailable)
            self.refuses = not self.away
            return False
        if self._is_gap(asked_at_s):
            self._gapless_since_s = asked_at_s
        middle_s = (asked_at_s + self._clock.now_s()) / 2
        self.reading = LedgerReading(
            stats=stats, workers=workers, read_at_s=asked_at_s, store_ahead_s=stats.at_s - middle_s
        )
        self.failures_in_a_row = 0
        self.last_error = None
        self.away = self.refuses = False
        return True

    def _is_gap(self, now_s: float) -> bool:
        return self.reading is None or (self.failures_in_a_row > 0 and now_s - self.reading.read_at_s > _GAP_S)


def _read(ledger: Ledger) -> tuple[LedgerStats, tuple[WorkerRecord, ...]]:
    return ledger.stats(), ledger.workers()
