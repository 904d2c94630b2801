"""Merit order: which of the replicas held, and of those that could be had, serve the demand at the least cost.

Held and possible replicas stand in one row, cheapest first. Each is taken while, at its own cost, one more is worth it:

    level(c) - supply > (c / worth) * weight

level(c)   replicas worth having at c USD for an hour of use: falls with c; minus infinity where c is above what one earns
worth      what an hour of a replica earns where it is needed, lambda * g (USD/h)
weight     of a replica in the supply: below 1 where it may be gone, or refused, before it counts
supply     weights taken so far

The share c / worth is the design's rule at the last replica: it pays only if the useful part of it, level - supply, is worth
more than it costs.

Replicas that are alike stand in the row as one lot, so that a fleet of thousands is a row of dozens.

Invariants: order of the input does not matter, nor how the alike are parted into lots; a higher level takes no fewer.
"""

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Lot(NamedTuple, Generic[T]):
    """Replicas that are alike, held or possible, one at least. A named tuple: they are made anew in every judgement."""

    items: Sequence[T]
    """In order of name."""
    usd_per_h: float
    """What the first costs an hour of use."""
    weight: float
    step_usd_per_h: float = 0.0
    """How much more each costs than the one before it."""

    def part(self, begin: int, end: int) -> "Lot[T]":
        """Those from `begin` on, before `end`."""
        if begin == 0 and end == len(self.items):
            return self
        cost = self.usd_per_h + self.step_usd_per_h * begin
        return Lot(self.items[begin:end], cost, self.weight, self.step_usd_per_h)


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What replicas are worth."""

    worth_usd_per_h: float
    level: Callable[[float], float]
    """Replicas worth having at a cost (USD/h of use)."""

    def wanted(self, usd_per_h: float, weight: float, most: int, supply: float) -> int:
        """How many more of one cost and weight are worth it, at most so many, where there are `supply` already."""
        worth = self.worth_usd_per_h
        if not usd_per_h < worth:
            return 0
        level, least, count = self.level(usd_per_h), usd_per_h / worth * weight, 0
        while count < most and level - supply > least:
            supply += weight
            count += 1
        return count


def supply_of(lots: Sequence[Lot[T]]) -> float:
    """The sum of all weights."""
    return sum([len(lot.items) * lot.weight for lot in lots])


def in_merit_order(
    lots: Sequence[Lot[T]], market: Market, name: Callable[[T], str]
) -> tuple[list[Lot[T]], list[Lot[T]]]:
    """(taken, left), both in order, in lots or parts of them. `name`: who comes first of those that cost the same."""
    supply, taken, left, left_weight = 0.0, [], [], math.inf
    row = sorted([(lot.usd_per_h, name(lot.items[0]), i, 0) for i, lot in enumerate(lots)])
    for place, (usd_per_h, _, i, begin) in enumerate(row, 1):
        items, _, weight, step = lot = lots[i]
        one = step or (place < len(row) and row[place][0] == usd_per_h)
        end, wanted = begin + 1 if one else len(items), 0
        if weight < left_weight:
            wanted = market.wanted(usd_per_h, weight, end - begin, supply)
        if wanted:
            supply += wanted * weight
            taken.append(lot.part(begin, begin + wanted))
        if wanted < end - begin:
            # What costs no less and weighs no less than what is left is left too.
            left_weight = min(left_weight, weight)
            end = len(items) if step else end
            left.append(lot.part(begin + wanted, end))
        if end < len(items):
            insort(row, (lot.usd_per_h + step * end, name(items[end]), i, end), place)
    return taken, left
