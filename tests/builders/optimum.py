"""Random small worlds for the bound, and policies that know what no policy may know."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from policies import buffer_band, marginal_value, rate_match, rlboost, spot_hedge, static, uniform_progress
from policies.base import Place, Registered, Sizing, SizingInput
from policies.registry import SIZING
from scaler.model.capacity import Billing, CapacityType, Offering
from scaler.model.job import JobSettings
from scaler.model.plan import Reason, ReasonCode
from scaler.model.spec import PolicySpec
from scaler.simulate.delays import Delay, draw
from scaler.simulate.scenario import (
    AgeHazard,
    GenerationModel,
    LaunchModel,
    LengthModel,
    NoticeModel,
    OfferingModel,
    Scenario,
    TrainerModel,
)
from scaler.traces.trace import Series
from tests.builders.scenarios import a_scenario

Draw = random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Whim:
    """Parameters of a policy that decides by lot, with the whole scenario in its hand. See `whimsical`."""

    seed: int
    most: int
    change_s: float
    falls: tuple[tuple[str, str, tuple[float, ...]], ...]
    """(pool, offering, moments of its falls)."""
    farms: bool
    """Whether it launches where capacity is about to fall, for the refund."""


def whim(view: SizingInput, params: Whim) -> Sizing:
    """A size by lot, launches by lot or where the cloud will take them back soon, victims by lot."""
    turn = int(view.now_s / params.change_s)
    size = round(draw(params.seed, "size", turn) * params.most)
    places = [
        Place(pool=pool, offering_id=name, replicas=1 + int(3 * draw(params.seed, pool, name, turn)))
        for pool, name, falls in sorted(params.falls, key=lambda one: draw(params.seed, *one[:2], turn))
        if not params.farms or any(0 < fall_s - view.now_s < 3000 for fall_s in falls)
    ]
    leaving = sorted((r.replica_id for r in view.counting), key=lambda name: draw(params.seed, name, turn))
    reason = Reason(code=ReasonCode.STEADY, message="by lot")
    return Sizing(replicas=size, reason=reason, places=tuple(places), release_first=tuple(leaving))


@contextmanager
def whimsical() -> Iterator[None]:
    """The engine knows the policy `whim`."""
    known = {**SIZING, "whim": Registered(params=Whim, function=whim)}
    with patch("scaler.decide.engine.SIZING", known):
        yield


def a_random_world(seed: int) -> Scenario:
    """A world of a few hours and a few replicas, different in everything; a policy with parameters by lot."""
    d = Draw(f"world/{seed}")
    hours = d.choice((0.5, 1.0, 2.0, 3.0))
    offerings = tuple(_offering(d, i, hours) for i in range(d.choice((1, 1, 2, 2, 3))))
    group = d.choice((1, 2, 4))
    lanes = d.choice((1, 2, 4))
    n_star = d.choice((0.7, 1.5, 2.0, 3.0, 4.5))
    facts = _workload(d, group, lanes, n_star)
    scenario = a_scenario(
        *offerings,
        hours=hours,
        interval_s=d.choice((10.0, 30.0, 60.0)),
        rails=_rails(d, n_star),
        launch=_launch(d),
        notices=_notices(d),
        hard_failures_per_h=d.choice((0.0, 0.0, 0.0, 0.3)),
        warm_replicas=d.choice((0, 1, 2, 4)),
        warm_depth_samples=d.choice((0, 1, 2, 5)) * facts["job"].batch_samples,
        **facts,
    )
    scenario = _with_rooms(d, scenario)
    return with_policy(scenario, _policy(d, scenario))


def with_policy(scenario: Scenario, policy: PolicySpec) -> Scenario:
    """The same world under another sizing policy."""
    stage = replace(scenario.fleet.stages[0], sizing=policy)
    return replace(scenario, fleet=replace(scenario.fleet, stages=(stage,)))


def _offering(d: Draw, number: int, hours: float) -> OfferingModel:
    spot = number == 0 or d.random() < 0.7
    kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
    refund_s = d.choice((0.0, 900.0, 3600.0)) if spot else 0.0
    offering = Offering(
        instance_type="g",
        zone="abc"[number],
        capacity_type=kind,
        price_usd_per_h=d.choice((1.0, 5.0, 10.0, 20.0)) * (1.0 if spot else 2.0),
        billing=Billing(minimum_s=d.choice((0.0, 60.0, 60.0, 900.0, 3600.0)), refund_if_interrupted_within_s=refund_s),
    )
    hazard = AgeHazard(steps=((0.0, d.choice((0.0, 1.0, 4.0))),)) if spot and d.random() < 0.1 else None
    return OfferingModel(
        pool=str(kind),
        offering=offering,
        capacity=_capacity(d, hours),
        nodes_per_replica=d.choice((1, 1, 2)),
        reclaims=spot,
        hazard=hazard,
    )


def _capacity(d: Draw, hours: float) -> Series:
    most, tick_s = d.choice((1, 2, 4, 6)), d.choice((60.0, 195.0, 600.0, 1000.0 / 3))
    likely = d.choice((0.05, 0.2, 0.5))
    times_s, counts = [0.0], [d.randint(0, most)]
    for tick in range(1, int(hours * 3600 / tick_s)):
        if d.random() < likely:
            times_s.append(tick * tick_s)
            counts.append(d.choice((0, most, d.randint(0, most))))
    return Series(name="capacity", times_s=tuple(times_s), counts=tuple(counts))


def _workload(d: Draw, group: int, lanes: int, n_star: float) -> dict[str, Any]:
    batch_groups = d.choice((1, 2, 4, 8))
    versions = d.choice((1, 1, 2, 3))
    train_s, publish_s = d.choice((10.0, 30.0, 60.0)), d.choice((0.0, 2.0, 20.0))
    demand = versions * batch_groups * group / (versions * train_s + publish_s)
    acceptance = d.choice((1.0, 1.0, 0.7, 0.4))
    unit_s = lanes * group * acceptance * n_star / demand
    lengths = LengthModel(median_tokens=1000, sigma=d.choice((0.0, 0.5, 1.0)), most_tokens=4000)
    staleness = d.choice((2, 4, 8))
    return {
        "job": JobSettings(
            group_size=group,
            batch_groups=batch_groups,
            batches_per_version=versions,
            max_staleness=staleness,
            max_concurrent=d.choice((4096, 4096, max(group, round(n_star) * lanes * group))),
        ),
        "trainer": TrainerModel(usd_per_h=d.choice((1.0, 20.0, 100.0)), train_s=train_s, publish_s=publish_s),
        "generation": GenerationModel(
            concurrent_units=lanes * group,
            tokens_per_s=lengths.mean_tokens / unit_s,
            lengths=lengths,
            swap_s=d.choice((0.0, 0.0, 1.0)),
            lease_ttl_s=d.choice((10.0, 60.0)),
        ),
        "acceptance_ratio": acceptance,
    }


def _launch(d: Draw) -> LaunchModel:
    sigma = d.choice((0.0, 0.0, 0.7))
    return LaunchModel(
        answer=Delay(least_s=d.choice((0.0, 5.0))),
        boot=Delay(least_s=d.choice((0.0, 30.0, 100.0)), median_s=d.choice((0.0, 60.0)), sigma=sigma, most_s=500.0),
        load=Delay(least_s=d.choice((0.0, 20.0, 200.0)), median_s=d.choice((0.0, 30.0)), sigma=sigma, most_s=300.0),
        failure_ratio=d.choice((0.0, 0.0, 0.1)),
    )


def _notices(d: Draw) -> NoticeModel:
    return NoticeModel(
        lead_s=d.choice((0.0, 30.0, 120.0)),
        spread_s=d.choice((0.0, 60.0, 180.0)),
        late_ratio=d.choice((0.0, 0.3)),
        late_most_s=d.choice((30.0, 110.0)),
        none_ratio=d.choice((0.0, 0.3)),
    )


def _rails(d: Draw, n_star: float) -> dict[str, Any]:
    return {
        "max_replicas": d.choice((1000, max(1, round(n_star)), round(n_star) + 2)),
        "max_spend_usd_per_h": d.choice((1e9, 1e9, 15.0, 40.0)),
        "disruption_budget_ratio": d.choice((0.1, 0.3, 1.0)),
        "cooldown_down_s": d.choice((0.0, 60.0, 300.0)),
    }


def _with_rooms(d: Draw, scenario: Scenario) -> Scenario:
    stage = scenario.fleet.stages[0]
    pools = tuple(replace(pool, max_replicas=d.choice((1_000_000, 1_000_000, 2))) for pool in stage.pools)
    return replace(scenario, fleet=replace(scenario.fleet, stages=(replace(stage, pools=pools),)))


def _policy(d: Draw, scenario: Scenario) -> PolicySpec:
    makers: tuple[Callable[[], object], ...] = (
        lambda: static.Params(replicas=d.randint(0, 6)),
        lambda: rate_match.Params(headroom_ratio=d.random() / 2, fill_horizon_s=d.choice((120.0, 1200.0))),
        lambda: buffer_band.Params(
            low_mark=d.random(), high_mark=1.0 + 2 * d.random(), settle_s=d.choice((30.0, 300.0))
        ),
        lambda: spot_hedge.Params(extra_replicas=d.randint(0, 2), fallback=d.random() < 0.5),
        lambda: rlboost.Params(initial_replicas=d.randint(1, 4)),
        lambda: uniform_progress.Params(progress_ratio=0.3 + 0.7 * d.random(), gang=d.random() < 0.5),
        lambda: marginal_value.Params(trainer_usd_per_h=scenario.trainer.usd_per_h),
        lambda: a_whim(d.randrange(10**9), scenario, farms=False, most=d.randint(1, 6)),
        lambda: a_whim(d.randrange(10**9), scenario, farms=True, most=d.randint(1, 6)),
    )
    params = d.choice(makers)()
    return PolicySpec(
        name=type(params).__module__.rpartition(".")[2] if type(params) is not Whim else "whim", params=params
    )


def a_whim(seed: int, scenario: Scenario, *, farms: bool, most: int) -> Whim:
    """A policy that knows when capacity will fall."""
    falls = tuple((*model.key, _falls(model.capacity)) for model in scenario.offerings)
    return Whim(seed=seed, most=most, change_s=(60.0, 300.0, 1500.0)[seed % 3], falls=falls, farms=farms)


def _falls(series: Series) -> tuple[float, ...]:
    changes = list(series.changes())
    return tuple(later[0] for before, later in pairwise(changes) if later[1] < before[1])


def a_restless_world(seed: int) -> Scenario:
    """A ceiling of three under which a policy swaps replicas all the time, while capacity comes and goes."""
    d = Draw(f"restless/{seed}")
    offerings = tuple(
        replace(_offering(Draw(f"restless/{seed}/{i}"), i, 1.0), hazard=None, capacity=_waves(d)) for i in range(2)
    )
    scenario = a_scenario(
        *offerings,
        hours=1.0,
        interval_s=10.0,
        rails={"max_replicas": 3, "disruption_budget_ratio": d.choice((0.0, 0.4)), "cooldown_down_s": 0.0},
        launch=LaunchModel(answer=Delay(), boot=Delay(least_s=20.0), load=Delay(least_s=10.0)),
        notices=NoticeModel(lead_s=120.0, spread_s=60.0, late_ratio=0.0, none_ratio=0.0),
        warm_replicas=3,
    )
    whims = replace(a_whim(3 * d.randrange(10**6), scenario, farms=False, most=5), change_s=40.0)
    return with_policy(scenario, PolicySpec(name="whim", params=whims))


def _waves(d: Draw) -> Series:
    times_s = (0.0, *sorted(d.sample(range(100, 3600, 20), 14)))
    counts = tuple(5 if i % 2 == 0 else d.randint(0, 3) for i in range(len(times_s)))
    return Series(name="capacity", times_s=tuple(map(float, times_s)), counts=counts)
