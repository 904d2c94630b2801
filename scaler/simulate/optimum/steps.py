"""Step functions of time on [0, end]: their extremes over a sliding window, and their means over equal steps.

Everything is exact: a step function stays one, and its mean over a step is taken from its integral, so that nothing hangs
on whether its changes fall on the edges of steps. Times in seconds.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scaler.traces.trace import Series

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepFunction:
    """`values[i]` holds from `times_s[i]` to the next; the first time is 0, the last value holds to `end_s`."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]
    end_s: float

    def pieces(self) -> Iterable[tuple[float, float, float]]:
        """(from, to, value) of every stretch."""
        return zip(self.times_s, (*self.times_s[1:], self.end_s), self.values, strict=True)

    def falls(self) -> Iterable[tuple[float, float]]:
        """(time, by how much) of every fall after the start."""
        for (_, before), (time_s, after) in pairwise(zip(self.times_s, self.values, strict=True)):
            if after < before:
                yield time_s, before - after

    def at(self, time_s: float) -> float:
        """The value from a time on."""
        return self.values[int(np.searchsorted(self.times_s, time_s, side="right")) - 1]

    def before(self, time_s: float) -> float:
        """The value just before a time."""
        return self.values[max(0, int(np.searchsorted(self.times_s, time_s, side="left")) - 1)]

    def means(self, edges_s: Floats) -> Floats:
        """The mean between every two neighbouring edges, which lie in [0, end]."""
        knots = np.array([*self.times_s, self.end_s])
        areas = np.concatenate(([0.0], np.cumsum(np.diff(knots) * np.array(self.values))))
        return np.diff(np.interp(edges_s, knots, areas)) / np.diff(edges_s)


def of_series(series: Series, end_s: float) -> StepFunction:
    """The series up to `end_s`."""
    changes = [(time_s, float(count)) for time_s, count in series.changes() if time_s < end_s]
    times_s, values = zip(*changes, strict=True)
    return StepFunction(times_s, values, end_s)


def window_max(function: StepFunction, from_s: float, to_s: float = 0.0) -> StepFunction:
    """T -> the greatest value on [t - from_s, t - to_s], as far as that lies after 0; 0 where none of it does."""
    return _sweep(function, from_s, to_s, lambda value: -value, 0.0)


def window_min(function: StepFunction, from_s: float, to_s: float, beyond: float) -> StepFunction:
    """T -> the least value on [t - from_s, t - to_s], as far as that lies after 0; `beyond` where none of it does."""
    return _sweep(function, from_s, to_s, lambda value: value, beyond)


def fallen(functions: Sequence[StepFunction], weights: Sequence[float], window_s: float) -> StepFunction:
    """T -> the weighed sum of all falls on (t - window_s, t]."""
    changes: list[tuple[float, float]] = []
    for function, weight in zip(functions, weights, strict=True):
        for time_s, by in function.falls():
            changes += [(time_s, weight * by), (time_s + window_s, -weight * by)]
    level, found = 0.0, {0.0: 0.0}
    end_s = functions[0].end_s if functions else math.inf
    for time_s, by in sorted(changes):
        level += by
        if time_s < end_s:
            found[time_s] = max(0.0, level)
    times_s, values = zip(*found.items(), strict=True)
    return StepFunction(times_s, values, end_s)


def plus(one: StepFunction, other: StepFunction) -> StepFunction:
    """Their sum."""
    return _together(one, other, lambda a, b: a + b)


def least_of(one: StepFunction, other: StepFunction) -> StepFunction:
    """The smaller of the two at every time."""
    return _together(one, other, min)


def _together(one: StepFunction, other: StepFunction, of: Callable[[float, float], float]) -> StepFunction:
    times_s = sorted({*one.times_s, *other.times_s})
    values = [of(one.at(time_s), other.at(time_s)) for time_s in times_s]
    return StepFunction(tuple(times_s), tuple(values), one.end_s)


def _sweep(
    function: StepFunction, from_s: float, to_s: float, rank: Callable[[float], float], beyond: float
) -> StepFunction:
    """A value that holds on [a, b) is in the window of every t in [a + to_s, b + from_s): the lowest rank of these."""
    lives = sorted((a + to_s, b + from_s, value) for a, b, value in function.pieces())
    edges = sorted({0.0, *(t for a, b, _ in lives for t in (a, b) if 0.0 < t < function.end_s)})
    alive: list[tuple[float, float, float]] = []
    found: list[tuple[float, float]] = []
    coming = iter(lives)
    following = next(coming, None)
    for edge in edges:
        while following is not None and following[0] <= edge:
            heappush(alive, (rank(following[2]), following[1], following[2]))
            following = next(coming, None)
        while alive and alive[0][1] <= edge:
            heappop(alive)
        value = alive[0][2] if alive else beyond
        if not found or found[-1][1] != value:
            found.append((edge, value))
    times_s, values = zip(*found, strict=True)
    return StepFunction(times_s, values, function.end_s)
