"""What the bound says: the proven cost per sample, and the plan that nearly reaches it, in the words of a run's summary.

Only `cost_usd_per_1k_samples` is a bound. The other figures are those of one best plan of the relaxed world: they say what
a clairvoyant would do, and no policy is held to them one by one.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from scaler.model.capacity import CapacityType
from scaler.simulate.optimum.builder import OfferingColumns
from scaler.simulate.optimum.problem import Problem
from scaler.simulate.optimum.program import Layout
from scaler.simulate.optimum.ratio import CLOSED, Answer
from scaler.simulate.optimum.steps import Floats, StepFunction, of_series
from scaler.simulate.optimum.times import Times
from scaler.simulate.result import Timeline, share
from scaler.simulate.scenario import Scenario

WAITS_RATIO = 0.02
"""A trainer that waits less than this does not wait, for the regime."""
CRUMB_RATIO = 1e-3
"""On-demand rent below this share of the cost is none: a mixture's crumbs."""
IN_THE_MEAN = "lower in the mean"
"""Of many runs together: their cost over their samples."""
SHOWN_STEP_S = 300.0
"""Of the timeline, as a run's."""


class Regime(StrEnum):
    """How much capacity there is, by what the optimum makes of it."""

    PLENTY = "plenty"
    """It hardly waits and buys no on-demand."""
    SCARCE = "scarce"
    """It waits although it buys on-demand."""
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound of cost per credited sample, with the keys of `Summary`; None where a key has no meaning here."""

    scenario: str
    policy: str = "optimum"
    seed: int | None = None
    """It holds for every seed."""
    hours: float
    cost_usd: float
    samples_trained: float
    samples_credited: float
    cost_usd_per_1k_samples: float
    """The bound. Infinite where nothing can be credited."""
    before_refunds_usd_per_1k_samples: float
    """A bound too, of (cost + refunds) over credited samples: what no foresight of reclaims can lower."""
    trainer_wait_ratio: float
    """Of a plan that costs so little."""
    least_trainer_wait_ratio: float
    """A lower bound: no run that costs at most 1.01 times the bound waits less (`waiting`). None where nothing is credited."""
    interruptions: int | None = None
    interruptions_unnoticed: int | None = None
    kills_at_work: int | None = None
    tokens_generated: int | None = None
    tokens_salvaged: int | None = None
    tokens_wasted: int | None = None
    tokens_lost: int | None = None
    tokens_stale: int | None = None
    replicas_mean: float
    wall_s: float
    policy_updates: int | None = None
    cost_trainer_usd: float
    cost_by_capacity_usd: Mapping[str, float]
    refunds_usd: float
    launches: int | None = None
    refusals: int | None = None
    samples_dropped: int | None = None
    samples_filtered: int | None = None
    end_stock_samples: float
    start_stock_samples: float
    bound: str = "lower"
    """Or `IN_THE_MEAN`."""
    status: str
    """`optimal`, or the solver's own word where the gap is not closed; the bound holds all the same."""
    gap_ratio: float
    """Between the plan's cost per sample and the bound."""
    regime: Regime
    hours_by_capacity: Mapping[str, float]
    """Replica-hours held by capacity type, refunded ones too."""
    refunds_unlimited: bool
    """Instances are taken at times of their own and refunded: the bound then lets every first hour be free, and is loose."""
    steps: int
    turns: int
    solver_s: float
    timeline: Timeline

    def to_json(self) -> dict[str, Any]:
        """All figures by name, without the timeline."""
        figures = asdict(self)
        del figures["timeline"]
        return figures


@dataclass(frozen=True, slots=True)
class Use:
    """One offering in the plan, meaned over each step."""

    paid: Floats
    charged: Floats
    refunded: Floats
    ready: Floats

    @property
    def held(self) -> Floats:
        """Paid or refunded."""
        return self.paid + self.refunded


def use_of(columns: OfferingColumns, x: Floats) -> Use:
    """What the solution holds of an offering."""
    step, column, share = columns.lives_held
    refunded: Floats = np.bincount(step, weights=x[column] * share, minlength=len(columns.held)).astype(float)
    if columns.free_held is not None:
        refunded = refunded + x[columns.free_held]
    parts = (columns.ready, columns.taken_ready, columns.free_ready)
    ready = sum((x[part] for part in parts if part is not None), np.zeros(len(columns.held)))
    return Use(x[columns.held], x[columns.charged], refunded, ready)


