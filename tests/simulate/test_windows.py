"""Windows of a trace: spread evenly, within their part, training apart from testing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.simulate.windows import Split, starts_h, stretch_h

lengths_h = st.floats(1, 2000)


@given(length_h=lengths_h, share=st.floats(0.01, 1.0), windows=st.integers(1, 40), split=st.sampled_from(Split))
def test_windows_lie_within_their_part_at_even_distances(
    length_h: float, share: float, windows: int, split: Split
) -> None:
    from_h, to_h = stretch_h(length_h, split)
    hours = (to_h - from_h) * share
    starts = starts_h(length_h, hours, windows, split)

    assert len(starts) == windows
    assert all(from_h <= start and start + hours <= to_h + 1e-6 for start in starts)
    distances = [later - earlier for earlier, later in pairwise(starts)]
    assert all(distance == pytest.approx(distances[0], abs=1e-6) for distance in distances)


@given(length_h=lengths_h, share=st.floats(0.01, 1.0), windows=st.integers(1, 40))
def test_no_training_window_reaches_into_testing(length_h: float, share: float, windows: int) -> None:
    hours = length_h * 0.4 * share
    last_end_h = max(starts_h(length_h, hours, windows, Split.TRAIN)) + hours

    assert last_end_h <= min(starts_h(length_h, hours, windows, Split.TEST)) + 1e-6


def test_the_first_window_starts_the_part_and_the_last_one_ends_it() -> None:
    assert starts_h(100.0, 10.0, 3) == (0.0, 45.0, 90.0)
    assert starts_h(100.0, 10.0, 3, Split.TEST) == (60.0, 75.0, 90.0)


@pytest.mark.parametrize(
    ("hours", "windows", "says"),
    [
        (70.0, 2, "60.00 h, has no window of 70 h"),
        (0.0, 2, "are none"),
        (5.0, 0, "are none"),
        (float("nan"), 1, "none"),
    ],
)
def test_windows_that_are_none_are_refused(hours: float, windows: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        starts_h(100.0, hours, windows, Split.TRAIN)
