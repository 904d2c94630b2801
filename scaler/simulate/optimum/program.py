"""The linear program of a problem: minimise cost - lambda * credited samples.

Columns, all bounded (so that any multipliers at all give a bound, see `certificate`); replicas are means over a step,
samples are in units of what the trainer takes in a step:

    held[o, k]      paid replicas held             0 .. held_most
    paid[o, k]      charged replicas, only where a billing minimum is longer than a launch
    grants[o, k]    the same: grants, spread over the edges of steps
    ready[o, k]     of `held`, ready               0 .. ready_most
    lives[o, f, i]  replicas that fall f takes for nothing, by the moment of their grant
    free_held, free_ready [o, k]   refunded replicas where instances are taken at times of their own
    worked[k]       samples that the trainer works off
    stock[k]        made and not worked off, at the end of the step
    start           stock at the start
    credited        samples credited

`FORMAT.md` lists the rows; the package's docstring argues for them.
"""

from dataclasses import dataclass

import numpy as np

from scaler.simulate.optimum.problem import Life, OfferingLimits, Problem
from scaler.simulate.optimum.steps import Floats

Columns = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Program:
    """min cost @ x - lambda * x[credited] + fixed_usd, with lower <= x <= upper and row_lower <= A x <= row_upper.

    A is in rows: `starts`, `index`, `value`. Cost is in USD.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats
    starts: np.ndarray[tuple[int], np.dtype[np.int32]]
    index: np.ndarray[tuple[int], np.dtype[np.int32]]
    value: Floats
    credited: int
    fixed_usd: float


@dataclass(frozen=True, slots=True)
class OfferingColumns:
    """Where an offering's columns are. `lives`: one array a fall; `charged` is `held` where no minimum binds."""

    held: Columns
    charged: Columns
    ready: Columns
    lives: tuple[Columns, ...]
    free_held: Columns | None
    free_ready: Columns | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is in a solution."""

    offerings: tuple[OfferingColumns, ...]
    worked: Columns
    stock: Columns
    start: int
    credited: int
    unit_samples: float


class Builder:
    """Collects columns and rows."""

    def __init__(self) -> None:
        self.columns = 0
        self.rows = 0
        self._cost: list[Floats] = []
        self._upper: list[Floats] = []
        self._row_upper: list[Floats] = []
        self._entries: list[tuple[Columns, Columns, Floats]] = []

    def add(self, upper: Floats, cost: float = 0.0) -> Columns:
        """Columns from 0 to `upper` at a cost each."""
        found = np.arange(self.columns, self.columns + len(upper))
        self.columns += len(upper)
        self._upper.append(np.asarray(upper, float))
        self._cost.append(np.full(len(upper), cost))
        return found

    def at_most(self, upper: Floats, *terms: "tuple[Columns, Columns | int, Floats | float]") -> None:
        """Rows sum(terms) <= upper. A term: (row of these, column, coefficient), arrays of one length."""
        for row, column, value in terms:
            row, column = np.atleast_1d(row), np.atleast_1d(column)
            self._entries.append((row + self.rows, column, np.broadcast_to(np.asarray(value, float), row.shape)))
        self._row_upper.append(np.asarray(upper, float))
        self.rows += len(upper)

    def program(self, lower: dict[int, float], credited: int, fixed_usd: float) -> Program:
        """All of it, by rows."""
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        order = np.argsort(row, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=self.rows))))
        bottom = np.zeros(self.columns)
        for one, least in lower.items():
            bottom[one] = least
        return Program(
            cost=np.concatenate(self._cost),
            lower=bottom,
            upper=np.concatenate(self._upper),
            row_lower=np.full(self.rows, -np.inf),
            row_upper=np.concatenate(self._row_upper),
            starts=starts.astype(np.int32),
            index=column[order].astype(np.int32),
            value=value[order],
            credited=credited,
            fixed_usd=fixed_usd,
        )


def build(problem: Problem) -> tuple[Program, Layout]:
    """The program, and where its columns are."""
    builder = Builder()
    unit = problem.demand_samples_per_s * problem.step_s
    offerings = tuple(_offering(builder, problem, one) for one in problem.offerings)
    steps, stock = problem.steps, problem.stock
    worked = builder.add(np.ones(steps))
    levels = builder.add(np.full(steps, max(stock.most, stock.start_most + stock.slack) / unit))
    start = int(builder.add(np.array([stock.start_most / unit]))[0])
    credited = int(builder.add(np.array([problem.credit_most_samples / unit]))[0])
    layout = Layout(offerings, worked, levels, start, credited, unit)
    _flow(builder, problem, layout)
    _credit(builder, problem, layout)
    program = builder.program({start: stock.start_least / unit}, credited, problem.trainer_usd)
    return program, layout


def _offering(builder: Builder, problem: Problem, limits: OfferingLimits) -> OfferingColumns:
    usd_a_step = limits.usd_per_h * problem.step_s / 3600.0
    held_most, ready_most = np.array(limits.held_most), np.array(limits.ready_most)
    minimum = limits.minimum_steps
    held = builder.add(held_most, 0.0 if minimum else usd_a_step)
    ready = builder.add(ready_most)
    _lag(builder, problem.lag_steps, held, ready, float(limits.warm_replicas))
    charged = _minimum(builder, limits, held, usd_a_step) if minimum else held
    lives = tuple(builder.add(np.full(len(fall.lives), fall.most_replicas)) for fall in limits.falls)
    free_held = free_ready = None
    if limits.unforeseen_refund_s:
        free_held, free_ready = builder.add(held_most), builder.add(ready_most)
        _lag(builder, problem.lag_steps, free_held, free_ready, 0.0)
        _duty(builder, problem, limits, free_held, free_ready)
    found = OfferingColumns(held, charged, ready, lives, free_held, free_ready)
    _share(builder, problem, limits, found)
    return found


def _lag(builder: Builder, lag_steps: int, held: Columns, ready: Columns, before: float) -> None:
    """What is ready was held in this step and in each of the `lag_steps` before it."""
    steps = np.arange(len(held))
    for lag in range(min(lag_steps, len(held)) + 1):
        builder.at_most(
            np.where(steps < lag, before, 0.0),
            (steps, ready, 1.0),
            (steps[: len(steps) - lag] + lag, held[: len(steps) - lag], -1.0),
        )


def _minimum(builder: Builder, limits: OfferingLimits, held: Columns, usd_a_step: float) -> Columns:
    """Grants are charged for a while: charged >= held, its growth is granted, and grants of the last steps are charged."""
    steps = np.arange(len(held))
    most = float(max(limits.held_most)) * len(held) + limits.warm_replicas
    charged = builder.add(np.full(len(held), most), usd_a_step)
    grants = builder.add(np.full(len(held), most))
    nothing = np.zeros(len(held))
    builder.at_most(nothing, (steps, held, 1.0), (steps, charged, -1.0))
    growth = np.where(steps == 0, float(limits.warm_replicas), 0.0)
    builder.at_most(growth, (steps, charged, 1.0), (steps[1:], charged[:-1], -1.0), (steps, grants, -1.0))
    back = [(steps[lag:], grants[: len(steps) - lag], 1.0) for lag in range(min(limits.minimum_steps, len(held)))]
    builder.at_most(nothing, (steps, charged, -1.0), *back)
    return charged


def _duty(builder: Builder, problem: Problem, limits: OfferingLimits, held: Columns, ready: Columns) -> None:
    """A life that is refunded has spent its launch before it is ready, and does not last for ever."""
    ratio = max(0.0, 1.0 - problem.launch_s / limits.unforeseen_refund_s)
    first = np.zeros(len(held), dtype=np.int64)
    builder.at_most(np.zeros(1), (first, ready, 1.0), (first, held, -ratio))


def _share(builder: Builder, problem: Problem, limits: OfferingLimits, found: OfferingColumns) -> None:
    """Paid and refunded replicas share the offering's capacity, and a fall takes no more than it falls by."""
    for columns, most, free in (
        (found.held, limits.held_most, found.free_held),
        (found.ready, limits.ready_most, found.free_ready),
    ):
        is_held = columns is found.held
        spans = _spans(problem, limits, found, held=is_held)
        touched = np.arange(len(columns)) if free is not None else np.unique(spans[0])
        if not len(touched):
            continue
        row_of = np.zeros(len(columns), dtype=np.int64)
        row_of[touched] = np.arange(len(touched))
        terms = [(row_of[touched], columns[touched], 1.0), (row_of[spans[0]], spans[1], spans[2])]
        if free is not None:
            terms.append((row_of[touched], free[touched], 1.0))
        builder.at_most(np.array(most)[touched], *terms)
    for fall, lives in zip(limits.falls, found.lives, strict=True):
        builder.at_most(np.array([fall.most_replicas]), (np.zeros(len(lives), dtype=np.int64), lives, 1.0))


