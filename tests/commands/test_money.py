"""Money in tables: what a solver rounds is no part of a cost, and nothing is `inf` or `-0`."""

import math

from scaler.commands.money import cost_in_parts, dollars


def test_parts_that_are_a_solver_s_rounding_are_left_out() -> None:
    rents = {"spot": 119.4, "capacity-block": -3e-12, "on-demand": 0.0}
    assert cost_in_parts(239.4, 120.0, rents) == "239.40 USD: trainer 120, spot 119"
    assert cost_in_parts(5284.0, 5284.0, {"spot": 0.0}) == "5,284.00 USD: trainer 5,284"


def test_small_parts_keep_their_cents() -> None:
    assert cost_in_parts(0.5, 0.06, {"spot": 0.444}) == "0.50 USD: trainer 0.06, spot 0.44"


def test_an_infinite_cost_and_a_cost_just_below_nothing_are_told_in_words_and_as_0() -> None:
    assert dollars(math.inf) == "infinite, as no sample is credited"
    assert dollars(-3e-12) == "0.00 USD"
