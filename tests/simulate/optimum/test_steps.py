"""Step functions: extremes over a sliding window and means, against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.simulate.optimum.grid import MOST_LAUNCHES, MOST_STEPS, PLAIN_STEPS, edges_of
from scaler.simulate.optimum.steps import StepFunction, fallen, window_max, window_min

END_S = 100.0
functions = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 5)), max_size=8, unique_by=lambda one: one[0]).map(
    lambda changes: StepFunction(
        (0.0, *(float(t) for t, _ in sorted(changes))), (3.0, *(float(v) for _, v in sorted(changes))), END_S
    )
)
windows = st.integers(0, 60)
HALVES = [i + 0.5 for i in range(100)]
"""Between all moments at which anything changes."""


def seen(function: StepFunction, from_s: float, to_s: float) -> list[float]:
    """All values on the window, as far as it lies after 0."""
    return [function.at(t) for t in np.arange(max(0.0, from_s), to_s + 0.25, 0.5)] if to_s >= 0 else []


@settings(max_examples=30)
@given(functions, windows)
def test_the_greatest_value_of_late(function: StepFunction, window: int) -> None:
    found = window_max(function, window)
    assert [found.at(t) for t in HALVES] == [max(seen(function, t - window, t)) for t in HALVES]


@settings(max_examples=30)
@given(functions, windows, windows)
def test_the_least_value_of_a_window_that_ended_before(function: StepFunction, one: int, other: int) -> None:
    from_s, to_s = max(one, other), min(one, other)
    found = window_min(function, from_s, to_s, 9.0)
    assert [found.at(t) for t in HALVES] == [min(seen(function, t - from_s, t - to_s), default=9.0) for t in HALVES]


@given(functions, st.sets(st.integers(1, 99), max_size=6))
def test_means_times_lengths_are_the_integral(function: StepFunction, inner: set[int]) -> None:
    edges = np.array([0.0, *sorted(inner), END_S])
    whole = sum((b - a) * value for a, b, value in function.pieces())
    assert float(function.means(edges) @ np.diff(edges)) == pytest.approx(whole)


@settings(max_examples=30)
@given(functions, windows)
def test_what_fell_of_late(function: StepFunction, window: int) -> None:
    found = fallen([function], [2.0], window)
    falls = list(function.falls())
    assert [found.at(t) for t in HALVES] == [2 * sum(by for at, by in falls if t - window < at <= t) for t in HALVES]


@given(
    st.floats(10, 1e5), st.floats(0, 1000), st.sets(st.floats(0, 1, exclude_min=True, exclude_max=True), max_size=20)
)
def test_steps_are_no_longer_than_a_launch_and_end_where_capacity_falls(
    end_s: float, launch_s: float, shares: set[float]
) -> None:
    falls = {share * end_s for share in shares}
    edges = edges_of(end_s, launch_s, falls)
    assert edges[0] == 0
    assert edges[-1] == end_s
    assert np.all(np.diff(edges) > 0)
    if len(edges) <= MOST_STEPS:
        longest_s = launch_s if launch_s >= end_s / MOST_LAUNCHES else end_s / PLAIN_STEPS
        assert np.all(np.diff(edges) <= min(longest_s, 300) * (1 + 1e-6))
        near = [np.min(np.abs(edges - fall)) for fall in falls]
        assert all(distance <= 1e-3 for distance in near)
