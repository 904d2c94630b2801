"""From a scenario to the bound's problem: every number here is argued for in the package's docstring."""

import math
from collections.abc import Iterable

import numpy as np

from scaler.simulate.optimum.problem import Fall, Life, OfferingLimits, Problem, Stock
from scaler.simulate.optimum.steps import Floats, StepFunction, least_of, of_series, window_max, window_min
from scaler.simulate.scenario import AgeHazard, OfferingModel, Scenario, warm_start

WANTED_STEP_S = 300.0
MOST_STEPS = 2016
"""A week of five minutes: beyond that steps grow with the window, or the solver would not end."""
_ROUNDING = 1e-9


def problem_of(scenario: Scenario) -> Problem:
    """The problem whose optimum no policy in the scenario's world can beat, whatever the seed."""
    steps = steps_of(scenario)
    step_s = scenario.end_s / steps
    lag_steps = int(scenario.launch.least_ready_s / step_s + _ROUNDING)
    edges_s = np.linspace(0.0, scenario.end_s, steps + 1)
    warm = warm_start(scenario)
    rollout = {pool.name for pool in scenario.fleet.stages[0].pools}
    lag_s = lag_steps * step_s
    offerings = tuple(
        _limits(scenario, model, warm.get(model.key, 0), edges_s, lag_s)
        for model in scenario.offerings
        if model.pool in rollout
    )
    return Problem(
        scenario=scenario.name,
        step_s=step_s,
        steps=steps,
        lag_steps=lag_steps,
        launch_s=scenario.launch.least_ready_s,
        trainer_usd_per_h=scenario.trainer.usd_per_h,
        goodput_samples_per_s=scenario.goodput_per_replica_per_s,
        demand_samples_per_s=scenario.unblocked_samples_per_s,
        credit_most_samples=float(finished_batches(scenario) * scenario.job.batch_samples),
        credit_ahead_samples=ahead_samples(scenario),
        useful_replicas=useful_replicas(scenario),
        stock=_stock(scenario, sum(warm.values())),
        offerings=offerings,
    )


def steps_of(scenario: Scenario) -> int:
    """How many steps: of five minutes at most, a whole number of them in the least launch time as nearly as can be."""
    launch_s = scenario.launch.least_ready_s
    wanted_s = launch_s / math.ceil(launch_s / WANTED_STEP_S) if launch_s > 0 else WANTED_STEP_S
    return min(MOST_STEPS, max(1, math.ceil(scenario.end_s / wanted_s - _ROUNDING)))


def finished_batches(scenario: Scenario) -> int:
    """Batches that a trainer finishes by the end if it never waits: publishing ends with the last of each version."""
    trainer, batches = scenario.trainer, scenario.job.batches_per_version
    cycle_s = batches * trainer.train_s + trainer.publish_s
    versions, rest_s = divmod(scenario.end_s * (1 + _ROUNDING), cycle_s)
    return int(versions) * batches + min(batches - 1, int(rest_s / trainer.train_s))


def ahead_samples(scenario: Scenario) -> float:
    """Batches that publish nothing pass faster than the mean: what a version's first ones may gain on it."""
    trainer, batches = scenario.trainer, scenario.job.batches_per_version
    cycle_s = batches * trainer.train_s + trainer.publish_s
    return (batches - 1) * scenario.job.batch_samples * trainer.publish_s / cycle_s


def useful_replicas(scenario: Scenario) -> float:
    """As many as the ledger lets run at once."""
    running = min(scenario.job.max_concurrent, scenario.stock_bound_samples)
    return running / scenario.generation.concurrent_units


