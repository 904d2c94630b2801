"""What multipliers prove, whoever found them: a bound that does not trust the solver.

For any multipliers y of the rows, of the sign that their side asks for, every feasible x has

    cost @ x - lambda * x[credited] >= sum over rows of y * its side + sum over columns of min(d * lower, d * upper),

with d = cost - lambda * e[credited] - A^T y (weak duality; all columns are bounded, so the right side is finite). Only the
term of `credited` knows lambda, so the greatest lambda for which the right side is not negative is found at once. With it,
cost >= lambda * credited for all that is feasible. Rounding is answered for by a margin far above that of the sums.
"""

import numpy as np

from scaler.simulate.optimum.program import Program
from scaler.simulate.optimum.steps import Floats

_MARGIN = 1e-9


def proven_rate(program: Program, multipliers: Floats) -> float:
    """A lower bound of cost over credited samples (USD a unit of samples), not negative."""
    y = _signed(program, multipliers)
    rows = np.repeat(np.arange(len(y)), np.diff(program.starts))
    priced = np.bincount(program.index, weights=program.value * y[rows], minlength=len(program.cost))
    reduced = program.cost - priced
    terms = np.minimum(reduced * program.lower, reduced * program.upper)
    terms[program.credited] = 0.0
    sides = _sides(program, y)
    # Every rounding error is below a few units in the last place of the absolute values that went in.
    size = program.fixed_usd + np.abs(sides).sum() + np.abs(terms).sum()
    fixed = program.fixed_usd + float(sides.sum() + terms.sum() - _MARGIN * size)
    return _rate(program, fixed, float(reduced[program.credited]))


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


def _signed(program: Program, multipliers: Floats) -> Floats:
    y = np.where(np.isfinite(multipliers), multipliers, 0.0)
    y = np.where(np.isfinite(program.row_lower), y, np.minimum(y, 0.0))
    return np.where(np.isfinite(program.row_upper), y, np.maximum(y, 0.0))


def _sides(program: Program, y: Floats) -> Floats:
    side = np.where(y > 0, program.row_lower, program.row_upper)
    return np.where(y == 0, 0.0, y * np.where(y == 0, 0.0, side))
