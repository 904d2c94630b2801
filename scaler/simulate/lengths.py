"""The lengths of units around a mean: what a scenario knows is rates, and the mean follows from them."""

from functools import lru_cache

from scaler.simulate.scenario import LengthModel

_HALVINGS = 50


@lru_cache(maxsize=64)
def lengths_with_mean(mean_tokens: float, sigma: float, most_tokens: int) -> LengthModel:
    """The cut lognormal whose table has this mean, as near as whole tokens allow. `mean_tokens` is below `most_tokens`.

    The mean grows with the median, so halving the interval finds it.
    """
    low, high = 0.0, float(most_tokens)
    while _model(high, sigma, most_tokens).mean_tokens < mean_tokens:
        low, high = high, high * 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _model(middle, sigma, most_tokens).mean_tokens < mean_tokens:
            low = middle
        else:
            high = middle
    return _model(high, sigma, most_tokens)


def longest_tokens(lengths: LengthModel, group_size: int) -> float:
    """Mean of the longest of `group_size` units, of independent draws from the table."""
    table = lengths.table()
    below = [(number / len(table)) ** group_size for number in range(len(table) + 1)]
    return sum(tokens * (below[i + 1] - below[i]) for i, tokens in enumerate(table))


def _model(median: float, sigma: float, most: int) -> LengthModel:
    return LengthModel(median_tokens=median, sigma=sigma, most_tokens=most)
