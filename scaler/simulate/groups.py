"""Groups of units, with lengths drawn beforehand: the simulated ledger's unit of account.

All units of a group run on one replica side by side, as an agent that leases a whole group runs them, so two numbers tell
how far each of them is. A unit that has come to its end is committed at once: those of at most `ended_each` tokens are. Every
other one has `tokens_each` published.
"""

import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from scaler.model.once import once
from scaler.simulate.scenario import LENGTH_QUANTILES, LengthModel


@dataclass(frozen=True)
class Shape:
    """The lengths of a group's units, ascending, with their running sums."""

    lengths: tuple[int, ...]
    sums: tuple[int, ...]

    @once
    def longest(self) -> int:
        """Tokens of the longest unit."""
        return self.lengths[-1]

    @once
    def total(self) -> int:
        """Tokens of all units."""
        return self.sums[-1]

    def done(self, tokens_each: float, ended_each: float) -> float:
        """Tokens of all units where those of at most `ended_each` are at their end, and the others at `tokens_each`."""
        ended = bisect_right(self.lengths, ended_each)
        return (self.sums[ended - 1] if ended else 0) + (len(self.lengths) - ended) * tokens_each

    def ended(self, ended_each: float) -> int:
        """Tokens of the units that are at their end."""
        return round(self.done(0.0, ended_each))


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

    __slots__ = (
        "buffered",
        "dropped",
        "ended_each",
        "lane_left_s",
        "number",
        "oldest_version",
        "shape",
        "tokens_each",
    )

    def __init__(self, number: int, shape: Shape, lane_s: float, version: int) -> None:
        self.number = number
        self.shape = shape
        self.lane_left_s = lane_s
        """Lane time that it still needs."""
        self.tokens_each = 0.0
        """Published progress of each unit that is not at its end."""
        self.ended_each = 0.0
        """Units of at most so many tokens are committed."""
        self.oldest_version = version
        self.buffered = False
        self.dropped = False

    @property
    def done(self) -> float:
        """Tokens that are committed or published."""
        if not (self.tokens_each or self.ended_each):  # most groups, which nobody had to continue
            return 0.0
        return self.shape.done(self.tokens_each, self.ended_each)
