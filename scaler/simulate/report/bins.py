"""A timeline in as few steps as a picture needs.

Invariants: means weigh every step alike, sums lose nothing, and the edges are those of the timeline's own steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Stretches of steps, by the index of the first step of each and, last, the number of steps."""

    step_s: float
    edges: tuple[int, ...]

    @property
    def hours(self) -> tuple[float, ...]:
        """The edges as hours since the start."""
        return tuple(edge * self.step_s / 3600.0 for edge in self.edges)

    def mean(self, values: Sequence[float]) -> tuple[float, ...]:
        """The mean of each stretch."""
        return self._each(values, lambda part: sum(part) / len(part))

    def total(self, values: Sequence[float]) -> tuple[float, ...]:
        """The sum of each stretch."""
        return self._each(values, sum)

    def least(self, values: Sequence[float]) -> tuple[float, ...]:
        """The smallest value of each stretch."""
        return self._each(values, min)

    def most(self, values: Sequence[float]) -> tuple[float, ...]:
        """The greatest value of each stretch."""
        return self._each(values, max)

    def coarser(self, most: int) -> "Bins":
        """At most `most` stretches, cut at these edges."""
        return Bins(step_s=self.step_s, edges=tuple(self.edges[i] for i in _cuts(len(self.edges) - 1, most)))

    def _each(self, values: Sequence[float], reduce: Callable[[Sequence[float]], float]) -> tuple[float, ...]:
        return tuple(float(reduce(values[start:end])) for start, end in pairwise(self.edges))


def bins_of(steps: int, step_s: float, most: int) -> Bins:
    """`steps` steps (at least one) in at most `most` stretches of nearly equal length."""
    return Bins(step_s=step_s, edges=_cuts(steps, most))


def _cuts(steps: int, most: int) -> tuple[int, ...]:
    parts = max(1, min(steps, most))
    return tuple(i * steps // parts for i in range(parts + 1))
