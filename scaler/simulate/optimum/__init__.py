"""The clairvoyant optimum."""

import time

from scaler.simulate.optimum.bound import Bound, Regime, bound_of
from scaler.simulate.optimum.problem import Problem
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.ratio import least_ratio
from scaler.simulate.optimum.relaxation import problem_of
from scaler.simulate.scenario import Scenario

__all__ = ["Bound", "Problem", "Regime", "problem_of", "solve"]


def solve(scenario: Scenario) -> Bound:
    """The bound, whatever the policy and the seed."""
    began_s = time.perf_counter()
    problem = problem_of(scenario)
    program, layout = build(problem)
    answer = least_ratio(program, _too_high(problem))
    return bound_of(scenario, problem, layout, answer, time.perf_counter() - began_s)


def _too_high(problem: Problem) -> float:
    """A rate (USD a step's demand) above that of any fleet worth having: everything that is held, for half the demand."""
    rent = sum(max(one.held_most) * one.usd_per_h for one in problem.offerings)
    return 2.0 * (problem.trainer_usd_per_h + rent) * problem.hours / problem.steps
