"""Intervals: what is known in closed form for independent values, and what must hold for any."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.simulate.bootstrap import (
    LEAST_WINDOWS,
    block_windows,
    both_draws,
    draws,
    interval,
    mean_of,
    ratio_of,
    wider,
)

values = st.lists(st.floats(-1e3, 1e3), min_size=LEAST_WINDOWS, max_size=30)


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("windows", [40, 120])
def test_the_interval_of_independent_values_is_that_of_the_normal_mean(windows: int, block: int) -> None:
    widths = []
    for seed in range(20):
        sample = np.random.default_rng(seed).normal(10.0, 2.0, windows)
        found = interval(mean_of(list(sample)), draws([windows], block, seed))
        assert found is not None
        assert (found.low + found.high) / 2 == pytest.approx(sample.mean(), abs=0.1)
        widths.append((found.high - found.low) / (2 * 1.96 * sample.std() / math.sqrt(windows)))

    assert np.mean(widths) == pytest.approx(1.0, abs=0.1)


def test_blocks_widen_the_interval_of_values_that_follow_each_other() -> None:
    steps = [float(number // 10) for number in range(100)]
    alone, in_blocks = (interval(mean_of(steps), draws([100], block)) for block in (1, 10))

    assert alone is not None
    assert in_blocks is not None
    assert in_blocks.high - in_blocks.low > 2 * (alone.high - alone.low)


@given(sample=values, block=st.integers(1, 5))
def test_the_wider_interval_holds_those_of_blocks_and_of_single_windows(sample: list[float], block: int) -> None:
    lengths = [len(sample)]
    found = wider(mean_of(sample), both_draws(lengths, block))
    parts = [interval(mean_of(sample), draws(lengths, each)) for each in (1, block)]

    assert found is not None
    assert (found.low, found.high) == (
        min(part.low for part in parts if part is not None),
        max(part.high for part in parts if part is not None),
    )


def test_nothing_is_told_where_one_of_the_two_is_not_finite() -> None:
    """Blocks of two always hold something to divide by; single windows need not."""
    above, below = [1.0] * 6, [0.0, 1.0] * 3
    drawn = both_draws([6], 2)

    assert interval(ratio_of(above, below), drawn[1]) is not None
    assert wider(ratio_of(above, below), drawn) is None


@given(sample=values, block=st.integers(1, 5), shift=st.floats(-100, 100), scale=st.floats(0.1, 10))
def test_shift_and_scale_of_the_values_shift_and_scale_the_interval(
    sample: list[float], block: int, shift: float, scale: float
) -> None:
    drawn = draws([len(sample)], block, count=50)
    plain, moved = (interval(mean_of(some), drawn) for some in (sample, [value * scale + shift for value in sample]))

    assert plain is not None
    assert moved is not None
    assert moved.low == pytest.approx(plain.low * scale + shift, abs=1e-6)
    assert moved.high == pytest.approx(plain.high * scale + shift, abs=1e-6)


@given(value=st.floats(-1e3, 1e3), windows=st.integers(LEAST_WINDOWS, 30))
def test_equal_values_have_no_spread(value: float, windows: int) -> None:
    found = interval(mean_of([value] * windows), draws([windows], 2, count=50))

    assert found is not None
    assert [found.low, found.high] == pytest.approx([value, value])


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5), block=st.integers(1, 6))
def test_a_block_runs_on_in_its_own_trace_and_starts_anew_at_its_end(lengths: list[int], block: int) -> None:
    drawn = draws(lengths, block, count=20)
    trace = np.repeat(np.arange(len(lengths)), lengths)
    within = np.concatenate([np.arange(length) for length in lengths])
    size = np.repeat(lengths, lengths)

    assert drawn.shape == (20, sum(lengths))
    for row in drawn:
        for first in range(0, len(row), block):
            mine = row[first : first + block]
            assert len(set(trace[mine])) == 1
            assert all((within[a] + 1) % size[a] == within[b] for a, b in pairwise(mine))


def test_every_window_has_the_same_weight() -> None:
    drawn = draws([7, 2, 11], 3, count=20_000)
    shares = np.bincount(drawn.ravel(), minlength=20) / drawn.size

    assert shares == pytest.approx(np.full(20, 1 / 20), rel=0.05)


@given(sample=st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 5)), min_size=LEAST_WINDOWS, max_size=20))
def test_a_ratio_is_sum_over_sum(sample: list[tuple[float, float]]) -> None:
    above, below = zip(*sample, strict=True)
    whole = np.arange(len(sample))[None, :]

    assert ratio_of(above, below)(whole)[0] == pytest.approx(sum(above) / sum(below))


@pytest.mark.parametrize(
    ("sample", "why"), [([1.0, 2.0, 3.0], "too few"), ([1.0, 2.0, math.inf, 4.0], "not finite")], ids=str
)
def test_there_is_no_interval_where_there_is_too_little_to_say(sample: list[float], why: str) -> None:
    assert interval(mean_of(sample), draws([len(sample)], 1)) is None, why


@given(windows=st.integers(1, 200), overlapping=st.integers(1, 50))
def test_a_block_covers_the_overlap_but_never_more_than_a_third(windows: int, overlapping: int) -> None:
    block = block_windows(windows, overlapping)

    assert 1 <= block <= max(1, windows // 3)
    assert block >= min(overlapping, windows // 3)
