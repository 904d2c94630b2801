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
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Lot(NamedTuple, Generic[T]):
    """Replicas that are alike, held or possible, one at least. A named tuple: they are made anew in every judgement."""

    items: Sequence[T]
    """In order of name."""
    usd_per_h: float
    """What an hour of use costs."""
    weight: float
    step_usd_per_h: float = 0.0
    """How much more each costs than the one before it."""
    begin: int = 0
    """Steps up to the first one here. Kept apart, so that what costs the same in two lots comes out the same."""

    def cost(self, index: int) -> float:
        """What an hour of use costs of one of them."""
        return self.usd_per_h + self.step_usd_per_h * (self.begin + index)

    def part(self, begin: int, end: int) -> "Lot[T]":
        """Those from `begin` on, before `end`."""
        return Lot(self.items[begin:end], self.usd_per_h, self.weight, self.step_usd_per_h, self.begin + begin)


class Market(NamedTuple):
    """What replicas are worth."""

    worth_usd_per_h: float
    level: Callable[[float], float]
    """Replicas worth having at a cost (USD/h of use)."""

    def wanted(self, lot: Lot[T], begin: int, end: int, supply: float) -> int:
        """How many of a lot from `begin` on, before `end`, are worth it, where there are `supply` already."""
        _, usd_per_h, weight, step, passed = lot
        cost, worth, at = usd_per_h + step * (passed + begin), self.worth_usd_per_h, begin
        if not cost < worth:
            return 0
        level, least = self.level(cost), cost / worth * weight
        while at < end and level - supply > least:
            supply += weight
            at += 1
            if step:
                cost = usd_per_h + step * (passed + at)
                level, least = self.level(cost) if cost < worth else -math.inf, cost / worth * weight
        return at - begin


def supply_of(lots: Sequence[Lot[T]]) -> float:
    """The sum of all weights."""
    return sum([len(lot.items) * lot.weight for lot in lots])


def in_merit_order(
    lots: Sequence[Lot[T]], market: Market, name: Callable[[T], str]
) -> tuple[list[Lot[T]], list[Lot[T]]]:
    """(taken, left), both in order, in lots or parts of them. `name`: who comes first of those that cost the same."""
    supply, taken, left, left_weight = 0.0, [], [], math.inf
    begun = enumerate(lots)
    row = sorted([(usd_per_h + step * begin, name(items[0]), i, 0) for i, (items, usd_per_h, _, step, begin) in begun])
    for place, (usd_per_h, _, i, begin) in enumerate(row, 1):
        lot = lots[i]
        items, _, weight, step, _ = lot
        end = size = len(items)
        until_usd_per_h = row[place][0] if place < len(row) else math.inf
        if size > 1 and (step or usd_per_h == until_usd_per_h):
            end = _end_of_run(lot, begin, until_usd_per_h)
        wanted = market.wanted(lot, begin, end, supply) if weight < left_weight else 0
        if wanted:
            supply += wanted * weight
            taken.append(lot if wanted == size else lot.part(begin, begin + wanted))
        if wanted < end - begin:
            # What costs no less and weighs no less than what is left is left too.
            left_weight = min(left_weight, weight)
            end = size if step else end
            left.append(lot if begin + wanted == 0 and end == size else lot.part(begin + wanted, end))
        if end < size:
            insort(row, (lot.cost(end), name(items[end]), i, end), place)
    return taken, left


def _end_of_run(lot: Lot[T], begin: int, until_usd_per_h: float) -> int:
    """The end of those that come before others at so much; of one at least, since names may say that it does."""
    cost, step, size = lot.cost(begin), lot.step_usd_per_h, len(lot.items)
    if not (step and cost < until_usd_per_h):
        return begin + 1
    end = min(size, begin + math.ceil(min(size, (until_usd_per_h - cost) / step)))
    while end > begin + 1 and lot.cost(end - 1) >= until_usd_per_h:
        end -= 1
    return max(begin + 1, end)
