"""Merit order: which of the replicas held, and of those that could be had, serve the demand at the least cost.

Held and possible replicas stand in one row, cheapest first. Each is taken while, at its own cost, one more is worth it:

    level(c) - supply > (c / worth) * weight

level(c)   replicas worth having at c USD for an hour of use: falls with c; minus infinity where c is above what one earns
worth      what an hour of a replica earns where it is needed, lambda * g (USD/h)
weight     of a replica in the supply: below 1 where it may be gone, or refused, before it counts
supply     weights taken so far

The share c / worth is the design's rule at the last replica: it pays only if the useful part of it, level - supply, is worth
more than it costs.

Invariants: order of the input does not matter; a higher level takes no fewer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Candidate(NamedTuple, Generic[T]):
    """One replica, held or possible. `name` breaks ties. A named tuple: there are as many as replicas, in every judgement."""

    item: T
    usd_per_h: float
    """Of use."""
    weight: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What replicas are worth."""

    worth_usd_per_h: float
    level: Callable[[float], float]
    """Replicas worth having at a cost (USD/h of use)."""

    def wants(self, candidate: Candidate[T], supply: float) -> bool:
        """Whether one more is worth its cost, where there are `supply` already."""
        cost, worth = candidate.usd_per_h, self.worth_usd_per_h
        return cost < worth and self.level(cost) - supply > cost / worth * candidate.weight


def in_merit_order(candidates: Sequence[Candidate[T]], market: Market) -> tuple[list[Candidate[T]], list[Candidate[T]]]:
    """(taken, left), both in order."""
    supply, taken, left = 0.0, [], []
    for candidate in sorted(candidates, key=attrgetter("usd_per_h", "name")):
        if market.wants(candidate, supply):
            taken.append(candidate)
            supply += candidate.weight
        else:
            left.append(candidate)
    return taken, left