def _spans(
    problem: Problem, limits: OfferingLimits, found: OfferingColumns, *, held: bool
) -> tuple[Columns, Columns, Floats]:
    """(step, column, share of the step) of every life, held until its fall or ready."""
    rows: list[Columns] = [np.zeros(0, dtype=np.int64)]
    columns: list[Columns] = [np.zeros(0, dtype=np.int64)]
    shares: list[Floats] = [np.zeros(0)]
    for fall, lives in zip(limits.falls, found.lives, strict=True):
        for life, column in zip(fall.lives, lives, strict=True):
            steps, share = span(problem, life, fall.at_s if held else None)
            rows.append(steps)
            columns.append(np.full(len(steps), column))
            shares.append(share)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(shares)


def span(problem: Problem, life: Life, fall_s: float | None) -> tuple[Columns, Floats]:
    """Steps that a life is held in (until `fall_s`) or ready in (None), and the share of each."""
    from_s, to_s = (life.ready_from_s, life.ready_to_s) if fall_s is None else (life.granted_s, fall_s)
    first = max(0, int(from_s / problem.step_s) - 1)
    steps = np.arange(first, min(problem.steps, int(to_s / problem.step_s) + 2))
    begins_s = steps * problem.step_s
    share = (np.minimum(to_s, begins_s + problem.step_s) - np.maximum(from_s, begins_s)) / problem.step_s
    some = share > 0
    return steps[some], np.minimum(share[some], 1.0)