def _stock(scenario: Scenario, warm_replicas: int) -> Stock:
    most = float(scenario.stock_bound_samples)
    buffered = min(scenario.warm_depth_samples // scenario.job.group_size * scenario.job.group_size, most)
    lengths = scenario.generation.lengths
    # A lane is in the middle of a group, and the tails of those before it may still run: so far back as the longest does.
    groups_a_lane = 1 + math.ceil(lengths.table()[-1] / lengths.mean_tokens)
    begun = warm_replicas * scenario.lanes_per_replica * groups_a_lane * scenario.job.group_size
    slack = scenario.draw_slack_samples
    start_most = buffered + scenario.acceptance_ratio * min(begun, most - buffered)
    return Stock(start_least=buffered, start_most=start_most, most=most + ahead_samples(scenario) + slack, slack=slack)


def _limits(scenario: Scenario, model: OfferingModel, warm: int, edges_s: Floats, lag_s: float) -> OfferingLimits:
    count = of_series(model.capacity, scenario.end_s)
    billing = model.offering.billing
    step_s = float(edges_s[1])
    minimum_steps = int(billing.minimum_s / step_s + _ROUNDING)
    refund_s = billing.refund_if_interrupted_within_s
    unforeseen = refund_s > 0 and model.hazard is not None and strikes(model.hazard)
    falls = _falls(scenario, count, refund_s, step_s, lag_s) if model.reclaims and not unforeseen else ()
    held = held_most(scenario, model, count)
    return OfferingLimits(
        pool=model.pool,
        offering_id=model.offering.offering_id,
        capacity_type=str(model.offering.capacity_type),
        usd_per_h=model.usd_per_h,
        warm_replicas=warm,
        held_most=_plain(held.means(edges_s)),
        ready_most=_plain(ready_most(scenario, model, count, warm).means(edges_s)),
        falls=tuple(falls),
        minimum_steps=minimum_steps if minimum_steps * step_s > lag_s else 0,
        unforeseen_refund_s=refund_s if unforeseen else 0.0,
    )


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def strikes(hazard: AgeHazard) -> bool:
    """Whether it ever takes an instance."""
    return any(per_h > 0 for _, per_h in hazard.steps) or hazard.bursts_per_h * hazard.burst_ratio > 0


def held_most(scenario: Scenario, model: OfferingModel, count: StepFunction) -> StepFunction:
    """The most replicas held at a time: the greatest count of the last moments; of all the past where nothing is taken."""
    return window_max(count, scenario.notices.outlive_s if model.reclaims else math.inf)


def ready_most(scenario: Scenario, model: OfferingModel, count: StepFunction, warm: int) -> StepFunction:
    """The most replicas ready at a time: held for as long as a launch takes, and not taken by a fall meanwhile."""
    launch_s, outlive_s = scenario.launch.least_ready_s, scenario.notices.outlive_s
    most = window_min(held_most(scenario, model, count), launch_s, 0.0, math.inf)
    if model.reclaims and launch_s >= outlive_s:
        most = least_of(most, window_min(count, launch_s, outlive_s, math.inf))
    if launch_s > 0:
        ends = launch_s < scenario.end_s
        starting = StepFunction(*(((0.0, launch_s), (warm, math.inf)) if ends else ((0.0,), (warm,))), scenario.end_s)
        most = least_of(most, starting)
    return most


def _falls(scenario: Scenario, count: StepFunction, refund_s: float, step_s: float, lag_s: float) -> Iterable[Fall]:
    if refund_s <= 0:
        return
    for at_s, replicas in count.falls():
        lives = tuple(_lives(scenario, at_s, refund_s, step_s, lag_s))
        if lives:
            yield Fall(at_s=at_s, most_replicas=replicas, lives=lives)


def _lives(scenario: Scenario, fall_s: float, refund_s: float, step_s: float, lag_s: float) -> Iterable[Life]:
    """Lives between whose grants everything that counts is linear: so their mixtures are all lives that there are."""
    gone_s = min(fall_s + scenario.notices.outlive_s, scenario.end_s)
    first_s = max(0.0, fall_s - refund_s)
    # From here on the refund's end is later than that of the reclaim; before, it cuts lives where it crosses a step.
    whole_s = gone_s - refund_s
    grid = (i * step_s for i in range(math.ceil(first_s / step_s), int(fall_s / step_s) + 1))
    cut = (i * step_s - refund_s for i in range(math.ceil(fall_s / step_s), int(gone_s / step_s) + 1))
    moments = {first_s, fall_s, whole_s, *grid, *cut}
    for granted_s in sorted(moment for moment in moments if first_s <= moment <= fall_s):
        ready_to_s = min(gone_s, granted_s + refund_s)
        if ready_to_s > granted_s + lag_s:
            yield Life(granted_s=granted_s, ready_from_s=granted_s + lag_s, ready_to_s=ready_to_s)
