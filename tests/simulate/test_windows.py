"""Windows of a trace: spread evenly, within their part, training apart from testing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.simulate.windows import LEAST_STEP, Split, Window, most_windows, stretch_h, windows_of

lengths_h = st.floats(1, 2000)
counts = st.integers(1, 40)


@given(length_h=lengths_h, share=st.floats(0.01, 3.0), count=counts, split=st.sampled_from(Split))
def test_windows_lie_within_their_part_at_even_distances(
    length_h: float, share: float, count: int, split: Split
) -> None:
    from_h, to_h = stretch_h(length_h, split)
    found = windows_of(length_h, (to_h - from_h) * share, count, split)

    assert all(from_h <= window.start_h and window.start_h + window.hours <= to_h + 1e-6 for window in found)
    distances = [later.start_h - earlier.start_h for earlier, later in pairwise(found)]
    assert all(distance == pytest.approx(distances[0], abs=1e-6) for distance in distances)


@given(length_h=lengths_h, share=st.floats(0.01, 0.99), count=counts, split=st.sampled_from(Split))
def test_there_are_as_many_as_asked_for_and_they_fill_the_part(
    length_h: float, share: float, count: int, split: Split
) -> None:
    from_h, to_h = stretch_h(length_h, split)
    found = windows_of(length_h, (to_h - from_h) * share, count, split)

    assert len(found) == count
    assert found[0].start_h == from_h
    assert count == 1 or found[-1].start_h + found[-1].hours == pytest.approx(to_h)


@given(length_h=lengths_h, hours=st.floats(0.1, 100), count=counts)
def test_no_training_window_reaches_into_testing(length_h: float, hours: float, count: int) -> None:
    last = windows_of(length_h, hours, count, Split.TRAIN)[-1]

    assert last.start_h + last.hours <= windows_of(length_h, hours, count, Split.TEST)[0].start_h + 1e-6


def test_a_part_that_is_too_short_is_one_window() -> None:
    assert windows_of(10.0, 12.0, 5) == (Window(start_h=0.0, hours=10.0),)
    assert windows_of(10.0, 6.0, 5, Split.TRAIN) == (Window(start_h=0.0, hours=6.0),)


@pytest.mark.parametrize(("hours", "count"), [(0.0, 2), (-1.0, 2), (5.0, 0), (float("nan"), 1)])
def test_windows_that_are_none_are_refused(hours: float, count: int) -> None:
    with pytest.raises(ValueError, match="are none"):
        windows_of(100.0, hours, count)


@given(length_h=lengths_h, hours=st.floats(0.1, 100), split=st.sampled_from(Split))
def test_the_most_windows_still_differ_and_one_more_would_not(length_h: float, hours: float, split: Split) -> None:
    most = most_windows(length_h, hours, split)
    room_h = max(0.0, stretch_h(length_h, split)[1] - stretch_h(length_h, split)[0] - hours)

    assert most >= 1
    assert most == 1 or room_h / (most - 1) >= LEAST_STEP * hours * (1 - 1e-6)
    assert room_h / most < LEAST_STEP * hours * (1 + 1e-6)


def test_a_trace_of_three_days_has_41_windows_of_a_day() -> None:
    assert most_windows(72.0, 24.0) == 41
    assert most_windows(72.0, 24.0, Split.TEST) == 5
    assert most_windows(10.0, 24.0) == 1
