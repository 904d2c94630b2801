"""The clairvoyant optimum."""

import time
from dataclasses import replace

from scaler.simulate.optimum.bound import Bound, Regime, bound_of
from scaler.simulate.optimum.problem import Problem
from scaler.simulate.optimum.program import build
from scaler.simulate.optimum.ratio import least_ratio
from scaler.simulate.optimum.relaxation import problem_of
from scaler.simulate.scenario import Scenario

__all__ = ["Bound", "Problem", "Regime", "problem_of", "solve", "without_refunds"]


def solve(scenario: Scenario, *, draws_known: bool = True) -> Bound:
    """The bound, whatever the policy and the seed; a second or so for 12 hours of a dozen offerings."""
    began_s = time.perf_counter()
    problem = problem_of(scenario, draws_known=draws_known)
    program, layout = build(problem)
    answer = least_ratio(program, _too_high(problem))
    plain = without_refunds(problem)
    before_refunds = answer.proven if plain == problem else least_ratio(build(plain)[0], _too_high(plain)).proven
    return bound_of(scenario, problem, layout, answer, before_refunds, time.perf_counter() - began_s)


def without_refunds(problem: Problem) -> Problem:
    """The same problem where every instance is paid for: it bounds cost before refunds are taken off."""
    offerings = tuple(replace(one, falls=(), unforeseen_refund_s=0.0) for one in problem.offerings)
    return replace(
        problem, offerings=offerings, instants_s=(), limits=tuple(replace(one, falls_most=()) for one in problem.limits)
    )


def _too_high(problem: Problem) -> float:
    """A rate (USD a mean step's demand) above that of any fleet worth having: all that is held, for half the demand."""
    rent = sum(max(one.held_most) * one.usd_per_h for one in problem.offerings)
    return 2.0 * (problem.trainer_usd_per_h + rent) * problem.hours / problem.steps
