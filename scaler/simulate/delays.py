"""Draws that depend on nothing but their key, and the delays that are drawn with them.

A draw is a number in (0, 1) made from (seed, words): the same key gives the same number whatever else happened, so that two
policies in the same world meet the same luck (common random numbers).
"""

import math
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist

_STANDARD = NormalDist()
_BITS = 53
MEAN_QUANTILES = 1024


def draw(seed: int, *key: str | int) -> float:
    """A number in (0, 1) that belongs to this key alone."""
    text = "\x1f".join((str(seed), *map(str, key)))
    bits = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> (64 - _BITS)
    return (bits + 0.5) / (1 << _BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A time that is never below `least_s`: least_s + median_s * exp(sigma * z), at most `most_s`; z standard normal.

    sigma 0 is a constant. All in seconds.
    """

    least_s: float = 0.0
    median_s: float = 0.0
    """Median of the part above `least_s`."""
    sigma: float = 0.0
    most_s: float = math.inf

    def at(self, u: float) -> float:
        """The `u` quantile (0 < u < 1)."""
        if not self.median_s:
            return min(self.least_s, self.most_s)
        above = self.median_s * math.exp(self.sigma * _STANDARD.inv_cdf(u)) if self.sigma else self.median_s
        return min(self.most_s, self.least_s + above)

    def mid_quantiles(self, count: int) -> list[float]:
        """Those in the middle of so many equal parts, ascending."""
        return [self.at((i + 0.5) / count) for i in range(count)]

    @property
    def mean_s(self) -> float:
        """Mean of `MEAN_QUANTILES` mid-quantiles: a little low where the tail is heavy."""
        return sum(self.mid_quantiles(MEAN_QUANTILES)) / MEAN_QUANTILES
