"""Groups of units, with lengths drawn beforehand: the simulated ledger's unit of account.

All units of a group run on one replica side by side, as an agent that leases a whole group runs them, so one number,
`tokens_each`, tells how far each of them is: a unit of `length` tokens has min(length, tokens_each).
"""

import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from scaler.simulate.scenario import LENGTH_QUANTILES, LengthModel


@dataclass(frozen=True, slots=True)
class Shape:
    """The lengths of a group's units, ascending, with their running sums."""

    lengths: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest unit."""
        return self.lengths[-1]

    @property
    def total(self) -> int:
        """Tokens of all units."""
        return self.sums[-1]

    def done(self, tokens_each: float) -> float:
        """Tokens generated when every unit is at `tokens_each` or at its end."""
        ended = bisect_right(self.lengths, tokens_each)
        return (self.sums[ended - 1] if ended else 0) + (len(self.lengths) - ended) * tokens_each

    def ended(self, tokens_each: float) -> int:
        """Tokens of the units that are at their end."""
        ended = bisect_right(self.lengths, tokens_each)
        return self.sums[ended - 1] if ended else 0


def shapes(lengths: LengthModel, group_size: int, seed: int) -> tuple[Shape, ...]:
    """As many shapes as there are length quantiles, each quantile in `group_size` of them: their mean is exact."""
    table = list(lengths.table()) * group_size
    random.Random(f"{seed}/lengths").shuffle(table)
    return tuple(_shape(table[i * group_size : (i + 1) * group_size]) for i in range(LENGTH_QUANTILES))


def _shape(lengths: list[int]) -> Shape:
    ordered = tuple(sorted(lengths))
    return Shape(ordered, tuple(accumulate(ordered)))


class Group:
    """The units of one prompt on their way from admission to the trainer."""

    __slots__ = ("buffered", "dropped", "lane_left_s", "number", "oldest_version", "returns", "shape", "tokens_each")

    def __init__(self, number: int, shape: Shape, lane_s: float, version: int) -> None:
        self.number = number
        self.shape = shape
        self.lane_left_s = lane_s
        """Lane time that it still needs."""
        self.tokens_each = 0.0
        """Published progress of each unit."""
        self.oldest_version = version
        self.returns = 0
        """Losses in a row."""
        self.buffered = False
        self.dropped = False
