"""Exponentially weighted averages over uneven intervals, kept as plain numbers in a policy's memory.

    average += (1 - exp(-elapsed / time_constant)) * (value - average)

so that no time means no change, and the result depends on the time between readings, not on their number.
"""

import math
from collections.abc import Mapping


def smooth(average: float | None, value: float, elapsed_s: float, time_constant_s: float) -> float:
    """The average after `value` has held for `elapsed_s`; the first value is taken as it is.

    A time constant of 0 follows at once; elapsed time that is negative (a clock stepped) or no number counts as none.
    """
    if average is None or time_constant_s <= 0:
        return value
    elapsed_s = elapsed_s if math.isfinite(elapsed_s) and elapsed_s > 0 else 0.0
    return average + (1 - math.exp(-elapsed_s / time_constant_s)) * (value - average)


def remembered(memory: Mapping[str, float], name: str) -> float | None:
    """A number of the memory, or None where there is none that could be used."""
    value = memory.get(name)
    return value if value is not None and math.isfinite(value) and value >= 0 else None
