"""The bound in the mean: no policy's runs together are below it, and it is above the one that holds for every run.

`HEADRACE_WORLDS=300` tries so many random worlds instead of the few of a usual run, `HEADRACE_FIRST_WORLD` starts elsewhere.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from unittest.mock import patch

import pytest

from scaler.simulate.delays import Delay
from scaler.simulate.optimum import Bound, outlive, solve
from scaler.simulate.optimum.foresight import achieved
from scaler.simulate.result import Summary
from scaler.simulate.scenario import LaunchModel, NoticeModel, Scenario, TrainerModel
from scaler.simulate.world import simulate
from tests.builders.optimum import a_random_world, whimsical
from tests.builders.scenarios import a_capacity, a_scenario

FIRST = int(os.environ.get("HEADRACE_FIRST_WORLD", "0"))
WORLDS = int(os.environ.get("HEADRACE_WORLDS", "12"))
SEEDS = range(8)
ERRORS = 4.0
"""Standard errors that a mean may be below by chance."""
AT_ONCE = NoticeModel(lead_s=300.0, spread_s=0.0, none_ratio=0.0)
"""All that a fall takes stay for as long as one may."""
DRAWN = LaunchModel(
    answer=Delay(),
    boot=Delay(least_s=100.0, median_s=90.0, sigma=0.8, most_s=720.0),
    load=Delay(least_s=60.0, median_s=90.0, sigma=0.6, most_s=360.0),
)


@pytest.mark.parametrize("world", range(FIRST, FIRST + WORLDS))
def test_no_runs_together_cost_less_than_the_bound_in_the_mean(world: int) -> None:
    assert not _beaten(a_random_world(world)), "its runs beat the bound in the mean"


def _beaten(scenario: Scenario) -> bool:
    bound = solve(scenario, in_the_mean=True)
    with whimsical():
        return is_below(bound, [simulate(scenario, seed).summary for seed in SEEDS])


def is_below(bound: Bound, runs: Sequence[Summary]) -> bool:
    """By more than chance: what the runs cost less than the bound says of what they are credited."""
    net, gross = bound.cost_usd_per_1k_samples / 1000, bound.before_refunds_usd_per_1k_samples / 1000
    if math.isinf(net):
        return any(run.samples_credited > 0 for run in runs)
    over = [run.cost_usd - net * run.samples_credited for run in runs]
    before = [run.cost_usd + run.refunds_usd - gross * run.samples_credited for run in runs]
    return any(fmean(found) < -ERRORS * stdev(found) / math.sqrt(len(found)) - 1e-9 for found in (over, before))


def launching() -> Scenario:
    """All that is warm is taken again and again; what replaces it must be launched."""
    falls = [(h, 0 if i % 2 else 4) for i, h in enumerate((0.0, 0.5, 0.6, 1.1, 1.2, 1.7, 1.8))]
    return a_scenario(a_capacity("a", *falls), hours=2.0, interval_s=10.0, launch=DRAWN, warm_depth_samples=0)


def taking() -> Scenario:
    """Every half an hour one of eight is taken and comes back: who is young and taken was free."""
    falls = [(h / 4, 8 if h % 2 == 0 else 7) for h in range(8)]
    return a_scenario(
        a_capacity("a", *falls, refund_s=3600.0), a_capacity("b"), hours=2.0, warm_replicas=0, warm_depth_samples=0
    )


def emptying() -> Scenario:
    """The same where all are taken."""
    falls = [(h / 4, 8 if h % 2 == 0 else 0) for h in range(8)]
    return replace(taking(), offerings=(a_capacity("a", *falls, refund_s=3600.0), taking().offerings[1]))


def outliving() -> Scenario:
    """All are taken and come back every quarter of an hour; who stays for the longest after a fall works for the longest."""
    falls = [(h / 8, 3 if h % 2 == 0 else 0) for h in range(16)]
    quick = LaunchModel(answer=Delay(), boot=Delay(least_s=20.0), load=Delay(least_s=10.0))
    return a_scenario(a_capacity("a", *falls), hours=2.0, interval_s=10.0, launch=quick, warm_depth_samples=0)


@pytest.mark.parametrize("make", [launching, taking, emptying, outliving])
def test_nor_does_a_planner_that_knows_all_capacity(make: Callable[[], Scenario]) -> None:
    scenario = make()
    bound = solve(scenario, in_the_mean=True)
    runs = [achieved(scenario, math.inf, bound.cost_usd_per_1k_samples / 1000, seed) for seed in SEEDS]
    assert not is_below(bound, runs)


def sinking() -> Scenario:
    """Too few replicas from the start, of which every fall takes four, each at a moment of its own and without a word."""
    falls = [(i / 12, 16 - 4 * i) for i in range(5)]
    scenario = a_scenario(
        a_capacity("a", *falls),
        sizing=16,
        hours=0.4,
        trainer=TrainerModel(usd_per_h=100.0, train_s=6.0),
        notices=NoticeModel(lead_s=0.0, spread_s=300.0),
        warm_replicas=16,
        warm_depth_samples=0,
    )
    return replace(scenario, generation=replace(scenario.generation, progress_s=1.0, lease_ttl_s=5.0, resume_s=0.0))


def test_a_fleet_that_holds_all_there_is_comes_near_it_and_would_beat_one_that_has_it_taken_sooner() -> None:
    runs = [simulate(sinking(), seed).summary for seed in range(24)]
    bound = solve(sinking(), in_the_mean=True)
    assert not is_below(bound, runs)
    assert sum(run.cost_usd for run in runs) < 1.02 * bound.cost_usd_per_1k_samples / 1000 * sum(
        run.samples_credited for run in runs
    )
    share = outlive._share
    with patch.object(outlive, "_share", lambda *asked: 0.7 * share(*asked)):
        assert is_below(solve(sinking(), in_the_mean=True), runs)


def raised(scenario: Scenario) -> float:
    return solve(scenario, in_the_mean=True).cost_usd_per_1k_samples / solve(scenario).cost_usd_per_1k_samples


def test_launches_that_are_drawn_cost_more_than_their_shortest() -> None:
    constant = LaunchModel(answer=Delay(), boot=Delay(least_s=100.0), load=Delay(least_s=60.0))
    # Three falls of all: the mean launch is ready four minutes after the shortest, of which the relaxation keeps a part.
    assert raised(launching()) > 1.02
    assert raised(replace(launching(), launch=constant, notices=AT_ONCE)) < 1.01


def test_who_is_taken_by_lot_is_seldom_the_one_who_would_be_free() -> None:
    always, mean = solve(taking()), solve(taking(), in_the_mean=True)
    assert mean.cost_usd_per_1k_samples > always.cost_usd_per_1k_samples * 1.02
    assert mean.refunds_usd < 0.7 * always.refunds_usd


def test_where_all_are_taken_nothing_hangs_on_the_lot() -> None:
    assert raised(replace(emptying(), notices=AT_ONCE)) == pytest.approx(1.0, abs=0.02)


def test_nobody_has_all_that_are_taken_stay_for_as_long_as_one_may() -> None:
    # Of 300 s after each fall about 210 are left in the mean, and there are 450 before it.
    assert raised(outliving()) > 1.05
    assert raised(replace(outliving(), notices=AT_ONCE)) == pytest.approx(1.0, abs=1e-3)


def test_it_says_that_it_is_one_of_the_mean() -> None:
    scenario = a_scenario(hours=1.0)
    assert (solve(scenario).bound, solve(scenario, in_the_mean=True).bound) == ("lower", "lower in the mean")


def test_where_nothing_is_left_to_chance_it_is_the_same() -> None:
    assert raised(a_scenario(hours=2.0)) == pytest.approx(1.0, abs=1e-4)
