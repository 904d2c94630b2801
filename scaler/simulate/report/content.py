"""What a report shows: plain facts, taken from a scenario and its runs by whoever asks for the report.

Policy: a case is one world (scenario, trace, window, seed) with the runs of one or more policies in it; a comparison is
means over many worlds. Both are optional, so that `simulate` and `compare` make the same kind of page.
Non-goals: computing figures. What is not given is not shown.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass

from scaler.model.capacity import CapacityType
from scaler.model.spec import PolicySpec
from scaler.simulate.result import Run, Timeline
from scaler.simulate.scenario import OfferingModel, Scenario, warm_start


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingFacts:
    """One offering of the rollout fleet. `usd_per_h` is the rent of a whole replica."""

    offering_id: str
    capacity_type: CapacityType
    usd_per_h: float
    nodes_per_replica: int = 1
    reclaims: bool = True
    refund_if_interrupted_within_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFacts:
    """The fixed numbers of a world that its pictures refer to."""

    name: str
    hours: float
    balance_replicas: float
    """n*: ready replicas that meet the unblocked demand."""
    floor: int
    ceiling: int
    batch_samples: int
    stock_bound_samples: int
    """The most that buffer and flight together may hold (admission)."""
    unblocked_samples_per_s: float
    goodput_per_replica_per_s: float
    trainer_usd_per_h: float
    warm_replicas: int = 0
    least_ready_s: float = 0.0
    """Least time from grant to ready."""
    offerings: tuple[OfferingFacts, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Where the capacity comes from: trace, zones, start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoint:
    """A depth that a policy steers by, in samples."""

    name: str
    samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """A run, with the set-points of its policy where they are known."""

    run: Run
    set_points: tuple[SetPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The clairvoyant bound of a case."""

    figures: Mapping[str, object]
    """By the keys of `Summary`, as many as the optimum knows."""
    status: str = ""
    """The solver's word."""
    timeline: Timeline | None = None
    """`buffered_samples` is the plan's stock: what is made and not used up, in flight and in training too."""
    stock_most_samples: float | None = None
    """The most that the bound lets that stock be."""

    def figure(self, name: str) -> float | None:
        """A figure as a number; None where the optimum has none of that name, or an infinite one: nothing to compare with."""
        value = self.figures.get(name)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One world and what happened in it."""

    facts: ScenarioFacts
    runs: tuple[PolicyRun, ...]
    optimum: Optimum | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A mean with its interval; None where there is too little to say."""

    value: float
    low: float | None = None
    high: float | None = None


ALL_REGIMES = "all"
"""Of a comparison's row: over the windows of every regime of its scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One policy over several windows of a scenario and regime, each window beside the bound of the same window."""

    policy: str
    scenario: str
    regime: str
    windows: int
    cost_usd_per_1k_samples: Spread
    bound_usd_per_1k_samples: float | None = None
    ratio: Spread | None = None
    """Cost over the bound, window by window: what all windows share is out of its interval."""
    trainer_wait_ratio: Spread | None = None
    bound_wait_ratio: float | None = None
    gap_share: Spread | None = None
    """How much of the baseline's distance to the bound this policy closes."""

    @property
    def cost(self) -> float:
        """Mean cost in USD per 1,000 samples."""
        return self.cost_usd_per_1k_samples.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that one page shows."""

    title: str
    cases: tuple[Case, ...] = ()
    comparison: tuple[ComparisonRow, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences of the command's own: how intervals were made, what was left out."""


def facts_of(scenario: Scenario) -> ScenarioFacts:
    """The facts of a scenario's rollout stage."""
    rails = scenario.fleet.stages[0].guard_rails
    pools = {pool.name for pool in scenario.fleet.stages[0].pools}
    return ScenarioFacts(
        name=scenario.name,
        hours=scenario.end_s / 3600.0,
        balance_replicas=scenario.balance_replicas,
        floor=rails.min_replicas,
        ceiling=rails.max_replicas,
        batch_samples=scenario.job.batch_samples,
        stock_bound_samples=scenario.stock_bound_samples,
        unblocked_samples_per_s=scenario.unblocked_samples_per_s,
        goodput_per_replica_per_s=scenario.goodput_per_replica_per_s,
        trainer_usd_per_h=scenario.trainer.usd_per_h,
        warm_replicas=sum(warm_start(scenario).values()),
        least_ready_s=scenario.launch.least_ready_s,
        offerings=tuple(_offering(model) for model in scenario.offerings if model.pool in pools),
        metadata=scenario.metadata,
    )


def shown_run(scenario: Scenario, run: Run) -> PolicyRun:
    """A run of a scenario, with the set-points of the policy that it is bound to."""
    return PolicyRun(run=run, set_points=set_points(scenario.fleet.stages[0].sizing, scenario.job.batch_samples))


def _offering(model: OfferingModel) -> OfferingFacts:
    return OfferingFacts(
        offering_id=model.offering.offering_id,
        capacity_type=model.offering.capacity_type,
        usd_per_h=model.usd_per_h,
        nodes_per_replica=model.nodes_per_replica,
        reclaims=model.reclaims,
        refund_if_interrupted_within_s=model.offering.billing.refund_if_interrupted_within_s,
    )


def set_points(policy: PolicySpec, batch_samples: int) -> tuple[SetPoint, ...]:
    """The depths in a policy's parameters, by the units in their names.

    `*_depth_steps` counts batches, `*_depth_samples` samples, and `*_mark` what the parameter `marks_in` says.
    """
    params = policy.params
    if not is_dataclass(params):
        return ()
    unit = {
        "_depth_steps": float(batch_samples),
        "_depth_samples": 1.0,
        "_mark": 1.0 if getattr(params, "marks_in", None) == "samples" else float(batch_samples),
    }
    values = ((spec.name, getattr(params, spec.name)) for spec in fields(params))
    return tuple(
        SetPoint(name=name.removesuffix(suffix).replace("_", " "), samples=value * factor)
        for name, value in values
        for suffix, factor in unit.items()
        if name.endswith(suffix) and isinstance(value, int | float)
    )
