"""How long what a fall takes outlives it, against the world's own draws."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest

from scaler.model.capacity import ReplicaPhase
from scaler.simulate.cloud import Callbacks, Cloud
from scaler.simulate.delays import Delay
from scaler.simulate.kernel import Kernel
from scaler.simulate.optimum.outlive import PART_S, Stays, held_in_the_mean, ready_in_the_mean, stays_of
from scaler.simulate.optimum.steps import StepFunction, of_series
from scaler.simulate.scenario import LaunchModel, NoticeModel, Scenario
from scaler.simulate.tally import Tally
from scaler.simulate.world import World
from tests.builders.scenarios import a_capacity, a_scenario

FALL_S = 360.0
MANY = 2000
SOME_UNTOLD = NoticeModel(lead_s=60.0, spread_s=100.0, late_ratio=0.2, none_ratio=0.3)
USUAL = NoticeModel()
SUDDEN = NoticeModel(lead_s=0.0, spread_s=0.0, late_least_s=0.0, late_most_s=0.0)
AT_ONCE = NoticeModel(lead_s=45.0, spread_s=0.0, none_ratio=0.0, late_least_s=0.0, late_most_s=0.0)


def held_by_the_cloud(notices: NoticeModel, ages_s: list[float]) -> list[float]:
    """The share of many that are there so long after a fall of all, where nobody does anything."""
    scenario = a_scenario(a_capacity("a", (0.0, MANY), (FALL_S / 3600, 0)), notices=notices, hours=1.0)
    kernel = Kernel()

    def nothing(*_: object) -> None:
        pass

    callbacks = Callbacks(ready=nothing, lost=nothing, refused=nothing, noticed=nothing)
    cloud = Cloud(scenario, kernel, 1, Tally(scenario, kernel), callbacks)
    for number in range(MANY):
        cloud.warm(f"r{number}", scenario.offerings[0], 1e6)
    (state,) = cloud.offerings.values()
    found: list[float] = []
    for age_s in ages_s:
        kernel.at(FALL_S + age_s, lambda _: found.append(len(state.held) / MANY))
    kernel.run(scenario.end_s)
    return found


@pytest.mark.parametrize("notices", [USUAL, SOME_UNTOLD, AT_ONCE])
def test_no_more_of_those_marked_are_there_than_it_says_and_hardly_fewer(notices: NoticeModel) -> None:
    ages_s = [2.5 + 5.0 * i for i in range(80)]
    stays = stays_of(notices)
    for age_s, held in zip(ages_s, held_by_the_cloud(notices, ages_s), strict=True):
        assert held <= stays.at(age_s) + 0.04, age_s
        assert held >= stays.at(age_s + PART_S) - 0.04, age_s


def test_where_all_are_gone_at_once_nobody_outlives_a_fall() -> None:
    assert stays_of(SUDDEN).at(0.0) == 0.0


def test_the_clock_of_those_marked_runs_as_fast_as_they_are_many() -> None:
    clock = Stays(ages_s=(0.0, 10.0, 30.0), shares=(1.0, 0.5, 0.0)).passed_s(
        np.array([90.0, 105.0, 120.0, 500.0]), 100.0
    )
    assert clock.tolist() == [90.0, 105.0, 115.0, 120.0]


WAVES = tuple((i / 12, (6, 0, 6, 3)[i % 4]) for i in range(12))
QUICK = LaunchModel(answer=Delay(), boot=Delay(least_s=20.0), load=Delay(least_s=20.0))
AFTER_FALLS_S = np.array([time_s for time_s in range(5, 3600, 20) if time_s % 600 > 300], float)


def waves() -> Scenario:
    """A fleet that always wants all there is, at long work, while six come and go every five minutes."""
    long = replace(a_scenario().generation, tokens_per_s=4.0)
    spot = a_capacity("a", *WAVES)
    return a_scenario(
        spot, generation=long, sizing=6, hours=1.0, interval_s=10.0, launch=QUICK, notices=SOME_UNTOLD, warm_replicas=6
    )


def counted(scenario: Scenario, seed: int, counts: Callable[[World], int]) -> list[int]:
    world = World(scenario, seed)
    found: list[int] = []
    for time_s in AFTER_FALLS_S:
        world.kernel.at(float(time_s), lambda _: found.append(counts(world)))
    world.run()
    return found


def held(world: World) -> int:
    return sum(len(state.held) for state in world.cloud.offerings.values())


def ready(world: World) -> int:
    replicas = (replica for state in world.cloud.offerings.values() for replica in state.held.values())
    return sum(replica.phase is ReplicaPhase.READY for replica in replicas)


def most(counts: Callable[[World], int]) -> StepFunction:
    count, stays = of_series(waves().offerings[0].capacity, 3600.0), stays_of(SOME_UNTOLD)
    return held_in_the_mean(count, stays) if counts is held else ready_in_the_mean(count, stays, 40.0)


@pytest.mark.parametrize("counts", [held, ready])
def test_a_fleet_that_wants_all_holds_in_the_mean_what_it_says_and_no_more(counts: Callable[[World], int]) -> None:
    runs = [counted(waves(), seed, counts) for seed in range(20)]
    said = [most(counts).at(float(time_s)) for time_s in AFTER_FALLS_S]
    for time_s, values, at_most in zip(AFTER_FALLS_S, zip(*runs, strict=True), said, strict=True):
        assert fmean(values) <= at_most + 4.0 * (stdev(values) + 0.3) / len(values) ** 0.5, time_s
    over_time = [fmean(run) for run in runs]
    assert fmean(over_time) <= fmean(said) + 4.0 * stdev(over_time) / len(over_time) ** 0.5
    assert fmean(over_time) >= 0.95 * fmean(said)
