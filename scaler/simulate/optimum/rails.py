"""What the guard rails of the fleet leave: the most that may be held at once, whatever a policy asks for.

The engine (`scaler.decide`) keeps what counts as capacity at or below the ceiling, and the rent of what counts or drains at
or below the spend caps, room of each pool likewise; what was warm at the start may stay. What is noticed counts for none of
them, and what drains by our own choice does not count for the ceiling: both are allowed for in full.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scaler.simulate.delays import Delay
from scaler.simulate.optimum.problem import Limit
from scaler.simulate.optimum.steps import Floats, StepFunction, window_sum
from scaler.simulate.scenario import OfferingModel, Scenario

LOST_AT_ONCE = 2
"""Hard failures that are still in sight at one decision: they raise the disruption budget. More are not to be met with."""


@dataclass(frozen=True, slots=True)
class Held:
    """An offering with what the limits need to know of it."""

    model: OfferingModel
    count: StepFunction
    warm: int


def limits_of(scenario: Scenario, held: Sequence[Held], edges_s: Floats, instants_s: Sequence[float]) -> tuple[Limit, ...]:
    """The limits that can bind. None where the engine may lose count of what is held: see `_keeps_count`."""
    if not _keeps_count(scenario, held):
        return ()
    noticed = [window_sum(one.count, scenario.notices.outlive_s) for one in held]
    found = []
    for name, weigh, most in _rails(scenario, held, noticed):
        weights = [weigh(one.model) for one in held]
        warm = sum(weight * one.warm for weight, one in zip(weights, held, strict=True))
        if sum(weight * max(one.count.values) for weight, one in zip(weights, held, strict=True)) <= most:
            continue
        found.append(_limit(name, weights, max(most, warm), noticed, edges_s, instants_s))
    return tuple(found)


def _limit(
    name: str,
    weights: list[float],
    most: float,
    noticed: list[StepFunction],
    edges_s: Floats,
    instants_s: Sequence[float],
) -> Limit:
    means = sum((w * one.means(edges_s) for w, one in zip(weights, noticed, strict=True)), np.zeros(len(edges_s) - 1))
    before = [sum(w * one.before(at_s) for w, one in zip(weights, noticed, strict=True)) for at_s in instants_s]
    return Limit(
        name=name,
        weights=tuple(weights),
        mean_most=tuple(float(most + mean) for mean in means),
        falls_most=tuple(most + more for more in before),
    )


def _rails(
    scenario: Scenario, held: Sequence[Held], noticed: list[StepFunction]
) -> Iterable[tuple[str, Callable[[OfferingModel], float], float]]:
    stage, fleet = scenario.fleet.stages[0], scenario.fleet
    drains = _draining(scenario, held, noticed)
    if drains is not None:
        most = max(stage.guard_rails.max_replicas, sum(one.warm for one in held))
        yield "ceiling", lambda _: 1.0, float(most + drains)
    cap = stage.guard_rails.max_spend_usd_per_h
    yield "spend", lambda model: model.usd_per_h, cap if fleet.max_spend_usd_per_h is None else min(cap, fleet.max_spend_usd_per_h)
    for pool in stage.pools:
        yield f"pool {pool.name}", _in_pool(pool.name), float(pool.max_replicas)


def _in_pool(name: str) -> Callable[[OfferingModel], float]:
    return lambda model: float(model.pool == name)


def _draining(scenario: Scenario, held: Sequence[Held], noticed: list[StepFunction]) -> int | None:
    """The most that drain by our own choice at once: the budget, a share of all in sight. None: no bound."""
    rails = scenario.fleet.stages[0].guard_rails
    ratio = rails.disruption_budget_ratio
    if ratio >= 1.0:
        return None
    most = max(rails.max_replicas, sum(one.warm for one in held))
    window_s = scenario.notices.outlive_s + scenario.generation.lease_ttl_s
    gone = sum(max(window_sum(one.count, window_s).values) for one in held)
    draining = 0
    while draining < math.ceil(ratio * (most + gone + LOST_AT_ONCE + draining) - 1e-9):
        draining += 1
    return draining


def _keeps_count(scenario: Scenario, held: Sequence[Held]) -> bool:
    """Not where hazards notice any number at any time, nor where a slow launch is given up while its worker loads."""
    slowest_s = _slowest_s(scenario.launch.boot) + _slowest_s(scenario.launch.load)
    patient = all(slowest_s <= pool.launch_timeout_s for pool in scenario.fleet.stages[0].pools)
    return patient and all(one.model.hazard is None for one in held)


def _slowest_s(delay: Delay) -> float:
    return min(delay.most_s, math.inf if delay.sigma and delay.median_s else delay.least_s + delay.median_s)
