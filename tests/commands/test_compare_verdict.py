"""The closing sentence of a comparison: who is cheapest, by how much, and whether by more than chance."""

import math

import pytest

from scaler.commands.compare_verdict import sentences
from scaler.simulate.bootstrap import both_draws, mean_of, wider
from scaler.simulate.compare import blocks_of, compare
from scaler.simulate.verdict import verdicts
from tests.builders.comparisons import a_place, some_rows

SIX = [1.0, 2.0, 1.5, 8.0, 1.0, 3.0]
"""Costs of six windows that differ far more among themselves than policies do in each."""


def said(bounds: list[float], **costs: list[float]) -> str:
    (sentence,) = sentences(compare(some_rows(bounds, "t.csv", **costs)))
    return sentence


def above(factor: float, plus: list[float] | None = None) -> list[float]:
    return [factor * cost + more for cost, more in zip(SIX, plus or [0.0] * 6, strict=True)]


def test_a_difference_in_every_window_is_more_than_chance_however_much_windows_differ() -> None:
    told = said(SIX, dear=above(1.2), cheap=above(1.1), middle=above(1.1, [0.1] * 6))
    assert told.startswith("small: cheap has the lowest mean cost, 3.025 USD per 1,000 samples over 6 windows")
    assert "3.2 % below the next, middle (3.125 USD). That is more than chance" in told
    assert "window by window the difference is 0.1 to 0.1 USD (95 %)." in told


def test_a_difference_that_is_now_for_one_and_now_for_the_other_may_be_chance() -> None:
    told = said(SIX, a=above(1.1), b=above(1.1, [0.5, -0.4, 0.3, -0.5, 0.2, 0.1]))
    assert "a has the lowest mean cost" in told
    assert "That may be chance" in told
    assert "0 is in it" in told


def test_the_interval_is_that_of_the_paired_differences() -> None:
    plus = [0.5, 0.1, 0.3, 0.2, 0.9, 0.1]
    rows = some_rows(SIX, a=above(1.1), b=above(1.1, plus))
    (found,) = verdicts(compare(rows))
    expected = wider(mean_of(plus), both_draws(*blocks_of([a_place(i) for i in range(6)])))
    assert expected is not None
    assert found.more.interval is not None
    assert (found.more.interval.low, found.more.interval.high) == pytest.approx((expected.low, expected.high))
    assert found.more.value == pytest.approx(0.35)


def test_differences_that_go_up_and_down_in_turn_may_be_chance() -> None:
    """Blocks of two of them all have the same mean."""
    told = said([1.0] * 8, a=[1.5] * 8, b=[2.5, 0.6] * 4)
    assert "a has the lowest mean cost" in told
    assert "That may be chance" in told


def test_three_windows_are_too_few_to_tell_from_chance() -> None:
    told = said([1.0] * 3, a=[1.1] * 3, b=[1.2] * 3)
    assert told.endswith("Whether that is more than chance cannot be said: it takes 4 windows or more.")


def test_a_single_policy_is_held_against_none() -> None:
    assert said([1.0], a=[1.5]) == (
        "small: a costs 1.500 USD per 1,000 samples over 1 window; there is no other to hold it against."
    )


def test_policies_that_cost_the_same_are_level_and_that_may_be_chance() -> None:
    told = said([1.0] * 4, a=[1.5] * 4, b=[1.5] * 4)
    assert "level with the next, b" in told
    assert "That may be chance" in told


def test_a_policy_that_trained_nothing_somewhere_has_no_mean_cost() -> None:
    assert said([1.0] * 4, a=[1.5] * 4, b=[1.0, 1.0, 1.0, math.inf]).endswith(
        "; every other policy trained nothing in some window."
    )
    assert "no policy trained something in each of the 4 windows" in said([1.0] * 4, b=[1.0, 1.0, 1.0, math.inf])


def test_windows_without_a_bound_do_not_count() -> None:
    told = said([1.0, 1.0, math.inf], a=[1.5, 1.5, math.inf], b=[2.0, 2.0, math.inf])
    assert "a has the lowest mean cost, 1.500 USD per 1,000 samples over 2 windows" in told
