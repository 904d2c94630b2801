"""From a scenario to the bound's problem: every number here is argued for in the package's docstring."""

import math
from collections.abc import Iterable

import numpy as np

from scaler.simulate.optimum.grid import edges_of
from scaler.simulate.optimum.launches import Launches
from scaler.simulate.optimum.outlive import Stays, held_in_the_mean, ready_in_the_mean, stays_of
from scaler.simulate.optimum.problem import Draws, Fall, Late, Life, OfferingLimits, Problem, Stock
from scaler.simulate.optimum.rails import Held, limits_of
from scaler.simulate.optimum.steps import Floats, StepFunction, least_of, of_series, window_max, window_min
from scaler.simulate.scenario import AgeHazard, OfferingModel, Scenario, warm_start

_ROUNDING = 1e-9
LATE_SHARES = (0.001, 0.5, 0.98)
"""Of launches that are ready: as old as this makes them, so long before a step `Late` looks back ..."""
FAR_BACK_S = 1800.0
"""... and so long, for the unready time."""


def problem_of(scenario: Scenario, *, in_the_mean: bool = False) -> Problem:
    """The problem whose optimum no policy in the scenario's world can beat: whatever the seed, or in the mean over draws."""
    launch_s = scenario.launch.least_ready_s
    launches = Launches(scenario.launch) if in_the_mean else None
    stays = stays_of(scenario.notices) if in_the_mean else None
    held = held_of(scenario)
    falls_s = {at_s for one in held if refunds_falls(one.model) for at_s, _ in one.count.falls()}
    edges_s = edges_of(scenario.end_s, min(launch_s, launches.blind_s) if launches else launch_s, falls_s)
    instants_s = sorted(falls_s.intersection(edges_s.tolist()))
    return Problem(
        scenario=scenario.name,
        edges_s=_plain(edges_s),
        launch_s=launch_s,
        trainer_usd_per_h=scenario.trainer.usd_per_h,
        goodput_samples_per_s=scenario.goodput_per_replica_per_s,
        demand_samples_per_s=scenario.unblocked_samples_per_s,
        credit_most_samples=float(finished_batches(scenario) * scenario.job.batch_samples),
        credit_ahead_samples=ahead_samples(scenario),
        useful_replicas=useful_replicas(scenario),
        stock=stock_of(scenario),
        offerings=tuple(_offering(scenario, one, edges_s, stays) for one in held),
        instants_s=tuple(instants_s),
        limits=limits_of(scenario, held, edges_s, instants_s),
        draws=_draws(launches, stays, edges_s) if launches and stays else None,
    )


def held_of(scenario: Scenario) -> list[Held]:
    """The offerings of the rollout stage."""
    warm = warm_start(scenario)
    rollout = {pool.name for pool in scenario.fleet.stages[0].pools}
    return [
        Held(model, of_series(model.capacity, scenario.end_s), warm.get(model.key, 0))
        for model in scenario.offerings
        if model.pool in rollout
    ]


def refunds_falls(model: OfferingModel) -> bool:
    """Whether falls of its count are what refunds."""
    return falls_alone_take(model) and model.offering.billing.refund_if_interrupted_within_s > 0


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


