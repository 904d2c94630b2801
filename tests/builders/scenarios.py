"""Builders of simulated worlds, so that a test names only what matters to it.

The default world: a trainer that takes 1 sample a second in batches of 8 groups of 4, replicas that make 0.25 a second each
(n* = 4), one spot offering at 10 USD/h that always holds 8, launches of 5 minutes, no hazards, no refunds, 12 hours, a
static fleet of 4 that is warm from the start.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from policies import cheapest_available, static
from scaler.model.capacity import Billing, CapacityType, Offering
from scaler.model.job import JobSettings
from scaler.model.spec import FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from scaler.simulate.delays import Delay
from scaler.simulate.scenario import (
    GenerationModel,
    LaunchModel,
    LengthModel,
    NoticeModel,
    OfferingModel,
    Scenario,
    TrainerModel,
)
from scaler.traces.trace import Series

HOUR_S = 3600.0


def steps(*changes: tuple[float, int], name: str = "capacity") -> Series:
    """A step function from (hour, count) pairs; the first at hour 0."""
    return Series(name=name, times_s=tuple(h * HOUR_S for h, _ in changes), counts=tuple(n for _, n in changes))


def a_capacity(
    zone: str = "a",
    *changes: tuple[float, int],
    price: float = 10.0,
    capacity_type: CapacityType = CapacityType.SPOT,
    refund_s: float = 0.0,
    **facts: Any,
) -> OfferingModel:
    """An offering in the pool of its capacity type; on-demand capacity is a quota and is never taken."""
    offering = Offering(
        instance_type="g",
        zone=zone,
        capacity_type=capacity_type,
        price_usd_per_h=price,
        billing=Billing(refund_if_interrupted_within_s=refund_s),
    )
    reclaims = capacity_type is CapacityType.SPOT
    return OfferingModel(
        pool=str(capacity_type), offering=offering, capacity=steps(*(changes or ((0, 8),))), reclaims=reclaims, **facts
    )


def a_stage_of(
    offerings: Iterable[OfferingModel], sizing: PolicySpec, *, name: str = "rollout", **rails: Any
) -> StageSpec:
    offerings = tuple(offerings)
    pools = tuple(
        PoolSpec(name=pool, provider="simulated", offerings=tuple(m.offering for m in offerings if m.pool == pool))
        for pool in sorted({m.pool for m in offerings})
    )
    wide: dict[str, Any] = {
        "min_replicas": 0,
        "max_replicas": 1000,
        "max_spend_usd_per_h": 1e9,
        "cooldown_down_s": 0.0,
        "disruption_budget_ratio": 1.0,
        "lower_after_fresh_s": 0.0,
        "signal_max_age_s": 120.0,
    }
    return StageSpec(
        name=name,
        sizing=sizing,
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
        guard_rails=GuardRails(**(wide | rails)),
        pools=pools,
    )


def static_fleet(replicas: int) -> PolicySpec:
    return PolicySpec(name="static", params=static.Params(replicas=replicas))


def a_scenario(
    *offerings: OfferingModel,
    sizing: PolicySpec | int = 4,
    hours: float = 12.0,
    interval_s: float = 60.0,
    rails: dict[str, Any] | None = None,
    **facts: Any,
) -> Scenario:
    offerings = offerings or (a_capacity(),)
    policy = static_fleet(sizing) if isinstance(sizing, int) else sizing
    fleet = FleetSpec(name="fleet", stages=(a_stage_of(offerings, policy, **(rails or {})),), interval_s=interval_s)
    usual: dict[str, Any] = {
        "job": JobSettings(group_size=4, batch_groups=8, max_staleness=8),
        "trainer": TrainerModel(usd_per_h=100.0, train_s=30.0, publish_s=2.0),
        "generation": GenerationModel(
            concurrent_units=16,
            tokens_per_s=50.0,
            lengths=LengthModel(median_tokens=3200, sigma=0.0, most_tokens=32768),
            swap_s=0.0,
        ),
        "launch": LaunchModel(answer=Delay(least_s=10), boot=Delay(least_s=180), load=Delay(least_s=110)),
        "notices": NoticeModel(late_ratio=0.0, none_ratio=0.0),
        "warm_replicas": 4,
        "warm_depth_samples": 64,
    }
    return Scenario(name="world", fleet=fleet, offerings=offerings, end_s=hours * HOUR_S, **(usual | facts))


def with_lengths(scenario: Scenario, median_tokens: float, sigma: float) -> Scenario:
    """The same goodput at other lengths: a unit's mean time stays what it was."""
    lengths = LengthModel(median_tokens=median_tokens, sigma=sigma, most_tokens=scenario.generation.lengths.most_tokens)
    rate = lengths.mean_tokens / scenario.mean_unit_s
    return replace(scenario, generation=replace(scenario.generation, lengths=lengths, tokens_per_s=rate))


def ceiling_fits(scenario: Scenario) -> bool:
    """Whether the ceiling leaves room: n* is at most 0.9 of it."""
    return math.ceil(scenario.balance_replicas) <= 0.9 * scenario.fleet.stages[0].guard_rails.max_replicas
