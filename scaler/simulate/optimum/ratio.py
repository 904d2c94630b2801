"""The least cost per credited sample, by Dinkelbach's iteration over linear programs (Dinkelbach, 1967).

lambda starts too high; the program's optimum at lambda has a ratio, which is the next lambda; it falls until the optimum at
lambda is worth nothing. At each turn the multipliers prove a rate (`certificate`), and what is given back is the greatest
rate proven, never the ratio of a solution.
"""

from dataclasses import dataclass

import highspy
import numpy as np

from scaler.simulate.optimum.builder import Program
from scaler.simulate.optimum.certificate import proven_rate
from scaler.simulate.optimum.steps import Floats

ENOUGH = 1e-6
"""Gap, relative, at which the iteration ends."""
CLOSED = 1e-5
"""Gap, relative, that is none: where numbers differ much in size, roundings that are answered for leave a little."""
MOST_TURNS = 30
HIGHEST = 1e12
"""At so many times the first lambda nothing is worth its cost: nothing can be credited."""
RAISED = 1e3
PRIMAL = 4
"""The solver's number of its primal simplex: two to three times as fast here, and a new lambda leaves it where it was."""
INSIDE: dict[str, str | int] = {"solver": "ipm", "run_crossover": "off"}
"""Several times as fast where a program is large; what its multipliers prove is nearly as much, and needs no corner."""
_CRUMB = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`proven` <= least ratio <= `reached`, USD a unit of samples; `solution` is what reaches the latter."""

    proven: float
    reached: float
    solution: Floats
    status: str
    """The solver's last word."""
    turns: int
    solver_s: float

    @property
    def gap_ratio(self) -> float:
        """How far the two are apart, relative; 0 where a sample costs nothing, or none can be had."""
        return float((self.reached - self.proven) / self.reached) if 0 < self.reached < np.inf else 0.0


def least_ratio(program: Program, first: float, *, inside: bool = False) -> Answer:
    """`first`: a lambda to start from; where it is too low, it is raised. `inside`: by an interior point, see `INSIDE`."""
    solver = _solver(program, inside=inside)
    proven, reached, rate = 0.0, np.inf, first
    solution, status, turns = program.lower, "not run", 0
    enough = CLOSED if inside else ENOUGH
    while turns < MOST_TURNS and reached - proven > enough * proven and rate <= first * HIGHEST:
        turns += 1
        solver.changeColCost(program.credited, -rate)
        solver.run()
        status = str(solver.modelStatusToString(solver.getModelStatus()))
        found = solver.getSolution()
        if not (found.value_valid and found.dual_valid):
            break
        before = (proven, reached)
        proven = max(proven, proven_rate(program, np.array(found.row_dual)))
        values = np.array(found.col_value)
        ratio = _ratio(program, values)
        if ratio < reached:
            reached, solution = ratio, values
        if np.isfinite(reached) and before == (proven, reached):
            break
        rate = reached if np.isfinite(reached) else rate * RAISED
    nothing = not np.isfinite(reached) and rate > first * HIGHEST
    return Answer(
        proven=np.inf if nothing else proven,
        reached=reached,
        solution=solution,
        status=status,
        turns=turns,
        solver_s=solver.getRunTime(),
    )


def least_cost(program: Program, rate: float) -> Floats | None:
    """What minimises cost - rate * credited; None where the solver finds nothing."""
    solver = _solver(program)
    solver.changeColCost(program.credited, -rate)
    solver.run()
    found = solver.getSolution()
    return np.array(found.col_value) if found.value_valid else None


def row_multipliers(program: Program, *, inside: bool = False) -> Floats:
    """Those of its rows at the least cost, a lambda of 0; zeros where the solver finds none, which prove less."""
    solver = _solver(program, inside=inside)
    solver.run()
    found = solver.getSolution()
    return np.array(found.row_dual) if found.dual_valid else np.zeros(len(program.row_upper))


def _ratio(program: Program, values: Floats) -> float:
    samples = float(values[program.credited])
    cost = program.fixed_usd + float(program.cost @ values)
    return cost / samples if samples > _CRUMB else np.inf


class _Quiet(highspy.Highs):
    """It would print a banner on stdout while it is made, where a command's JSON goes."""

    def enableCallbacks(self) -> None:  # noqa: N802 - the solver's name
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def _solver(program: Program, *, inside: bool = False) -> highspy.Highs:
    solver = _Quiet()  # type: ignore[no-untyped-call]
    usual: dict[str, str | int] = {"random_seed": 0, "simplex_strategy": PRIMAL}
    for name, value in (usual | INSIDE if inside else usual).items():
        solver.setOptionValue(name, value)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.row_upper)
    model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.lower, program.upper
    model.row_lower_, model.row_upper_ = np.full(len(program.row_upper), -np.inf), program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = program.starts, program.index
    model.a_matrix_.value_ = program.value
    solver.passModel(model)
    return solver
