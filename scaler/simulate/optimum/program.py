"""The linear program of a problem: minimise cost - lambda * credited samples.

Columns, all bounded (so that any multipliers at all give a bound, see `certificate`); replicas are means over a step,
samples are in units of what the trainer takes in a mean step. What is ready counts as far as it works.

    held[o, k]      paid replicas held             0 .. held_most
    charged[o, k]   paid for, only where a billing minimum is longer than a launch
    grants[o, k]    the same: grants, shared out between the two edges of their step
    ready[o, k]     of `held`, ready               0 .. ready_most
    lives[o, f, i]  replicas that fall f takes for nothing, by the moment of their grant
    taken_ready[o, k]  of `lives`, ready
    free_held, free_ready [o, k]   refunded replicas where instances are taken at times of their own
    instant[o, t]   replicas held just before the falls of a moment, only where a guard rail limits them
    worked[k]       samples that the trainer works off
    stock[k]        made and not worked off, at the end of the step
    start           stock at the start
    credited        samples credited

`FORMAT.md` lists the rows; the package's docstring argues for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaler.simulate.optimum.builder import Builder, OfferingColumns, Program, Term
from scaler.simulate.optimum.luck import add_draws
from scaler.simulate.optimum.problem import OfferingLimits, Problem, fades_after
from scaler.simulate.optimum.steps import Floats
from scaler.simulate.optimum.times import Columns, Spans, Times


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is in a solution."""

    offerings: tuple[OfferingColumns, ...]
    worked: Columns
    stock: Columns
    start: int
    credited: int
    unit_samples: float


def build(problem: Problem, *, pays_for_falls: bool = False) -> tuple[Program, Layout]:
    """The program, and where its columns are. `pays_for_falls`: what a fall leaves must be held too, see `foresight`."""
    builder, times = Builder(), Times(problem)
    unit = problem.demand_samples_per_s * problem.edges_s[-1] / problem.steps
    offerings = tuple(_offering(builder, problem, times, one) for one in problem.offerings)
    steps, stock = problem.steps, problem.stock
    worked = builder.add(problem.demand_samples_per_s * times.lasts_s / unit)
    levels = builder.add(np.full(steps, max(stock.most, stock.start_most + stock.slack) / unit))
    start = int(builder.add(np.array([stock.start_most / unit]))[0])
    credited = int(builder.add(np.array([problem.credit_most_samples / unit]))[0])
    layout = Layout(offerings, worked, levels, start, credited, unit)
    _flow(builder, problem, times, layout)
    _credit(builder, problem, layout)
    add_limits(builder, problem, times, offerings)
    if problem.draws is not None:
        for limits, found in zip(problem.offerings, offerings, strict=True):
            add_draws(builder, problem.draws, times, limits, found)
    if pays_for_falls:
        for limits, found in zip(problem.offerings, offerings, strict=True):
            _pay_for_falls(builder, times, limits, found)
    program = builder.program({start: stock.start_least / unit}, credited, problem.trainer_usd)
    return program, layout


def _offering(builder: Builder, problem: Problem, times: Times, limits: OfferingLimits) -> OfferingColumns:
    usd = limits.usd_per_h * times.lasts_s / 3600.0
    held_most, ready_most = np.array(limits.held_most), np.array(limits.ready_most)
    held = builder.add(held_most, 0.0 if limits.minimum_s else usd)
    ready = builder.add(ready_most)
    _lag(builder, times, held, ready)
    charged = _minimum(builder, limits, times, held, usd) if limits.minimum_s else held
    lives = tuple(builder.add(np.full(len(fall.lives), fall.most_replicas)) for fall in limits.falls)
    free_held = free_ready = None
    if limits.unforeseen_refund_s:
        free_held, free_ready = builder.add(held_most), builder.add(ready_most)
        _lag(builder, times, free_held, free_ready)
        _duty(builder, problem, limits, times, free_held, free_ready)
    spans = (_spans(times, limits, lives, held=True), _spans(times, limits, lives, held=False))
    taken_ready = _taken(builder, ready_most, spans[1]) if lives else None
    found = OfferingColumns(held, charged, ready, lives, *spans, taken_ready, free_held, free_ready)
    _share(builder, limits, found)
    return found


def _taken(builder: Builder, ready_most: Floats, lives_ready: Spans) -> Columns:
    """Refunded replicas that are ready: not all are as soon, nor as long, as their lives could be."""
    taken_ready, steps = builder.add(ready_most), np.arange(len(ready_most))
    step, column, share = lives_ready
    builder.at_most(np.zeros(len(steps)), (steps, taken_ready, 1.0), (step, column, -share))
    return taken_ready


