"""The least that a trainer waits at hardly more than the least cost: what a policy's waiting is held against.

`least_wait_ratio(...)` is below the waiting of every run that costs, a sample credited, at most `within` times the bound.

Why. Such a run gives a feasible point x of the bound's program (package docstring) with cost(x) at most the run's cost and
`credited` at least the run's, so that cost(x) <= within * bound * credited(x): x is feasible with that row too. `worked` of x
sums up to V. A trainer is busy for B seconds, of which each version takes a cycle and has its batches; within a version the
batches that publish nothing come first and pass faster than the mean, so that A >= demand * B at every moment, and
A <= V + `credit_ahead_samples`. The run waits end - B >= end - (V + ahead) / demand. V is at most what multipliers prove of the
greatest sum of `worked` (weak duality, as in `certificate`).

At the bound itself nothing costs less; a point exists as long as `within` covers the solver's gap. The program's waiting is no
plan's: it need not be reached by any policy.
"""

from dataclasses import replace

import numpy as np

from scaler.simulate.optimum.builder import Program
from scaler.simulate.optimum.certificate import proven_least
from scaler.simulate.optimum.problem import Problem
from scaler.simulate.optimum.program import Layout
from scaler.simulate.optimum.ratio import row_multipliers
from scaler.simulate.result import share

WITHIN = 1.01
"""Of the bound: what counts as hardly more."""


def least_wait_ratio(problem: Problem, program: Program, layout: Layout, rate: float, within: float = WITHIN) -> float:
    """Share of the window; `rate`: the proven bound, USD a unit of samples. NaN where nothing can be credited."""
    if not np.isfinite(rate):
        return float("nan")
    budgeted = _with_budget(program, within * rate)
    most = -_least(_as_most_worked(budgeted, layout), inside=problem.draws is not None)
    demand = problem.demand_samples_per_s * problem.edges_s[-1]
    return share(float(1.0 - (most * layout.unit_samples + problem.credit_ahead_samples) / demand))


def _least(program: Program, *, inside: bool) -> float:
    return proven_least(program, row_multipliers(program, inside=inside))


def _with_budget(program: Program, rate: float) -> Program:
    """One row more: cost - rate * credited <= - what is charged whatever happens."""
    paid = np.flatnonzero(program.cost)
    index = np.concatenate([paid, [program.credited]])
    value = np.concatenate([program.cost[paid], [-rate]])
    return replace(
        program,
        row_upper=np.append(program.row_upper, -program.fixed_usd),
        starts=np.append(program.starts, program.starts[-1] + len(index)).astype(np.int32),
        index=np.concatenate([program.index, index]).astype(np.int32),
        value=np.concatenate([program.value, value]),
    )


def _as_most_worked(program: Program, layout: Layout) -> Program:
    """The same points, the least of minus the sum of `worked`."""
    cost = np.zeros_like(program.cost)
    cost[layout.worked] = -1.0
    return replace(program, cost=cost, fixed_usd=0.0)
