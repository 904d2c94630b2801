"""How many ready replicas meet the consumer's unblocked rate: what every policy that reckons with rates starts from.

    n* = rate / goodput

rate     unblocked rate of the consumer (samples/s), EWMA. A starved consumer's own rate would settle the loop in starvation.
goodput  accepted samples/s of one ready replica, EWMA. The signal carries the acceptance ratio already.

What the goodput may learn. Workers that idle because the buffer is full, because nothing is pending, or because admission is
used up look slow and are not; dividing by that would buy more of them, which would look slower still. So it goes down only
while the buffer is below `target` and every ready replica has work; it goes up at any time. Zero counts as not measured.

The first readings count for little: until it is older than its time constant, its age is the time constant.

Invariants: rate missing, stale or invalid, or goodput invalid: hold; a goodput that is not fresh while replicas are ready
never lowers (`may_lower`).
Non-goals: what to do with the number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from policies.base import SizingInput
from policies.ewma import remembered, smooth
from policies.freshness import reason_to_hold
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Reason, ReasonCode
from scaler.model.reading import Freshness, Reading
from scaler.model.snapshot import Signals, StageView

AT_S, RATE, GOODPUT, SINCE_S = "at_s", "rate_per_s", "goodput_per_s", "goodput_since_s"
"""Memory: when it was last updated, the two averages (samples/s), and since when the goodput is averaged."""

NEXT_TO_NOTHING_PER_S = 1e-9
"""A sample in thirty years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    """Time constants, and where the goodput starts before it was measured."""

    rate_time_constant_s: float
    goodput_time_constant_s: float
    initial_goodput_per_replica_per_s: float | None = None


class Demand(NamedTuple):
    """Rates in samples/s. `goodput` None: never measured nor declared. `elapsed_s`: since the last judgement, 0 at first."""

    rate: float
    goodput: float | None
    may_lower: bool
    elapsed_s: float
    memory: Mapping[str, float]
    """To be kept for the next judgement."""

    @property
    def balance(self) -> float | None:
        """n*, not rounded; None while no goodput is known that could be divided by."""
        return self.rate / self.goodput if self.goodput is not None and self.goodput > NEXT_TO_NOTHING_PER_S else None


def demand_hold(view: SizingInput, **more: Reading) -> Reason | None:
    """Why the demand, and `more` readings by name, cannot be judged now; None where they can."""
    signals = view.stage.signals
    needed = {"unblocked_rate_per_s": signals.unblocked_rate_per_s, **more}
    return reason_to_hold(needed, view.now_s, view.signal_max_age_s) or _invalid_goodput(view)


def _invalid_goodput(view: SizingInput) -> Reason | None:
    """A goodput that is missing or old may be expected; one that is NaN or negative never is."""
    goodput = {"goodput_per_replica_per_s": view.stage.signals.goodput_per_replica_per_s}
    reason = reason_to_hold(goodput, view.now_s, view.signal_max_age_s)
    return reason if reason is not None and reason.code is ReasonCode.HOLD_SIGNAL_INVALID else None


def read_demand(view: SizingInput, averaging: Averaging, target_samples: float) -> Demand:
    """Both averages after this reading; call it only where `demand_hold` is None."""
    elapsed_s = view.now_s - view.memory.get(AT_S, view.now_s)
    rate = smooth(
        remembered(view.memory, RATE),
        view.stage.signals.unblocked_rate_per_s.value or 0.0,
        elapsed_s,
        averaging.rate_time_constant_s,
    )
    measured = _fresh_goodput(view)
    goodput = _goodput(view, averaging, measured, elapsed_s, target_samples)
    return Demand(
        rate=rate,
        goodput=goodput,
        may_lower=measured is not None or view.ready == 0,
        elapsed_s=max(0.0, elapsed_s),
        memory={AT_S: view.now_s, RATE: rate, **_goodput_memory(view, goodput)},
    )


def _goodput_memory(view: SizingInput, goodput: float | None) -> Mapping[str, float]:
    if goodput is None:
        return {}
    if GOODPUT not in view.memory:
        return {GOODPUT: goodput, SINCE_S: view.now_s}
    return {GOODPUT: goodput, **({SINCE_S: view.memory[SINCE_S]} if SINCE_S in view.memory else {})}


def admitted_samples(signals: Signals) -> float:
    """Samples that the staleness bound lets into buffer and flight together (design section 4, admission)."""
    versions = max(0, signals.max_staleness) + 1
    return float(versions * max(1, signals.batches_per_version) * max(1, signals.batch_samples))


def _fresh_goodput(view: SizingInput) -> float | None:
    reading = view.stage.signals.goodput_per_replica_per_s
    fresh = reading.freshness(view.now_s, view.signal_max_age_s) is Freshness.FRESH
    return reading.value if fresh else None


def _goodput(
    view: SizingInput, averaging: Averaging, measured: float | None, elapsed_s: float, target: float
) -> float | None:
    """The average after this reading; zero counts as not measured, since nothing divides by it."""
    before = remembered(view.memory, GOODPUT) or averaging.initial_goodput_per_replica_per_s
    if not measured:
        return before
    if before is not None and measured < before and _idles(view.stage, target):
        return before
    young_s = max(0.0, view.now_s - view.memory.get(SINCE_S, -math.inf))
    return smooth(before, measured, elapsed_s, min(averaging.goodput_time_constant_s, young_s))


def _idles(stage: StageView, target: float) -> bool:
    """Whether workers look slow only because there is nothing to do, or no room for what they would do."""
    signals = stage.signals
    depth = signals.buffered_samples.value or 0.0
    if depth >= target or signals.pending_units.value == 0:
        return True
    used_up = depth + (signals.running_units.value or 0.0) >= admitted_samples(signals)
    return used_up and any(
        replica.phase is ReplicaPhase.READY and not replica.running_units for replica in stage.replicas
    )
