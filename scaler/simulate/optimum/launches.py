"""What launches that are drawn give in the mean: how many are ready by an age, and the unready time that each costs.

A launch's boot and load are drawn by the world, of `LaunchModel`, whatever the policy does. Who does not know the draws sees of
a launch only whether it has registered and whether it is ready.

All numbers err to the side that loosens a bound: shares are too large and times too short, by about a second.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from scaler.simulate.delays import Delay
from scaler.simulate.optimum.steps import Floats
from scaler.simulate.scenario import LaunchModel

LONGEST_S = 3600
"""What takes longer counts as done by then."""
CELLS = 16
"""Parts of a step in which a grant may lie."""
_STANDARD = NormalDist()


@dataclass(frozen=True)
class Launches:
    """Of a launch model: `blind_s` is the time from grant within which nothing is learnt of a launch that is kept."""

    model: LaunchModel

    @property
    def blind_s(self) -> float:
        """No worker registers before."""
        return _soonest_s(self.model.boot)

    @cached_property
    def ready_by(self) -> Floats:
        """At index x: at least the share of grants that are ready x seconds later."""
        booted = self._booted_by
        # Who registers within a second is taken to have registered at its start; some may at once.
        registered = np.diff(booted)
        registered[0] += booted[0]
        ready = np.convolve(registered, _done_by(self.model.load))[: len(booted) - 1]
        return np.append(np.minimum(ready, booted[1:]), booted[-1])

    @cached_property
    def least_unready_s(self) -> float:
        """No way of giving launches up spends less unready time, in the mean, for each that becomes ready.

        What is worth 1 when it is ready and costs 1 / T a second until then is not worth starting at this T, wherever it is
        given up: before it has registered, which tells nothing but its age, or after.
        """
        low, high = 0.0, 10.0 * LONGEST_S
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_worth_nothing(middle) else (low, middle)
        return low

    @cached_property
    def _booted_by(self) -> Floats:
        return (1.0 - self.model.failure_ratio) * _done_by(self.model.boot)

    def _is_worth_nothing(self, unready_s: float) -> bool:
        loaded = _best(_done_by(self.model.load), unready_s, 1.0)
        return _best(self._booted_by, unready_s, loaded) <= 0.0

    @cached_property
    def _area(self) -> Floats:
        """Of the share that is ready, from age 0 to index x; the share within a second is that at its end."""
        return np.concatenate(([0.0], np.cumsum(self.ready_by[1:])))

    def area_s(self, ages_s: Floats) -> Floats:
        """The integral of the share that is ready by an age, from 0 to there; 0 for ages below 0."""
        beyond_s = np.maximum(0.0, ages_s - LONGEST_S)
        known: Floats = np.interp(ages_s, np.arange(len(self._area)), self._area)
        return known + beyond_s

    def age_s(self, share: float) -> float:
        """By which so large a share of those that become ready is ready."""
        return float(np.searchsorted(self.ready_by, share * self.ready_by[-2]))

    def most_ready(self, edges_s: Floats, earlier: int, step: int) -> dict[int, float]:
        """Weights of edges: of one granted at an edge, at least the share that is ready in the mean of `step`.

        Those only count that were granted after a moment that runs through `earlier` as evenly as time runs through `step`;
        after the start where `earlier` is negative. A grant within a step belongs to the edges around it by how near it is;
        the weights are so large that this never gives it too little.
        """
        found: dict[int, float] = {}
        for inside in range(max(0, earlier), step + 1):
            share, most = self._by_place(edges_s, earlier, inside, step)
            chord = np.linspace(share[0], share[-1], CELLS + 1)
            above = max(0.0, float((most - np.minimum(chord[:-1], chord[1:])).max()))
            for edge, value in ((inside, share[0]), (inside + 1, share[-1])):
                found[edge] = max(found.get(edge, 0.0), float(value) + above)
        return {edge: weight for edge, weight in found.items() if weight > 0.0}

    def _by_place(self, edges_s: Floats, earlier: int, inside: int, step: int) -> tuple[Floats, Floats]:
        """The share that is ready in the mean of `step`, by the place of the grant in step `inside`; the most of each cell."""
        begin_s, end_s = edges_s[step], edges_s[step + 1]
        places = np.linspace(0.0, 1.0, CELLS + 1)
        granted_s = edges_s[inside] + places * (edges_s[inside + 1] - edges_s[inside])
        until_s = begin_s + places * (end_s - begin_s) if inside == earlier else np.full(CELLS + 1, end_s)
        # Both are monotonous in the place; where all of the step counts, so is their difference.
        to, since = self.area_s(until_s - granted_s), self.area_s(begin_s - granted_s)
        share = np.maximum(0.0, to - since) / (end_s - begin_s)
        most = np.maximum(share[:-1], share[1:])
        if inside == earlier:
            most = (np.maximum(to[:-1], to[1:]) - since[1:]) / (end_s - begin_s)
        return share, most


def _soonest_s(delay: Delay) -> float:
    drawn = bool(delay.median_s and delay.sigma)
    return min(delay.most_s, delay.least_s + (0.0 if drawn else delay.median_s))


def _done_by(delay: Delay) -> Floats:
    """The share that is done by 0, 1, 2 ... seconds; all by the last."""
    ages_s = np.arange(LONGEST_S + 1)
    if not (delay.median_s and delay.sigma):
        return (ages_s >= _soonest_s(delay)).astype(float)
    above_s = np.maximum(0.0, ages_s - delay.least_s)
    shares = [_STANDARD.cdf(math.log(x / delay.median_s) / delay.sigma) if x > 0 else 0.0 for x in above_s]
    return np.where((ages_s >= delay.most_s) | (ages_s == LONGEST_S), 1.0, shares)


def _best(done_by: Floats, unready_s: float, worth: float) -> float:
    """The most that waiting gives up to the best age: `worth` where it is done by then, less the time until then."""
    waited_s = np.concatenate(([0.0], np.cumsum(1.0 - done_by[1:])))[:-1]
    return float(max(0.0, (worth * done_by[1:] - waited_s / unready_s).max())) if unready_s else math.inf
