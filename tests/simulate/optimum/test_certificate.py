"""A bound is proven by multipliers whoever finds them, good or bad; good ones prove nearly all there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.simulate.optimum.certificate import proven_rate
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.ratio import least_ratio
from scaler.simulate.optimum.relaxation import problem_of
from tests.builders.scenarios import a_capacity, a_scenario

PROGRAM, _ = build(problem_of(a_scenario(a_capacity("a", (0, 4), (1, 2), refund_s=1800), hours=2, warm_replicas=2)))
ANSWER = least_ratio(PROGRAM, 1e6)


def test_a_plan_is_within_a_millionth_of_what_is_proven() -> None:
    assert 0 < ANSWER.proven <= ANSWER.reached <= ANSWER.proven * (1 + 1e-6)


def test_no_multipliers_prove_nothing_much() -> None:
    nothing = proven_rate(PROGRAM, np.zeros(len(PROGRAM.row_upper)))
    assert nothing == pytest.approx(PROGRAM.fixed_usd / PROGRAM.upper[PROGRAM.credited])


@settings(max_examples=200)
@given(st.integers(min_value=0, max_value=10**9), st.sampled_from([1e-3, 1.0, 1e3]))
def test_no_multipliers_prove_more_than_the_optimum(seed: int, size: float) -> None:
    multipliers = np.random.default_rng(seed).normal(scale=size, size=len(PROGRAM.row_upper))
    assert proven_rate(PROGRAM, multipliers) <= ANSWER.reached


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_multipliers_that_are_no_numbers_prove_nothing_wrong(broken: float) -> None:
    multipliers = np.full(len(PROGRAM.row_upper), broken)
    assert 0 <= proven_rate(PROGRAM, multipliers) <= ANSWER.reached


@pytest.mark.parametrize("first", [1e-6, 1e-2, 1.0, 1e9])
def test_the_answer_does_not_hang_on_where_the_search_starts(first: float) -> None:
    assert least_ratio(PROGRAM, first).proven == pytest.approx(ANSWER.proven, rel=1e-6)