def bound_of(
    scenario: Scenario,
    problem: Problem,
    layout: Layout,
    answer: Answer,
    before_refunds: float,
    least_wait: float,
    wall_s: float,
) -> Bound:
    """The answer in words."""
    x, unit, times = answer.solution, layout.unit_samples, Times(problem)
    step_h = times.lasts_s / 3600.0
    uses = [use_of(columns, x) for columns in layout.offerings]
    cost = dict.fromkeys(map(str, CapacityType), 0.0)
    hours = dict.fromkeys(map(str, CapacityType), 0.0)
    refunds_usd = 0.0
    for limits, use in zip(problem.offerings, uses, strict=True):
        cost[limits.capacity_type] += float(use.charged @ step_h) * limits.usd_per_h
        hours[limits.capacity_type] += float(use.held @ step_h)
        refunds_usd += float(use.refunded @ step_h) * limits.usd_per_h
    worked, credited = float(x[layout.worked].sum()), float(x[layout.credited])
    demand = problem.demand_samples_per_s * times.edges_s[-1]
    wait_ratio = share(float(1.0 - worked * unit / demand))
    cost_usd = problem.trainer_usd + sum(cost.values())
    optimal = answer.gap_ratio <= CLOSED
    return Bound(
        scenario=problem.scenario,
        hours=problem.hours,
        cost_usd=cost_usd,
        samples_trained=max(worked, credited) * unit,
        samples_credited=credited * unit,
        cost_usd_per_1k_samples=answer.proven / unit * 1000.0,
        before_refunds_usd_per_1k_samples=before_refunds / unit * 1000.0,
        trainer_wait_ratio=wait_ratio,
        least_trainer_wait_ratio=least_wait,
        replicas_mean=float(sum(use.ready @ times.lasts_s for use in uses)) / problem.edges_s[-1],
        wall_s=wall_s,
        cost_trainer_usd=problem.trainer_usd,
        cost_by_capacity_usd=cost,
        refunds_usd=refunds_usd,
        end_stock_samples=float(x[layout.stock[-1]]) * unit,
        start_stock_samples=float(x[layout.start]) * unit,
        status="optimal" if optimal else answer.status,
        gap_ratio=answer.gap_ratio,
        regime=regime_of(wait_ratio, cost[CapacityType.ON_DEMAND], cost_usd),
        hours_by_capacity=hours,
        refunds_unlimited=any(limits.unforeseen_refund_s for limits in problem.offerings),
        steps=problem.steps,
        turns=answer.turns,
        solver_s=answer.solver_s,
        timeline=timeline_of(scenario, problem, layout, uses, x),
        bound="lower" if problem.draws is None else IN_THE_MEAN,
    )


def regime_of(wait_ratio: float, on_demand_usd: float, cost_usd: float) -> Regime:
    """By waiting, and by what is paid for on-demand."""
    buys = on_demand_usd > CRUMB_RATIO * cost_usd
    waits = wait_ratio >= WAITS_RATIO
    if waits and buys:
        return Regime.SCARCE
    return Regime.MIXED if waits or buys else Regime.PLENTY


def timeline_of(scenario: Scenario, problem: Problem, layout: Layout, uses: list[Use], x: Floats) -> Timeline:
    """The plan in equal steps."""
    end_s, times = problem.edges_s[-1], Times(problem)
    even_s = np.append(np.arange(0.0, end_s - 1e-6, SHOWN_STEP_S), end_s)

    def shown(values: Floats) -> tuple[float, ...]:
        mean = StepFunction(tuple(times.begins_s), tuple(values), end_s).means(even_s)
        return tuple(float(value) for value in mean)

    models = {model.key: model for model in scenario.offerings}
    counts = {one.offering_id: of_series(models[one.key].capacity, end_s).means(even_s) for one in problem.offerings}
    rents = [one.usd_per_h * use.charged for one, use in zip(problem.offerings, uses, strict=True)]
    nothing = np.zeros(problem.steps)
    worked = shown(x[layout.worked] * layout.unit_samples / (problem.demand_samples_per_s * times.lasts_s))
    return Timeline(
        step_s=SHOWN_STEP_S,
        held={one.offering_id: shown(use.held) for one, use in zip(problem.offerings, uses, strict=True)},
        ready=shown(sum((use.ready for use in uses), nothing)),
        capacity={name: tuple(float(value) for value in count) for name, count in counts.items()},
        buffered_samples=shown(x[layout.stock] * layout.unit_samples),
        waiting_ratio=tuple(share(1.0 - part) for part in worked),
        rent_usd_per_h=shown(sum(rents, nothing)),
        desired=shown(sum((use.held for use in uses), nothing)),
    )
