"""How long those that a fall marks are there after it, in the mean: the world draws a moment for each (docstring of the package).

Nobody can have a marked one stay, and nobody knows its moment before the fall. All numbers err to the side that loosens a bound:
shares are too large, by what falls off within `PART_S`.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scaler.simulate.optimum.steps import Floats, StepFunction
from scaler.simulate.scenario import NoticeModel

PART_S = 5.0
"""Of the time after a fall, within which the share counts as what it is at the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """Of those marked, at most `shares[i]` are still there from `ages_s[i]` on, seconds after their fall; at last none."""

    ages_s: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def steps(self) -> Iterable[tuple[float, float]]:
        """(age, by how much the share changes there); at 0 it comes to its first value."""
        return zip(self.ages_s, np.diff(self.shares, prepend=0.0).tolist(), strict=True)

    def at(self, age_s: float) -> float:
        """The share at an age; 0 before the fall."""
        place = bisect_right(self.ages_s, age_s)
        return self.shares[place - 1] if place else 0.0

    def passed_s(self, times_s: Floats, fall_s: float) -> Floats:
        """A clock that runs with time until a fall, and after it as fast as the share of those still there."""
        areas_s = np.concatenate(([0.0], np.cumsum(np.diff(self.ages_s) * self.shares[:-1])))
        after_s: Floats = np.interp(times_s - fall_s, self.ages_s, areas_s)
        return np.minimum(times_s, fall_s) + after_s


def stays_of(notices: NoticeModel) -> Stays:
    """Whoever is taken without a notice is gone at a moment within `spread_s`, all others `lead_s` later."""
    parts = math.ceil(notices.outlive_s / PART_S)
    ages_s = np.linspace(0.0, notices.outlive_s, parts + 1)
    shares = [_share(notices, float(age_s)) for age_s in ages_s[:-1]]
    return Stays(ages_s=tuple(ages_s.tolist()), shares=(*shares, 0.0))


def _share(notices: NoticeModel, age_s: float) -> float:
    without, told = notices.none_ratio, 1.0 - notices.none_ratio
    return without * _later(age_s, notices.spread_s) + told * _later(age_s - notices.lead_s, notices.spread_s)


def _later(age_s: float, spread_s: float) -> float:
    """How likely a moment between 0 and `spread_s` is later than an age."""
    if age_s < 0 or not spread_s:
        return float(age_s < 0)
    return max(0.0, 1.0 - age_s / spread_s)


def held_in_the_mean(count: StepFunction, stays: Stays) -> StepFunction:
    """The most that are held at a time: the count, and of each fall those that it may have marked and that are still there."""
    changes = [(at_s + age_s, by * change) for at_s, by in count.falls() for age_s, change in stays.steps]
    moments_s, changed = np.array([0.0, *(at for at, _ in changes)]), np.array([0.0, *(by for _, by in changes)])
    order = np.argsort(moments_s, kind="stable")
    marked = np.cumsum(changed[order])
    times_s = sorted({time_s for time_s in (*count.times_s, *moments_s.tolist()) if time_s < count.end_s})
    last = np.searchsorted(moments_s[order], times_s, side="right") - 1
    values = [count.at(time_s) + max(0.0, float(marked[i])) for time_s, i in zip(times_s, last, strict=True)]
    return StepFunction(tuple(times_s), tuple(values), count.end_s)


def ready_in_the_mean(count: StepFunction, stays: Stays, launch_s: float) -> StepFunction:
    """The most that are ready at a time t: they were held at every u in [t - launch_s, t], unmarked, or marked and still there.

    Of the unmarked there are at most the count at u. All of a stretch in which the count stays are met at its beginning.
    """
    falls = list(count.falls())
    moments = {0.0, *count.times_s, *(time_s + launch_s for time_s in count.times_s)}
    moments |= {at_s + age_s for at_s, _ in falls for age_s in stays.ages_s}
    times_s = sorted(time_s for time_s in moments if time_s < count.end_s)
    fall_s = [at_s for at_s, _ in falls]

    def most(time_s: float) -> float:
        """At a time between two of the moments."""
        first = max(0, bisect_right(count.times_s, time_s - launch_s) - 1)
        found, marked, number = math.inf, 0.0, bisect_left(fall_s, time_s - stays.ages_s[-1])
        for begins_s, value in zip(count.times_s[first:], count.values[first:], strict=True):
            if begins_s > time_s:
                break
            while number < len(falls) and fall_s[number] <= begins_s:
                marked += falls[number][1] * stays.at(time_s - fall_s[number])
                number += 1
            found = min(found, value + marked)
        return found

    middles_s = [(a + b) / 2 for a, b in zip(times_s, [*times_s[1:], count.end_s], strict=True)]
    return StepFunction(tuple(times_s), tuple(most(time_s) for time_s in middles_s), count.end_s)
