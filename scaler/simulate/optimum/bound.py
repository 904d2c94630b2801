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
from scaler.simulate.optimum.problem import OfferingLimits, Problem
from scaler.simulate.optimum.program import Layout, OfferingColumns, span
from scaler.simulate.optimum.ratio import ENOUGH, Answer
from scaler.simulate.optimum.steps import Floats, of_series
from scaler.simulate.result import Timeline
from scaler.simulate.scenario import Scenario

WAITS_RATIO = 0.02
"""A trainer that waits less than this does not wait, for the regime."""
CRUMB_RATIO = 1e-3
"""On-demand hours below this share of all hours are none: a mixture's crumbs."""


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
    trainer_wait_ratio: float
    interruptions: int | None = None
    interruptions_unnoticed: int | None = None
    tokens_generated: int | None = None
    tokens_salvaged: int | None = None
    tokens_wasted: int | None = None
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
    status: str
    """`optimal`, or the solver's own word where the gap is not closed; the bound holds all the same."""
    gap_ratio: float
    """Between the plan's cost per sample and the bound."""
    regime: Regime
    hours_by_capacity: Mapping[str, float]
    """Replica-hours held by capacity type, refunded ones too."""
    refunds_unlimited: bool
    """Instances are taken at times of their own and refunded: the bound then lets every first hour be free, and is loose."""
    step_s: float
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


def use_of(problem: Problem, limits: OfferingLimits, columns: OfferingColumns, x: Floats) -> Use:
    """What the solution holds of an offering."""
    refunded, ready = np.zeros(problem.steps), x[columns.ready].copy()
    for fall, lives in zip(limits.falls, columns.lives, strict=True):
        for life, column in zip(fall.lives, lives, strict=True):
            if x[column] > 0:
                steps, share = span(problem, life, fall.at_s)
                refunded[steps] += x[column] * share
                steps, share = span(problem, life, None)
                ready[steps] += x[column] * share
    if columns.free_held is not None and columns.free_ready is not None:
        refunded += x[columns.free_held]
        ready += x[columns.free_ready]
    return Use(x[columns.held], x[columns.charged], refunded, ready)


def bound_of(scenario: Scenario, problem: Problem, layout: Layout, answer: Answer, wall_s: float) -> Bound:
    """The answer in words."""
    x, unit, step_h = answer.solution, layout.unit_samples, problem.step_s / 3600.0
    uses = [use_of(problem, *one, x) for one in zip(problem.offerings, layout.offerings, strict=True)]
    cost = dict.fromkeys(map(str, CapacityType), 0.0)
    hours = dict.fromkeys(map(str, CapacityType), 0.0)
    refunds_usd = 0.0
    for limits, use in zip(problem.offerings, uses, strict=True):
        cost[limits.capacity_type] += float(use.charged.sum()) * step_h * limits.usd_per_h
        hours[limits.capacity_type] += float(use.held.sum()) * step_h
        refunds_usd += float(use.refunded.sum()) * step_h * limits.usd_per_h
    worked, credited = float(x[layout.worked].sum()), float(x[layout.credited])
    wait_ratio = max(0.0, 1.0 - worked / problem.steps)
    optimal = answer.gap_ratio <= ENOUGH
    return Bound(
        scenario=problem.scenario,
        hours=problem.hours,
        cost_usd=problem.trainer_usd + sum(cost.values()),
        samples_trained=max(worked, credited) * unit,
        samples_credited=credited * unit,
        cost_usd_per_1k_samples=answer.proven / unit * 1000.0,
        trainer_wait_ratio=wait_ratio,
        replicas_mean=float(sum(use.ready.mean() for use in uses)),
        wall_s=wall_s,
        cost_trainer_usd=problem.trainer_usd,
        cost_by_capacity_usd=cost,
        refunds_usd=refunds_usd,
        end_stock_samples=float(x[layout.stock[-1]]) * unit,
        start_stock_samples=float(x[layout.start]) * unit,
        status="optimal" if optimal else answer.status,
        gap_ratio=answer.gap_ratio,
        regime=regime_of(wait_ratio, hours),
        hours_by_capacity=hours,
        refunds_unlimited=any(limits.unforeseen_refund_s for limits in problem.offerings),
        step_s=problem.step_s,
        turns=answer.turns,
        solver_s=answer.solver_s,
        timeline=timeline_of(scenario, problem, layout, uses, x),
    )


def regime_of(wait_ratio: float, hours: Mapping[str, float]) -> Regime:
    """By waiting, and by on-demand hours among all."""
    buys = hours[CapacityType.ON_DEMAND] > CRUMB_RATIO * sum(hours.values())
    waits = wait_ratio >= WAITS_RATIO
    if not waits and not buys:
        return Regime.PLENTY
    return Regime.SCARCE if waits and buys else Regime.MIXED


def timeline_of(scenario: Scenario, problem: Problem, layout: Layout, uses: list[Use], x: Floats) -> Timeline:
    """The plan step by step."""
    edges_s = np.linspace(0.0, scenario.end_s, problem.steps + 1)
    models = {model.key: model for model in scenario.offerings}
    capacity = {
        one.offering_id: of_series(models[one.key].capacity, scenario.end_s).means(edges_s) for one in problem.offerings
    }
    rents = [one.usd_per_h * use.charged for one, use in zip(problem.offerings, uses, strict=True)]
    nothing = np.zeros(problem.steps)
    return Timeline(
        step_s=problem.step_s,
        held={one.offering_id: _plain(use.held) for one, use in zip(problem.offerings, uses, strict=True)},
        ready=_plain(sum((use.ready for use in uses), nothing)),
        capacity={name: _plain(means) for name, means in capacity.items()},
        buffered_samples=_plain(x[layout.stock] * layout.unit_samples),
        waiting_ratio=_plain(np.maximum(0.0, 1.0 - x[layout.worked])),
        rent_usd_per_h=_plain(sum(rents, nothing)),
        wasted_tokens=_plain(nothing),
        interruptions=(),
        desired=_plain(sum((use.held for use in uses), nothing)),
    )


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
