"""Confidence intervals for means over windows in time, by a circular moving-block bootstrap.

Windows that follow each other are alike, so they are drawn in blocks: a block starts at any window with equal chance and
runs on in the time order of its own trace, from the end back to the start, so that every window has the same weight.
Sources: Kuensch 1989 (moving blocks), Politis and Romano 1992 (circular). A block has n^(1/3) windows, or as many as
overlap where that is more, but at most a third of all.

What is told is the wider of two, in blocks and window by window: blocks alone have hardly a spread where a few windows go up
and down in turn, and a few windows cannot show that they always do. Of 600 series of 6, 12 and 26 independent values the
interval held the mean in 82, 88 and 89 % by blocks alone, in 88, 92 and 93 % by the wider; of values correlated by half with
the next ones in 63, 69 and 80 %, and 68, 70 and 81 %. So with few windows 95 % is a name, and more than the truth.

Invariants: a seed fixes the draws; shift and scale of the values shift and scale the interval; for independent values the
interval of a mean is mean +- 1.96 s / sqrt(n), up to sampling.
Non-goals: traces measured at the same time are taken as independent of each other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
LEAST_WINDOWS = 4
"""Fewer say nothing about their spread."""
_TAILS = (2.5, 97.5)

Values: TypeAlias = NDArray[np.float64]
Draws: TypeAlias = NDArray[np.intp]
"""Windows as indices, draws x windows."""
Statistic: TypeAlias = Callable[[Draws], Values]
"""Its value in each draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """95 % of the draws lie between."""

    low: float
    high: float


def block_windows(windows: int, overlapping: int = 1) -> int:
    """How many windows make a block. `overlapping`: how many cover the same moment."""
    return max(1, min(max(overlapping, round(math.cbrt(windows))), windows // 3))


def draws(lengths: Sequence[int], block: int, seed: int = 0, count: int = DRAWS) -> Draws:
    """`count` draws of as many windows as there are (count x sum(lengths)); `lengths`: windows of each trace, in time order."""
    total = sum(lengths)
    blocks = np.concatenate([_blocks_of(length, block) + end - length for length, end in _ends(lengths)])
    starts = np.random.default_rng(seed).integers(0, total, size=(count, math.ceil(total / block)))
    picked: Draws = blocks[starts].reshape(count, -1)[:, :total]
    return picked


def _blocks_of(length: int, block: int) -> NDArray[np.intp]:
    return (np.arange(length)[:, None] + np.arange(block)) % max(1, length)


def _ends(lengths: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(lengths, np.cumsum(lengths).tolist(), strict=True))


def interval(statistic: Statistic, drawn: Draws) -> Interval | None:
    """The middle 95 % of a statistic over the draws; None with too few windows, or where it is not finite everywhere."""
    if drawn.shape[1] < LEAST_WINDOWS:
        return None
    values = statistic(drawn)
    if not np.isfinite(values).all():
        return None
    low, high = np.percentile(values, _TAILS)
    return Interval(low=float(low), high=float(high))


def both_draws(lengths: Sequence[int], block: int) -> tuple[Draws, ...]:
    """Window by window, and in blocks where these have more than one; as `draws`."""
    return tuple(draws(lengths, each) for each in dict.fromkeys((1, block)))


def wider(statistic: Statistic, drawn: Sequence[Draws]) -> Interval | None:
    """From the lowest to the highest end of the intervals; None where one of them is. `drawn`: of `both_draws`."""
    found = [interval(statistic, each) for each in drawn]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return Interval(low=min(each.low for each in known), high=max(each.high for each in known))


def mean_of(values: Sequence[float]) -> Statistic:
    """The mean of the values."""
    array = np.asarray(values, dtype=float)
    return lambda drawn: array[drawn].mean(axis=1)


def ratio_of(above: Sequence[float], below: Sequence[float]) -> Statistic:
    """Sum over sum."""
    numerator, denominator = np.asarray(above, dtype=float), np.asarray(below, dtype=float)

    def ratio(drawn: Draws) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient: Values = numerator[drawn].sum(axis=1) / denominator[drawn].sum(axis=1)
        return quotient

    return ratio
