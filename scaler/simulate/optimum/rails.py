"""What the guard rails of the fleet leave: the most that may be held at once, whatever a policy asks for.

The engine (`scaler.decide`) keeps what counts as capacity at or below the ceiling, and the rent of what counts or drains at
or below the spend caps, room of each pool likewise; what was warm at the start may stay. What is noticed counts for none of
them, and what drains by our own choice does not count for the ceiling: both are allowed for in full.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaler.simulate.delays import Delay
from scaler.simulate.optimum.problem import Limit
from scaler.simulate.optimum.steps import Floats, StepFunction, fallen, plus
from scaler.simulate.scenario import OfferingModel, Scenario

LOST_AT_ONCE = 2
"""Hard failures in sight of one decision: they raise the disruption budget. More within two seconds are not to be met with."""
TURN_S = 10.0
"""From the end of a drain to the decision that ends its instance (two seconds), and room for rounding."""


@dataclass(frozen=True, slots=True)
class Held:
    """An offering with what the limits need to know of it."""

    model: OfferingModel
    count: StepFunction
    warm: int


@dataclass(frozen=True, slots=True)
class Rail:
    """sum of weight * held <= most + what `over` allows, a step function of time."""

    name: str
    weights: tuple[float, ...]
    most: float
    over: StepFunction


def limits_of(
    scenario: Scenario, held: Sequence[Held], edges_s: Floats, instants_s: Sequence[float]
) -> tuple[Limit, ...]:
    """The rails that can bind, over steps and just before instants."""
    return tuple(
        Limit(
            name=rail.name,
            weights=rail.weights,
            mean_most=tuple(float(rail.most + over) for over in rail.over.means(edges_s)),
            falls_most=tuple(rail.most + rail.over.before(at_s) for at_s in instants_s),
        )
        for rail in rails_of(scenario, held)
        if _binds(rail, held)
    )


def rails_of(scenario: Scenario, held: Sequence[Held]) -> tuple[Rail, ...]:
    """All rails that hold at every moment. None where the engine may lose count of what is held: see `_keeps_count`."""
    return tuple(_rails(scenario, held)) if _keeps_count(scenario, held) else ()


def _binds(rail: Rail, held: Sequence[Held]) -> bool:
    return sum(weight * max(one.count.values) for weight, one in zip(rail.weights, held, strict=True)) > rail.most


def _rails(scenario: Scenario, held: Sequence[Held]) -> Iterator[Rail]:
    stage, fleet = scenario.fleet.stages[0], scenario.fleet
    everything = tuple(1.0 for _ in held)
    drains = _draining(scenario, held)
    if drains is not None:
        most = max(stage.guard_rails.max_replicas, sum(one.warm for one in held))
        yield Rail("ceiling", everything, float(most), plus(_noticed(scenario, held, everything), drains))
    cap = min(stage.guard_rails.max_spend_usd_per_h, fleet.max_spend_usd_per_h or math.inf)
    nodes = {pool.name: pool.nodes_per_replica for pool in stage.pools}
    # As the engine reckons rent: the price of the offering, the nodes of the pool.
    rents = tuple(one.model.offering.price_usd_per_h * nodes[one.model.pool] for one in held)
    yield _plain_rail(scenario, held, "spend", rents, cap)
    for pool in stage.pools:
        inside = tuple(float(one.model.pool == pool.name) for one in held)
        yield _plain_rail(scenario, held, f"pool {pool.name}", inside, float(pool.max_replicas))


def _plain_rail(scenario: Scenario, held: Sequence[Held], name: str, weights: tuple[float, ...], most: float) -> Rail:
    warm = sum(weight * one.warm for weight, one in zip(weights, held, strict=True))
    return Rail(name, weights, max(most, warm), _noticed(scenario, held, weights))


def _noticed(scenario: Scenario, held: Sequence[Held], weights: Sequence[float]) -> StepFunction:
    """Most of what may be noticed and not gone, weighed."""
    return fallen([one.count for one in held], weights, scenario.notices.outlive_s)


def _draining(scenario: Scenario, held: Sequence[Held]) -> StepFunction | None:
    """The most that drain by our own choice: the budget of a decision of late, a share of all in sight. None: no bound."""
    stage = scenario.fleet.stages[0]
    ratio = stage.guard_rails.disruption_budget_ratio
    if ratio >= 1.0:
        return None
    most = max(stage.guard_rails.max_replicas, sum(one.warm for one in held)) + LOST_AT_ONCE
    late_s = scenario.notices.outlive_s + scenario.generation.lease_ttl_s + stage.drain.voluntary_deadline_s + TURN_S
    leaving = fallen([one.count for one in held], [1.0] * len(held), late_s)
    budgets = tuple(_budget(ratio, most + more) for more in leaving.values)
    return StepFunction(leaving.times_s, budgets, leaving.end_s)


def _budget(ratio: float, others: float) -> float:
    """The greatest d with d <= ceil(ratio * (others + d))."""
    draining = 0
    while draining < math.ceil(ratio * (others + draining + 1) - 1e-9):
        draining += 1
    return float(draining)


def _keeps_count(scenario: Scenario, held: Sequence[Held]) -> bool:
    """Not where hazards notice any number at any time, nor where a slow launch is given up while its worker loads."""
    slowest_s = _slowest_s(scenario.launch.boot) + _slowest_s(scenario.launch.load)
    patient = all(slowest_s <= pool.launch_timeout_s for pool in scenario.fleet.stages[0].pools)
    return patient and all(one.model.hazard is None for one in held)


def _slowest_s(delay: Delay) -> float:
    return min(delay.most_s, math.inf if delay.sigma and delay.median_s else delay.least_s + delay.median_s)