def _lag(builder: Builder, times: Times, held: Columns, ready: Columns) -> None:
    """What is ready was held in this step and in all others that lie wholly within a launch before it."""
    later, earlier = times.lags
    builder.at_most(
        np.zeros(len(later)), (np.arange(len(later)), ready[later], 1.0), (np.arange(len(later)), held[earlier], -1.0)
    )


def _minimum(builder: Builder, limits: OfferingLimits, times: Times, held: Columns, usd: Floats) -> Columns:
    """Grants are charged for a while: charged >= held, its growth is granted, and grants of late are charged."""
    steps = np.arange(len(held))
    # Far above what can be: a decision a second, each filling the offering anew.
    most = 2.0 * max(limits.held_most) * (times.edges_s[-1] + len(held) + 1) + limits.warm_replicas
    charged = builder.add(np.full(len(held), most), usd)
    grants = builder.add(np.full(len(held), most))
    nothing = np.zeros(len(held))
    builder.at_most(nothing, (steps, held, 1.0), (steps, charged, -1.0))
    growth = np.where(steps == 0, float(limits.warm_replicas), 0.0)
    builder.at_most(growth, (steps, charged, 1.0), (steps[1:], charged[:-1], -1.0), (steps, grants, -1.0))
    now, granted = times.within_minimum(limits.minimum_s)
    builder.at_most(nothing, (steps, charged, -1.0), (now, grants[granted], 1.0))
    return charged


def _duty(
    builder: Builder, problem: Problem, limits: OfferingLimits, times: Times, held: Columns, ready: Columns
) -> None:
    """A life that is refunded has spent its launch before it is ready, and does not last for ever."""
    ratio = max(0.0, 1.0 - problem.launch_s / limits.unforeseen_refund_s)
    first, shares = np.zeros(len(held), dtype=np.int64), times.lasts_s / times.edges_s[-1]
    builder.at_most(np.zeros(1), (first, ready, shares), (first, held, -ratio * shares))


def _share(builder: Builder, limits: OfferingLimits, found: OfferingColumns) -> None:
    """Paid and refunded replicas share the offering's capacity, and a fall takes no more than it falls by."""
    steps = np.arange(len(found.held))
    if found.lives or found.free_held is not None:
        others = [(steps, columns, 1.0) for columns in (found.free_held,) if columns is not None]
        builder.at_most(np.array(limits.held_most), (steps, found.held, 1.0), found.lives_held, *others)
        others = [(steps, columns, 1.0) for columns in (found.taken_ready, found.free_ready) if columns is not None]
        builder.at_most(np.array(limits.ready_most), (steps, found.ready, 1.0), *others)
    for fall, lives in zip(limits.falls, found.lives, strict=True):
        builder.at_most(np.array([fall.most_replicas]), (np.zeros(len(lives), dtype=np.int64), lives, 1.0))


def _spans(times: Times, limits: OfferingLimits, lives: Sequence[Columns], *, held: bool) -> Spans:
    stretches = [
        (life.granted_s, fall.at_s, None) if held else (life.ready_from_s, life.ready_to_s, fades_after(fall, life))
        for fall in limits.falls
        for life in fall.lives
    ]
    return times.spans(stretches, np.concatenate([np.zeros(0, dtype=np.int64), *lives]))


def _flow(builder: Builder, problem: Problem, times: Times, layout: Layout) -> None:
    """stock[k] + worked[k] <= stock[k - 1] + goodput * ready[k]; and no more ready ones than find work."""
    steps = np.arange(problem.steps)
    ready: list[Spans] = [
        (steps, columns, np.ones(problem.steps))
        for found in layout.offerings
        for columns in (found.ready, found.taken_ready, found.free_ready)
        if columns is not None
    ]
    made_by_one = problem.goodput_samples_per_s * times.lasts_s / layout.unit_samples
    made = [(row, column, -made_by_one[row] * share) for row, column, share in ready]
    first = np.where(steps == 0, problem.stock.slack / layout.unit_samples, 0.0)
    before = (steps[1:], layout.stock[:-1], -1.0)
    start = (steps[:1], layout.start, -1.0)
    builder.at_most(first, (steps, layout.stock, 1.0), (steps, layout.worked, 1.0), before, start, *made)
    most = sum((np.array(limits.ready_most) for limits in problem.offerings), np.zeros(problem.steps))
    if most.max() > problem.useful_replicas:
        builder.at_most(np.full(problem.steps, problem.useful_replicas), *ready)


