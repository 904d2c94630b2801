"""The least cost per credited sample, by Dinkelbach's iteration over linear programs (Dinkelbach, 1967).

lambda starts too high; the program's optimum at lambda has a ratio, which is the next lambda; it falls until the optimum at
lambda is worth nothing. At each turn the multipliers prove a rate (`certificate`), and what is given back is the greatest
rate proven, never the ratio of a solution.
"""

from dataclasses import dataclass

import highspy
import numpy as np

from scaler.simulate.optimum.certificate import proven_rate
from scaler.simulate.optimum.program import Program
from scaler.simulate.optimum.steps import Floats

ENOUGH = 1e-6
"""Gap, relative, at which the iteration ends."""
MOST_TURNS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`proven` <= least ratio <= `reached`, USD a unit of samples; `solution` is what reaches the latter."""

    proven: float
    reached: float
    solution: Floats
    status: str
    turns: int
    solver_s: float

    @property
    def gap_ratio(self) -> float:
        """How far the two are apart, relative."""
        return (self.reached - self.proven) / self.reached if np.isfinite(self.reached) else 0.0


def least_ratio(program: Program, first: float) -> Answer:
    """`first`: a lambda to start from; where it is too low, it is raised."""
    solver = _solver(program)
    proven, reached, rate = -np.inf, np.inf, first
    solution = np.zeros(len(program.cost))
    turns, status = 0, "iteration limit"
    while turns < MOST_TURNS:
        turns += 1
        solver.changeColCost(program.credited, -rate)
        solver.run()
        status = solver.modelStatusToString(solver.getModelStatus())
        found = solver.getSolution()
        proven = max(proven, proven_rate(program, np.array(found.row_dual)))
        values = np.array(found.col_value)
        samples = values[program.credited]
        ratio = (program.fixed_usd + program.cost @ values) / samples if samples > 1e-9 else np.inf
        if ratio < reached:
            reached, solution = ratio, values
        if not np.isfinite(reached):
            rate *= 1000.0
            if rate > first * 1e12:
                break
            continue
        if reached - proven <= ENOUGH * reached:
            break
        rate = reached
    return Answer(
        proven=proven, reached=reached, solution=solution, status=status, turns=turns, solver_s=solver.getRunTime()
    )


class _Quiet(highspy.Highs):
    """It would print a banner on stdout while it is made, where a command's JSON goes."""

    def enableCallbacks(self) -> None:  # noqa: N802 - the solver's name
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def _solver(program: Program) -> highspy.Highs:
    solver = _Quiet()  # type: ignore[no-untyped-call]
    for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        solver.setOptionValue(name, value)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.row_upper)
    model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = (
        program.starts,
        program.index,
        program.value,
    )
    solver.passModel(model)
    return solver
