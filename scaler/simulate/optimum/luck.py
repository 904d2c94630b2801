"""The rows that hold in the mean over draws: of launches, and of whom a fall takes (package docstring, "In the mean").

present[o, k]  what is there, paid or refunded, until it is gone and not only until its fall
made[o, e]     grants of launches that are kept until somebody may have registered, given to the edges around them
kept[o, f, i]  granted when life i of fall f is, there just before that fall, and neither it nor a later one refunds them
"""

from collections import defaultdict

import numpy as np

from scaler.simulate.optimum.builder import Builder, OfferingColumns, Term
from scaler.simulate.optimum.problem import Draws, Fall, OfferingLimits, fades_after
from scaler.simulate.optimum.times import Columns, Stretch, Times


def add_draws(builder: Builder, draws: Draws, times: Times, limits: OfferingLimits, found: OfferingColumns) -> None:
    """All of them, for one offering."""
    present = _present(builder, times, limits, found)
    ready = [part for part in (found.ready, found.taken_ready, found.free_ready) if part is not None]
    made = _made(builder, draws, times, limits, present, ready)
    _late(builder, draws, limits, present, ready, made)
    _unready(builder, draws, times, limits, present, ready)
    if limits.falls:
        _keep(builder, times, limits, found)


def _present(builder: Builder, times: Times, limits: OfferingLimits, found: OfferingColumns) -> Columns:
    present, steps = builder.add(np.array(limits.held_most)), np.arange(len(found.held))
    stays = [(life.granted_s, life.ready_to_s, fades_after(fall, life)) for fall in limits.falls for life in fall.lives]
    row, column, share = times.spans(stays, np.concatenate([steps[:0], *found.lives]))
    parts: list[Term] = [(steps, part, -1.0) for part in (found.held, found.free_held) if part is not None]
    builder.at_most(np.zeros(len(steps)), (steps, present, 1.0), (row, column, -share), *parts)
    return present


def _made(
    builder: Builder, draws: Draws, times: Times, limits: OfferingLimits, present: Columns, ready: list[Columns]
) -> Columns:
    """Who is ready was granted longer ago than those of whom nothing can be known."""
    steps = np.arange(len(present))
    # Far above what can be: a decision a second, each filling the offering anew.
    most = 2.0 * max(limits.held_most) * (times.edges_s[-1] + len(steps) + 1)
    made = builder.add(np.full(len(steps) + 1, most))
    now, granted = times.within_minimum(draws.blind_s)
    parts: list[Term] = [(steps, part, 1.0) for part in ready]
    builder.at_most(np.zeros(len(steps)), (steps, present, -1.0), (now, made[granted], 1.0), *parts)
    return made


def _late(
    builder: Builder, draws: Draws, limits: OfferingLimits, present: Columns, ready: list[Columns], made: Columns
) -> None:
    """Who is ready was held before, or was granted since, of whom so many are ready."""
    rows, step, before = _looks_back(draws)
    late = np.array([number for number, one in enumerate(draws.late) for _ in one.edges], dtype=np.int64)
    edge = np.array([edge for one in draws.late for edge in one.edges], dtype=np.int64)
    weight = np.array([weight for one in draws.late for weight in one.weights])
    builder.at_most(
        np.where(before < 0, float(limits.warm_replicas), 0.0),
        *((rows, part[step], 1.0) for part in ready),
        (rows[before >= 0], present[before[before >= 0]], -1.0),
        (late, made[edge], -weight),
    )


def _unready(
    builder: Builder, draws: Draws, times: Times, limits: OfferingLimits, present: Columns, ready: list[Columns]
) -> None:
    """Who is ready was held before, or so much unready time was spent since."""
    if not draws.least_unready_s:
        return
    rows, step, before = _looks_back(draws)
    spans = [np.arange(max(0, j), k + 1) for k, j in zip(step, before, strict=True)]
    row = np.repeat(rows, [len(span) for span in spans])
    inside = np.concatenate(spans)
    each = times.lasts_s[inside] / draws.least_unready_s
    builder.at_most(
        np.where(before < 0, float(limits.warm_replicas), 0.0),
        *((rows, part[step], 1.0) for part in ready),
        (rows[before >= 0], present[before[before >= 0]], -1.0),
        (row, present[inside], -each),
        *((row, part[inside], each) for part in ready),
    )


def _looks_back(draws: Draws) -> tuple[Columns, Columns, Columns]:
    """(row, step, earlier step) of each."""
    step = np.array([one.step for one in draws.late])
    return np.arange(len(step)), step, np.array([one.earlier for one in draws.late])


def _keep(builder: Builder, times: Times, limits: OfferingLimits, found: OfferingColumns) -> None:
    """A fall takes all that are as old alike: its share of them, so that who is to be refunded has others that stay."""
    ends: list[Stretch] = []
    kept: list[Columns] = [np.zeros(0, dtype=np.int64)]
    later: dict[float, list[int]] = defaultdict(list)
    for fall, lives in reversed(list(zip(limits.falls, found.lives, strict=True))):
        stay = builder.add(np.full(len(lives) if fall.stays else 0, fall.most_replicas + fall.stays))
        kept.append(stay)
        ends += [(life.granted_s, fall.at_s, None) for life in fall.lives] if fall.stays else []
        _shares(builder, fall, lives, stay, later)
    steps = np.arange(len(found.held))
    row, column, share = times.spans(ends, np.concatenate(kept))
    builder.at_most(np.zeros(len(steps)), (row, column, share), (steps, found.held, -1.0))


def _shares(builder: Builder, fall: Fall, lives: Columns, stay: Columns, later: dict[float, list[int]]) -> None:
    """Taken of each grant's: at most the fall's share of those there just before. `later`: those that are there after it."""
    ratio = fall.most_replicas / (fall.most_replicas + fall.stays)
    for number, life in enumerate(fall.lives):
        here = later[life.granted_s]
        here += [int(lives[number]), *(int(one) for one in stay[number : number + 1])]
        if fall.stays:
            alive = np.array(here)
            zero = np.zeros(len(alive), dtype=np.int64)
            builder.at_most(np.zeros(1), (zero, alive, -ratio), (zero[:1], lives[number : number + 1], 1.0))