def _credit(builder: Builder, problem: Problem, layout: Layout) -> None:
    """Nothing is credited that was not worked off, nor what the stock was eaten for."""
    first = np.zeros(problem.steps, dtype=np.int64)
    one = first[:1]
    credited, worked = (one, layout.credited, 1.0), (first, layout.worked, -1.0)
    builder.at_most(np.array([problem.credit_ahead_samples / layout.unit_samples]), credited, worked)
    builder.at_most(np.zeros(1), credited, worked, (one, layout.stock[-1], -1.0), (one, layout.start, 1.0))


def add_limits(builder: Builder, problem: Problem, times: Times, offerings: Sequence[OfferingColumns]) -> None:
    """The guard rails, over each step and at the moments of falls."""
    if not problem.limits:
        return
    steps = np.arange(problem.steps)
    instants = [_instants(builder, problem, times, *one) for one in zip(problem.offerings, offerings, strict=True)]
    moments = np.arange(len(problem.instants_s))
    for limit in problem.limits:
        means: list[Term] = []
        before: list[Term] = []
        for weight, found, instant in zip(limit.weights, offerings, instants, strict=True):
            if weight:
                row, column, share = found.lives_held
                means += [(steps, found.held, weight), (row, column, weight * share)]
                before.append((moments, instant, weight))
        builder.at_most(np.array(limit.mean_most), *means)
        if len(moments):
            builder.at_most(np.array(limit.falls_most), *before)


def _pay_for_falls(builder: Builder, times: Times, limits: OfferingLimits, found: OfferingColumns) -> None:
    """A fall takes its share of what is held in the step before it, and of that only."""
    for at_s in {fall.at_s for fall in limits.falls}:
        here = [(fall, lives) for fall, lives in zip(limits.falls, found.lives, strict=True) if fall.at_s == at_s]
        step = max(0, int(np.searchsorted(times.ends_s, at_s + 1e-6, "right")) - 1)
        share = 1.0 + here[0][0].stays / max(fall.most_replicas for fall, _ in here)
        taken = np.concatenate([lives for _, lives in here])
        rows, columns, shares = found.lives_held
        inside = rows == step
        held: Term = (np.zeros(int(inside.sum()), dtype=np.int64), columns[inside], -shares[inside])
        zero = np.zeros(len(taken), dtype=np.int64)
        builder.at_most(np.zeros(1), (zero, taken, share), (zero[:1], found.held[step : step + 1], -1.0), held)


def _instants(
    builder: Builder, problem: Problem, times: Times, limits: OfferingLimits, found: OfferingColumns
) -> Columns:
    """Held just before the falls of a moment: what is ready soon after, the lives that end later, those that must stay."""
    # The most that the rows below can ask for.
    most = max(limits.ready_most) + sum(fall.most_replicas + fall.stays for fall in limits.falls)
    instants = builder.add(np.full(len(problem.instants_s), float(most)))
    falls = dict(zip((fall.at_s for fall in limits.falls), zip(limits.falls, found.lives, strict=True), strict=True))
    for at_s, instant in zip(problem.instants_s, instants, strict=True):
        alive = _alive(limits, found, at_s)
        zero = np.zeros(len(alive), dtype=np.int64)
        lives: Term = (zero, alive, 1.0)
        one = np.zeros(1, dtype=np.int64)
        for ready in [found.ready[k : k + 1] for k in times.soon_after(at_s, problem.launch_s)] or [alive[:0]]:
            builder.at_most(np.zeros(1), (one[: len(ready)], ready, 1.0), lives, (one, int(instant), -1.0))
        if at_s in falls:
            fall, columns = falls[at_s]
            taken = np.zeros(len(columns), dtype=np.int64)
            share = 1.0 + fall.stays / fall.most_replicas
            builder.at_most(np.zeros(1), (taken, columns, share), (one, int(instant), -1.0))
    return instants


def _alive(limits: OfferingLimits, found: OfferingColumns, at_s: float) -> Columns:
    """Lives granted before a moment that no fall has ended before it."""
    alive = [
        columns[[life.granted_s < at_s for life in fall.lives]]
        for fall, columns in zip(limits.falls, found.lives, strict=True)
        if fall.at_s >= at_s
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *alive])
