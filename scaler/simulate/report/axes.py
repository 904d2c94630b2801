"""Scales and the values at which an axis is marked."""

import math
from dataclasses import dataclass

_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
_HOUR_STEPS = (0.25, 0.5, 1.0, 2.0, 3.0, 6.0, 12.0)
_DAY_STEPS = tuple(24.0 * days for days in (1, 2, 4, 7, 14, 28))
_DAYS_FROM_H = 100.0
_UNITS = ((_DAYS_FROM_H, 24.0, "days"), (1.0, 1.0, "hours"), (1 / 60, 1 / 60, "minutes"))
"""From how many hours on, how many hours it has, and its name."""
_MOST_HOUR_TICKS, _MOST_SHORT_TICKS = 14, 8
_LEAST_STEP = 1e-300
"""Smaller numbers have too few digits for a power of ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps [low, high] to [start_px, end_px]; what lies outside is drawn at the edge."""

    low: float
    high: float
    start_px: float
    end_px: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        span = self.high - self.low
        share = (value - self.low) / span if span > 0 else 0.0
        return self.start_px + min(1.0, max(0.0, share)) * (self.end_px - self.start_px)


def ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    """Round values from `low` to `high`, at most about `most`; `low` alone where no step is between them."""
    raw = (high - low) / most
    if not _LEAST_STEP < raw < math.inf:
        return (low,)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(nice * magnitude for nice in _NICE if nice * magnitude >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(i * step for i in range(first, last + 1))


def time_unit(hours: float) -> tuple[float, str]:
    """What a time axis of that many hours counts: (hours, word)."""
    return next(((unit_h, word) for least_h, unit_h, word in _UNITS if hours >= least_h), (1 / 3600, "seconds"))


def hour_ticks(hours: float) -> tuple[float, ...]:
    """Marks for a time axis of that many hours, in hours; round in the axis' own unit (`time_unit`)."""
    if hours < 1.0:
        unit_h, _ = time_unit(hours)
        return tuple(min(hours, mark * unit_h) for mark in ticks(0.0, hours / unit_h, _MOST_SHORT_TICKS))
    steps = _DAY_STEPS if hours >= _DAYS_FROM_H else _HOUR_STEPS
    step = next((step for step in steps if hours / step <= _MOST_HOUR_TICKS), hours)
    return tuple(min(hours, i * step) for i in range(int(hours / step + 1e-9) + 1))