def _flow(builder: Builder, problem: Problem, layout: Layout) -> None:
    """stock[k] + worked[k] <= stock[k - 1] + goodput * ready[k]; and no more ready ones than find work."""
    steps = np.arange(problem.steps)
    ready = []
    for limits, found in zip(problem.offerings, layout.offerings, strict=True):
        ready += [(steps, found.ready, 1.0), _spans(problem, limits, found, held=False)]
        if found.free_ready is not None:
            ready.append((steps, found.free_ready, 1.0))
    per_replica = problem.goodput_samples_per_s / problem.demand_samples_per_s
    made = [(row, column, -per_replica * share) for row, column, share in ready]
    first = np.where(steps == 0, problem.stock.slack / layout.unit_samples, 0.0)
    before = (steps[1:], layout.stock[:-1], -1.0)
    start = (steps[:1], layout.start, -1.0)
    builder.at_most(first, (steps, layout.stock, 1.0), (steps, layout.worked, 1.0), before, start, *made)
    most = sum(np.array(limits.ready_most) for limits in problem.offerings)
    if np.max(most, initial=0.0) > problem.useful_replicas:
        builder.at_most(np.full(problem.steps, problem.useful_replicas), *ready)


def _credit(builder: Builder, problem: Problem, layout: Layout) -> None:
    """Nothing is credited that was not worked off, nor what the stock was eaten for."""
    first = np.zeros(problem.steps, dtype=np.int64)
    one = first[:1]
    credited, worked = (one, layout.credited, 1.0), (first, layout.worked, -1.0)
    builder.at_most(np.array([problem.credit_ahead_samples / layout.unit_samples]), credited, worked)
    builder.at_most(np.zeros(1), credited, worked, (one, layout.stock[-1], -1.0), (one, layout.start, 1.0))
