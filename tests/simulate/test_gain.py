"""What a search gained, from ratios that are given."""

import pytest

from scaler.simulate.gain import Verdict, gain_of
from scaler.simulate.jobs import Place
from tests.builders.comparisons import a_place

SEEN = [a_place(window) for window in range(4)]
UNSEEN = [a_place(window, start_h=100.0 + 12.0 * window) for window in range(8)]


def after(places: list[Place], *fell: float) -> dict[Place, float]:
    """Ratios that were 2 and fell by so much, over and over."""
    return {place: 2.0 - fell[number % len(fell)] for number, place in enumerate(places)}


def before(*places: Place) -> dict[Place, float]:
    return dict.fromkeys(places, 2.0)


def test_the_gain_is_the_mean_fall_and_the_interval_is_of_unseen_windows_alone() -> None:
    gain = gain_of(before(*SEEN, *UNSEEN), after(SEEN, 0.5) | after(UNSEEN, 0.1, 0.3), SEEN, UNSEEN)

    assert (gain.train, gain.test.value) == pytest.approx((0.5, 0.2))
    assert gain.test.interval is not None
    assert 0.1 < gain.test.interval.low < 0.2 < gain.test.interval.high < 0.3
    assert gain.verdict is Verdict.GAIN


def test_windows_that_cannot_be_judged_count_for_nothing() -> None:
    gain = gain_of(before(*SEEN[:2], *UNSEEN[:4]), after(SEEN, 0.5) | after(UNSEEN, 0.1), SEEN, UNSEEN)
    assert (gain.train, gain.test.value) == pytest.approx((0.5, 0.1))


def test_scenarios_on_the_same_windows_are_no_more_windows() -> None:
    """Else the same stretch, run under twenty names, would make any gain certain."""
    three = UNSEEN[:3]
    named = [
        Place(scenario=f"s{n}", trace="t.csv", window=p.window, start_h=p.start_h, hours=12.0)
        for n in range(20)
        for p in three
    ]
    gain = gain_of(before(*SEEN, *named), after(SEEN, 0.5) | after(named, 0.1), SEEN, named)

    assert gain.verdict is Verdict.TOO_FEW
    assert gain.test.value == pytest.approx(0.1)


def test_windows_that_go_up_and_down_in_turn_have_a_spread() -> None:
    """Every block of two has the same mean."""
    gain = gain_of(before(*SEEN, *UNSEEN), after(SEEN, 0.5) | after(UNSEEN, 0.5, -0.4), SEEN, UNSEEN)
    assert gain.verdict is Verdict.CHANCE


def test_windows_over_one_another_give_a_wider_interval_than_windows_side_by_side() -> None:
    close = [a_place(window, start_h=100.0 + 4.0 * window) for window in range(9)]
    apart = [a_place(window, start_h=100.0 + 12.0 * window) for window in range(9)]
    fell = (0.3, 0.3, 0.3, 0.1, 0.1, 0.1, -0.1, -0.1, -0.1)
    widths = []
    for places in (close, apart):
        found = gain_of(before(*SEEN, *places), after(SEEN, 0.5) | after(places, *fell), SEEN, places).test.interval
        assert found is not None
        widths.append(found.high - found.low)

    assert widths[0] > widths[1]
