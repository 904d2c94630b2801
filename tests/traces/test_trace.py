import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.traces.trace import CapacityTrace, Gap, Series
from tests.builders.traces import a_trace

ZONES = a_trace(end_s=7200.0, a={0: 4, 1800: 0, 3600: 16}, b={0: 1, 2700: 5})


@st.composite
def traces(draw: st.DrawFn) -> CapacityTrace:
    times = st.lists(st.integers(1, 99), max_size=12, unique=True).map(lambda found: [0, *sorted(found)])
    series = {
        name: {float(time): draw(st.integers(0, 20)) for time in draw(times)}
        for name in draw(st.sampled_from(["a", "ab", "abc"]))
    }
    return a_trace(100.0, 1.0, **series)


def changes(trace: CapacityTrace, name: str) -> list[tuple[float, int]]:
    return list(trace.one(name).changes())


def test_a_value_holds_until_the_next_and_beyond_the_end() -> None:
    series = ZONES.one("a")
    assert [series.at(time_s) for time_s in (-1, 0, 1799.9, 1800, 3600, 1e9)] == [4, 4, 4, 0, 16, 16]


def test_time_is_compressed_and_counts_are_scaled_down_and_capped() -> None:
    trace = ZONES.faster(60).scaled(0.375).capped(5)
    assert trace.end_s == 120.0
    assert changes(trace, "a") == [(0, 1), (30, 0), (60, 5)]
    assert changes(trace, "b") == [(0, 0), (45, 1)]


def test_scaling_never_loses_one_to_rounding() -> None:
    trace = a_trace(a={0: 3, 1: 10}).scaled(1 / 3)
    assert changes(trace, "a") == [(0, 1), (1, 3)]


def test_series_are_chosen_in_the_order_asked_for_and_merged_by_adding() -> None:
    assert ZONES.select(["b", "a"]).names == ("b", "a")
    assert changes(ZONES.merged("all"), "all") == [(0, 5), (1800, 1), (2700, 5), (3600, 21)]
    with pytest.raises(KeyError, match="has no series 'c'; it has a, b"):
        ZONES.select(["c"])


def test_a_window_starts_with_what_held_then_and_ends_with_the_trace() -> None:
    trace = ZONES.window(0.25, 0.5)
    assert (trace.end_s, changes(trace, "a"), changes(trace, "b")) == (1800.0, [(0, 4), (900, 0)], [(0, 1)])
    rest = ZONES.window(1, 100)
    assert (rest.end_s, changes(rest, "a"), changes(rest, "b")) == (3600.0, [(0, 16)], [(0, 5)])


@pytest.mark.parametrize(("start_h", "hours"), [(2, 1), (-1, 2), (0, 0), (1, -1), (math.nan, 1), (0, math.nan)])
def test_a_window_outside_of_the_trace_or_empty_is_refused(start_h: float, hours: float) -> None:
    with pytest.raises(ValueError, match=r"no window of .* the trace lasts 2\.00 h"):
        ZONES.window(start_h, hours)


def test_gaps_are_cut_and_scaled_along() -> None:
    gaps = (Gap(start_s=0, end_s=600, line=3), Gap(start_s=3000, end_s=5000, line=9))
    trace = CapacityTrace(source="x", format="x", series=ZONES.series, end_s=7200.0, tick_s=60.0, gaps=gaps)
    assert trace.window(0.5, 0.75).faster(10).gaps == (Gap(start_s=120, end_s=270, line=0),)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([3, 0, 3, 3], [3, 3, 3, 3]),
        ([5, 0, 2, 2], [5, 2, 2, 2]),
        ([2, 0, 5, 5], [2, 2, 5, 5]),
        ([3, 0, 0, 3], [3, 0, 0, 3]),
        ([0, 3, 0, 3], [0, 3, 3, 3]),
        ([3, 0, 3, 0], [3, 3, 3, 0]),
        ([3, 1, 3, 3], [3, 1, 3, 3]),
        ([3, 0, 2, 0, 4], [3, 2, 2, 2, 4]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_one_tick_falls_to_0_that_refill_can_be_taken_out(counts: list[int], expected: list[int]) -> None:
    trace = a_trace(tick_s=60.0, a={60.0 * place + place % 2: count for place, count in enumerate(counts)})
    filled = trace.without_dips().one("a")
    assert [filled.at(60.0 * place + place % 2) for place in range(len(counts))] == expected


@given(traces())
def test_taking_out_dips_promises_nothing_that_neither_neighbour_had(trace: CapacityTrace) -> None:
    for before, after in zip(trace.series, trace.without_dips().series, strict=True):
        assert after.losses() <= before.losses()
        assert all(after.at(t) >= before.at(t) for t in before.times_s)
        assert max(after.counts) == max(before.counts)


@given(traces(), st.floats(0.01, 1000))
def test_compressing_time_changes_when_and_nothing_else(trace: CapacityTrace, ratio: float) -> None:
    faster = trace.faster(ratio)
    for slow, fast in zip(trace.series, faster.series, strict=True):
        assert slow.counts == fast.counts
        assert slow.losses() == fast.losses()


@given(traces(), st.integers(0, 98), st.integers(1, 100))
def test_a_window_shows_what_the_whole_shows(trace: CapacityTrace, start_s: int, length_s: int) -> None:
    part = trace.window(start_s / 3600, length_s / 3600)
    for whole, cut in zip(trace.series, part.series, strict=True):
        for time_s in range(int(part.end_s)):
            assert cut.at(time_s + 0.5) == whole.at(start_s + time_s + 0.5)


@given(traces())
def test_a_merged_trace_has_what_all_have_together(trace: CapacityTrace) -> None:
    together = trace.merged("all").one("all")
    for time_s in range(0, 100, 7):
        assert together.at(time_s) == sum(series.at(time_s) for series in trace.series)


@pytest.mark.parametrize(
    ("times_s", "counts"),
    [((), ()), ((1.0,), (1,)), ((0.0, 0.0), (1, 2)), ((0.0, 2.0, 1.0), (1, 2, 3)), ((0.0,), (1, 2)), ((0.0,), (-1,))],
)
def test_what_is_no_step_function_is_refused(times_s: tuple[float, ...], counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="series a"):
        Series(name="a", times_s=times_s, counts=counts)


def test_a_trace_without_series_or_with_two_of_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="needs series"):
        ZONES.select([])
    with pytest.raises(ValueError, match="name of its own"):
        ZONES.select(["a", "a"])


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan])
def test_time_does_not_stand_still_or_run_back(ratio: float) -> None:
    with pytest.raises(ValueError, match="not positive"):
        ZONES.faster(ratio)