def stock_of(scenario: Scenario) -> Stock:
    """What may be in stock, at the start and at any time."""
    most = float(scenario.stock_bound_samples)
    admitted = min(scenario.warm_depth_samples, scenario.stock_bound_samples, scenario.job.max_concurrent)
    buffered = float(admitted // scenario.job.group_size * scenario.job.group_size)
    lengths = scenario.generation.lengths
    # A lane is in the middle of a group, and the tails of those before it may still run: so far back as the longest does.
    groups_a_lane = 1 + math.ceil(lengths.table()[-1] / lengths.mean_tokens)
    begun = sum(warm_start(scenario).values()) * scenario.lanes_per_replica * groups_a_lane * scenario.job.group_size
    slack = scenario.draw_slack_samples
    start_most = buffered + scenario.acceptance_ratio * min(begun, most - buffered)
    return Stock(start_least=buffered, start_most=start_most, most=most + ahead_samples(scenario) + slack, slack=slack)


def _draws(launches: Launches, stays: Stays, edges_s: Floats) -> Draws:
    """`earlier` is a launch before the step: one so long that next to none are ready, that half are, and so on."""
    ages_s = [*(launches.age_s(share) for share in LATE_SHARES), FAR_BACK_S]
    late: list[Late] = []
    for step, begin_s in enumerate(edges_s[:-1]):
        for earlier in sorted({int(np.searchsorted(edges_s, begin_s - age_s, "right")) - 1 for age_s in ages_s}):
            weights = launches.most_ready(edges_s, earlier, step)
            late.append(Late(step=step, earlier=earlier, edges=tuple(weights), weights=tuple(weights.values())))
    return Draws(
        blind_s=launches.blind_s,
        least_unready_s=launches.least_unready_s,
        stays_from_s=stays.ages_s,
        stays=stays.shares,
        late=tuple(late),
    )


def _offering(scenario: Scenario, one: Held, edges_s: Floats, stays: Stays | None) -> OfferingLimits:
    model, billing = one.model, one.model.offering.billing
    unforeseen = billing.refund_if_interrupted_within_s > 0 and strikes(model.hazard)
    binds = billing.minimum_s > scenario.launch.least_ready_s
    return OfferingLimits(
        pool=model.pool,
        offering_id=model.offering.offering_id,
        capacity_type=str(model.offering.capacity_type),
        usd_per_h=model.usd_per_h,
        warm_replicas=one.warm,
        held_most=_plain(held_most(scenario, one, stays).means(edges_s)),
        ready_most=_plain(ready_most(scenario, one, stays).means(edges_s)),
        falls=tuple(_falls(scenario, one, edges_s, in_the_mean=stays is not None)) if refunds_falls(model) else (),
        minimum_s=billing.minimum_s if binds else 0.0,
        unforeseen_refund_s=billing.refund_if_interrupted_within_s if unforeseen else 0.0,
    )


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def strikes(hazard: AgeHazard | None) -> bool:
    """Whether it ever takes an instance."""
    if hazard is None:
        return False
    return any(per_h > 0 for _, per_h in hazard.steps) or hazard.bursts_per_h * hazard.burst_ratio > 0


def falls_alone_take(model: OfferingModel) -> bool:
    """Whether whatever the cloud takes was marked by a fall of the count."""
    return model.reclaims and not strikes(model.hazard)


def held_most(scenario: Scenario, one: Held, stays: Stays | None = None) -> StepFunction:
    """The most replicas held at a time: the greatest count of the last moments; of all the past where nothing is taken.

    `stays`: the most in the mean over draws.
    """
    most = window_max(one.count, scenario.notices.outlive_s if one.model.reclaims else math.inf)
    return least_of(most, held_in_the_mean(one.count, stays)) if stays and falls_alone_take(one.model) else most


def ready_most(scenario: Scenario, one: Held, stays: Stays | None = None) -> StepFunction:
    """The most replicas ready at a time: held for as long as a launch takes, and not taken by a fall meanwhile.

    `stays`: the most in the mean over draws.
    """
    launch_s, outlive_s = scenario.launch.least_ready_s, scenario.notices.outlive_s
    most = window_min(held_most(scenario, one), launch_s, 0.0, math.inf)
    if one.model.reclaims and launch_s >= outlive_s:
        most = least_of(most, window_min(one.count, launch_s, outlive_s, math.inf))
    if launch_s > 0:
        ends = launch_s < scenario.end_s
        times_s, values = ((0.0, launch_s), (float(one.warm), math.inf)) if ends else ((0.0,), (float(one.warm),))
        most = least_of(most, StepFunction(times_s, values, scenario.end_s))
    if stays and falls_alone_take(one.model):
        most = least_of(most, ready_in_the_mean(one.count, stays, launch_s))
    return most


def _falls(scenario: Scenario, one: Held, edges_s: Floats, *, in_the_mean: bool) -> Iterable[Fall]:
    refund_s = one.model.offering.billing.refund_if_interrupted_within_s
    moments = {at_s: set(_moments(scenario, at_s, refund_s, edges_s)) for at_s, _ in one.count.falls()}
    # In the mean lives are told apart by their grant whichever fall ends them: what is a moment of one is one of all.
    shared = set().union(*moments.values()) if in_the_mean else set()
    for at_s, replicas in one.count.falls():
        lives = tuple(_lives(scenario, at_s, refund_s, moments[at_s] | shared, in_the_mean=in_the_mean))
        if lives:
            yield Fall(at_s=at_s, most_replicas=replicas, stays=one.count.at(at_s), lives=lives)


def _moments(scenario: Scenario, fall_s: float, refund_s: float, edges_s: Floats) -> Iterable[float]:
    """Between two of these moments of grant everything that counts is linear: their mixtures are all lives there are."""
    gone_s = min(fall_s + scenario.notices.outlive_s, scenario.end_s)
    cut = edges_s[(edges_s > fall_s) & (edges_s < gone_s)] - refund_s
    launched = edges_s - scenario.launch.least_ready_s
    moments = {max(0.0, fall_s - refund_s), fall_s, gone_s - refund_s}
    return moments.union(edges_s.tolist(), launched.tolist(), cut.tolist())


def _lives(
    scenario: Scenario, fall_s: float, refund_s: float, moments: Iterable[float], *, in_the_mean: bool
) -> Iterable[Life]:
    """Not in the mean: only those that are ready at some time."""
    launch_s = scenario.launch.least_ready_s
    gone_s = min(fall_s + scenario.notices.outlive_s, scenario.end_s)
    first_s = max(0.0, fall_s - refund_s)
    for granted_s in sorted(moment for moment in moments if first_s <= moment <= fall_s):
        ready_to_s = min(gone_s, granted_s + refund_s)
        if ready_to_s > granted_s + launch_s or in_the_mean:
            yield Life(
                granted_s=granted_s,
                ready_from_s=granted_s + launch_s,
                ready_to_s=ready_to_s,
                # Of those whose refund hangs on the moment at which they are gone, more may be there.
                fades=in_the_mean and granted_s + refund_s > gone_s + _ROUNDING,
            )
