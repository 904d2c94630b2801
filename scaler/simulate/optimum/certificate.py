"""What multipliers prove, whoever found them: a bound that does not trust the solver.

For any multipliers y <= 0 of the rows A x <= b, every feasible x has

    cost @ x - lambda * x[credited] >= y @ b + sum over columns of min(d * lower, d * upper),

with d = cost - lambda * e[credited] - A^T y (weak duality; all columns are bounded, so the right side is finite). Only the
term of `credited` knows lambda, so the greatest lambda for which the right side is not negative is found at once. With it,
cost >= lambda * credited for all that is feasible. Rounding is answered for by a margin far above that of the sums.
"""

import numpy as np

from scaler.simulate.optimum.builder import Program
from scaler.simulate.optimum.steps import Floats

_ROUNDING = float(np.finfo(float).eps)
"""Twice what one operation may be off by, relative; a sum of n terms is off by n times as much of the sum of their sizes."""


def proven_rate(program: Program, multipliers: Floats) -> float:
    """A lower bound of cost over credited samples (USD a unit of samples), not negative."""
    y = np.minimum(np.where(np.isfinite(multipliers), multipliers, 0.0), 0.0)
    products = program.value * np.repeat(y, np.diff(program.starts))
    columns = len(program.cost)
    reduced = program.cost - np.bincount(program.index, weights=products, minlength=columns)
    terms = np.minimum(reduced * program.lower, reduced * program.upper)
    terms[program.credited] = 0.0
    sides = y * program.row_upper
    fixed = program.fixed_usd + float(sides.sum() + terms.sum())
    return _rate(program, fixed - _error(program, products, sides, terms), float(reduced[program.credited]))


def proven_least(program: Program, multipliers: Floats) -> float:
    """A lower bound of cost @ x + fixed_usd over all that is feasible, at a lambda of 0."""
    y = np.minimum(np.where(np.isfinite(multipliers), multipliers, 0.0), 0.0)
    products = program.value * np.repeat(y, np.diff(program.starts))
    reduced = program.cost - np.bincount(program.index, weights=products, minlength=len(program.cost))
    terms = np.minimum(reduced * program.lower, reduced * program.upper)
    sides = y * program.row_upper
    return program.fixed_usd + float(sides.sum() + terms.sum()) - _error(program, products, sides, terms)


def _error(program: Program, products: Floats, sides: Floats, terms: Floats) -> float:
    """More than all roundings together can come to."""
    columns = len(program.cost)
    entries = np.bincount(program.index, minlength=columns) + 4
    sizes = np.abs(program.cost) + np.bincount(program.index, weights=np.abs(products), minlength=columns)
    of_columns = float((entries * sizes * program.upper).sum())
    of_sums = (columns + len(sides) + 4) * float(program.fixed_usd + np.abs(sides).sum() + np.abs(terms).sum())
    return _ROUNDING * (of_columns + of_sums)


def _rate(program: Program, fixed: float, each: float) -> float:
    """The rate, where the right side is fixed + min(0, (each - lambda) * the most that can be credited).

    Where `fixed` is negative, multipliers smaller by a common factor are better: at 0 the right side is `fixed_usd`, and it
    is concave between.
    """
    most = float(program.upper[program.credited])
    if most <= 0:
        return np.inf
    if fixed < 0:
        share = program.fixed_usd / (program.fixed_usd - fixed)
        return max(0.0, share * each)
    return max(0.0, each + fixed / most)
