"""A recording promises what was held, and no more than was there; where it was refused or lost, it is exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.traces.signs import Sign, available, recorded_trace
from scaler.traces.trace import TraceError


def signs(*parts: tuple[float, int] | tuple[float, int, str]) -> list[Sign]:
    return [Sign(at_s=part[0], held=part[1], all_there_was=len(part) == 3) for part in parts]


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        (signs((5, 1), (7, 3)), [(5, 3)]),
        (signs((0, 4), (16, 2, "taken")), [(0, 4), (16, 2)]),
        (signs((0, 4), (16, 2, "taken"), (18, 2, "refused"), (22, 3), (23, 4)), [(0, 4), (16, 2), (18, 2), (20, 4)]),
        (signs((0, 2), (10, 2, "refused"), (20, 1), (30, 2)), [(0, 2), (10, 2)]),
        (signs((0, 0, "refused"), (10, 0, "refused")), [(0, 0), (0, 0), (10, 0)]),
    ],
    ids=[
        "what was granted later was there before",
        "taken",
        "back half way between the last refusal and the next grant",
        "what we gave up is still there",
        "never any",
    ],
)
def test_what_was_available(seen: list[Sign], steps: list[tuple[float, int]]) -> None:
    assert list(available(seen)) == steps


MOVES = st.lists(st.tuples(st.floats(0.1, 100), st.integers(-3, 3), st.booleans()), min_size=1, max_size=40)


@given(moves=MOVES)
def test_it_is_never_below_what_was_held_and_never_above_the_most_that_was(
    moves: list[tuple[float, int, bool]],
) -> None:
    at_s, held, seen = 0.0, 0, []
    for wait_s, by, ends in moves:
        at_s, held = at_s + wait_s, max(0, held + by)
        seen.append(Sign(at_s=at_s, held=held, all_there_was=ends and by <= 0))
    trace = recorded_trace({"z": seen}, 0.0, at_s + 1, "x")

    series = trace.one("z")
    assert all(series.at(sign.at_s + 1e-3) >= sign.held for sign in seen)
    assert all(series.at(sign.at_s + 1e-3) == sign.held for sign in seen if sign.all_there_was)
    assert max(series.counts) == max(sign.held for sign in seen)


def test_what_was_before_the_start_counts_at_the_start_and_what_comes_after_the_end_does_not() -> None:
    trace = recorded_trace({"z": signs((-50, 3), (-20, 1, "taken"), (70, 5), (200, 0, "taken"))}, 0.0, 100.0, "x")
    assert list(trace.one("z").changes()) == [(0.0, 1), (25.0, 5)]
    assert trace.end_s == 100.0


def test_nothing_is_no_recording() -> None:
    with pytest.raises(TraceError, match="x: nothing was recorded"):
        recorded_trace({}, 0.0, 100.0, "x")
