"""Signals of the rollout stage from the ledger.

Depths, rates and ages carry the time at which the ledger was asked; the trainer's own rate carries the time of its
report, so that a trainer that died shows as stale although the ledger answers. An average is as fresh as the reading
that it takes into account.
"""

from scaler.model.job import LedgerStats
from scaler.model.reading import MISSING, Reading
from scaler.model.snapshot import Signals
from scaler.observe.averages import Acceptance, Goodput
from scaler.observe.ledger_watch import LedgerReading
from scaler.observe.signals import SourceContext

ROLLOUT_STAGE = "rollout"
"""The stage whose queue the ledger is."""


class LedgerSignals:
    """See the module's docstring."""

    def __init__(self, context: SourceContext) -> None:
        self._watch = context.ledger
        self._goodput = Goodput(context.averaged_over_s)
        self._acceptance = Acceptance()
        self._taken: LedgerReading | None = None
        self._signals = Signals()

    async def poll(self) -> None:
        """Take the watch's reading, if it is a new one."""
        reading = self._watch.reading
        if reading is None or reading is self._taken:
            return
        self._taken = reading
        self._goodput.update(reading.workers, reading.stats.at_s)
        self._acceptance.update(reading.stats)
        self._signals = self._signals_of(reading)

    def signals(self, stage: str) -> Signals:
        """The rollout stage's signals; all missing for any other."""
        return self._signals if stage == ROLLOUT_STAGE else Signals()

    def _signals_of(self, reading: LedgerReading) -> Signals:
        stats, at_s = reading.stats, reading.read_at_s
        return Signals(
            buffered_samples=Reading(float(stats.buffer_depth), at_s),
            ready_groups=Reading(float(stats.ready_groups), at_s),
            pending_units=Reading(float(stats.pending), at_s),
            running_units=Reading(float(stats.running), at_s),
            unblocked_rate_per_s=_unblocked_rate(reading),
            goodput_per_replica_per_s=_reading(self._accepted_per_replica_per_s(), at_s),
            acceptance_ratio=_reading(self._acceptance.ratio, at_s),
            queue_age_s=Reading(stats.oldest_ready_age_s or 0.0, at_s),
            policy_version=_reading(stats.version, at_s),
            batch_samples=stats.settings.batch_samples,
            batches_per_version=stats.settings.batches_per_version,
            max_staleness=stats.settings.max_staleness,
            phase=stats.trainer.phase if stats.trainer else None,
        )

    def _accepted_per_replica_per_s(self) -> float | None:
        committed, acceptance = self._goodput.per_replica_per_s, self._acceptance.ratio
        if committed is None:
            return None
        return committed * (1.0 if acceptance is None else acceptance)


def _reading(value: float | None, at_s: float) -> Reading:
    return MISSING if value is None else Reading(float(value), at_s)


def _unblocked_rate(reading: LedgerReading) -> Reading:
    stats: LedgerStats = reading.stats
    if stats.trainer is None or stats.trainer_at_s is None:
        return MISSING
    age_s = max(0.0, stats.at_s - stats.trainer_at_s)
    return Reading(stats.trainer.unblocked_samples_per_s, reading.read_at_s - age_s)
