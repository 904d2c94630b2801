"""Goodput of a ready replica and acceptance, from counters that only grow.

Policy: goodput = committed samples per *busy* replica-second x acceptance. A replica that is ready but was given nothing
(the buffer is full and admission holds work back) is not slow: counted as idle time it would make the fleet look weak
and grow it further, for ever. So a replica's second counts by the share of its slots in use. Nothing counts before the
first commit: units in flight at the start have used time and committed nothing yet.

Acceptance is accepted over decided (accepted or dropped): samples still in the buffer are neither.
Averages are ratios of sums that both decay, so that the lumps in which samples arrive do not matter.
"""

import math
from collections.abc import Iterable, Mapping

from scaler.model.job import LedgerStats, WorkerRecord

_ACCEPTANCE_BATCHES = 10
"""Acceptance is averaged over about this many batches: some filtered groups in one batch are no trend."""


class DecayingRatio:
    """Sum of parts over sum of wholes, both forgotten exponentially."""

    def __init__(self) -> None:
        self._part = 0.0
        self._whole = 0.0

    def add(self, part: float, whole: float, forget: float) -> None:
        """Add a step after `forget` time constants."""
        keep = math.exp(-forget)
        self._part = self._part * keep + part
        self._whole = self._whole * keep + whole

    @property
    def value(self) -> float | None:
        """The ratio; None before there was anything to divide by."""
        return self._part / self._whole if self._whole > 0 else None


class Goodput:
    """Committed samples per busy replica-second, over all workers that the ledger knows."""

    def __init__(self, averaged_over_s: float) -> None:
        self._averaged_over_s = averaged_over_s
        self._ratio = DecayingRatio()
        self._committed: Mapping[tuple[str, int], int] | None = None
        self._at_s = 0.0
        self._begun = False

    def update(self, workers: Iterable[WorkerRecord], at_s: float) -> None:
        """Take a reading at `at_s` (any one clock that does not go back; a step back is skipped)."""
        workers = tuple(workers)
        before, elapsed_s = self._committed, at_s - self._at_s
        self._committed = {(w.identity.worker, w.incarnation): w.committed_samples for w in workers}
        self._at_s = at_s
        if before is None or elapsed_s <= 0:
            return
        committed = sum(max(0, now - before.get(key, 0)) for key, now in self._committed.items())
        busy_s = elapsed_s * sum(map(_busy_share, workers))
        if self._begun and busy_s + committed > 0:
            self._ratio.add(committed, busy_s, elapsed_s / self._averaged_over_s)
        self._begun = self._begun or committed > 0

    @property
    def per_replica_per_s(self) -> float | None:
        """Committed samples a second of one ready, busy replica; None until known."""
        return self._ratio.value


def _busy_share(worker: WorkerRecord) -> float:
    if worker.gone or worker.drain is not None or not worker.status.ready:
        return 0.0
    capacity = worker.status.capacity_units
    return min(1.0, worker.status.running_units / capacity) if capacity else float(worker.status.running_units > 0)


class Acceptance:
    """Accepted samples over decided ones."""

    def __init__(self) -> None:
        self._ratio = DecayingRatio()
        self._before: tuple[int, int] | None = None

    def update(self, stats: LedgerStats) -> None:
        """Take a reading. The first one counts whole: it is the job's history."""
        dropped = sum(sum(lengths.values()) for lengths in stats.dropped.values())
        accepted_before, dropped_before = self._before or (0, 0)
        self._before = (stats.accepted, dropped)
        accepted_more, dropped_more = max(0, stats.accepted - accepted_before), max(0, dropped - dropped_before)
        decided = accepted_more + dropped_more
        if decided:
            window = _ACCEPTANCE_BATCHES * stats.settings.batch_samples
            self._ratio.add(accepted_more, decided, decided / window)

    @property
    def ratio(self) -> float | None:
        """0 to 1; None until something was decided."""
        return self._ratio.value
