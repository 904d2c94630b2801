"""Uniform Progress in the simulated world does what its authors' rules do when they are stepped directly on the V100 traces.

Their setting ("Can't Be Late", NSDI '24): one instance, a job of 48 h in a deadline of 60 h (job fraction .8), changeover .2 h.
They report 25.1 hours on demand of 48, over eight traces.
"""

from dataclasses import replace
from statistics import fmean

import pytest

from policies import uniform_progress
from scaler.model.capacity import CapacityType
from scaler.model.spec import PolicySpec
from scaler.simulate.delays import Delay
from scaler.simulate.scenario import LaunchModel, NoticeModel, TrainerModel
from scaler.simulate.world import simulate
from scaler.traces.registry import load_trace
from scaler.traces.trace import Series
from tests.builders.scenarios import HOUR_S, a_capacity, a_scenario
from tests.builders.traces import measured

CHANGEOVER_S, DEADLINE_S, WORK_S = 720.0, 60 * HOUR_S, 48 * HOUR_S
STARTS_H = (0, 240, 480)
SPOT_USD_PER_H, ON_DEMAND_USD_PER_H = 0.918, 3.06
PUBLISHED_H = 25.1


def stepped(zone: Series) -> float:
    """Hours on demand by the three rules and the safety net, minute by minute."""
    mode, at_s, works_at_s, done_s, on_demand_s, to_the_end = "idle", 0.0, 0.0, 0.0, 0.0, False
    while at_s < DEADLINE_S and done_s < WORK_S:
        there = zone.at(at_s) > 0
        mode = "idle" if mode == "spot" and not there else mode
        before, ahead_s = mode, (at_s + 2 * CHANGEOVER_S) * WORK_S / DEADLINE_S
        if mode == "idle" and (to_the_end or DEADLINE_S - at_s < WORK_S - done_s + 2 * CHANGEOVER_S):
            mode, to_the_end = "on demand", True
        elif mode == "idle" and there:
            mode = "spot"
        elif mode == "idle" and done_s < at_s * WORK_S / DEADLINE_S:
            mode = "on demand"
        elif mode == "on demand" and not to_the_end and done_s >= ahead_s:
            mode = "spot" if there else "idle"
        works_at_s = at_s + CHANGEOVER_S if mode != before else works_at_s
        on_demand_s += 60.0 * (mode == "on demand")
        done_s += 60.0 * (mode != "idle" and at_s >= works_at_s)
        at_s += 60.0
    return on_demand_s / HOUR_S


def in_the_world(zone: Series) -> float:
    """Hours on demand of the policy in the simulated world, with one replica and the same line."""
    on_demand = a_capacity("b", (0, 1), price=ON_DEMAND_USD_PER_H, capacity_type=CapacityType.ON_DEMAND)
    trainer = TrainerModel(usd_per_h=0.0, train_s=132.0, publish_s=2.0)
    # A replica makes a batch in 128 s: a little more than the trainer takes, or two of them would be wanted.
    line = WORK_S / DEADLINE_S * 134 / 128
    params = uniform_progress.Params(
        progress_ratio=line, horizon_s=DEADLINE_S, changeover_s=CHANGEOVER_S, initial_goodput_per_replica_per_s=0.25
    )
    scenario = a_scenario(
        replace(a_capacity("a", price=SPOT_USD_PER_H), capacity=zone),
        on_demand,
        sizing=PolicySpec(name="uniform_progress", params=params),
        hours=60,
        warm_replicas=0,
        warm_depth_samples=0,
        trainer=trainer,
        launch=LaunchModel(answer=Delay(least_s=1), boot=Delay(least_s=600), load=Delay(least_s=120)),
        notices=NoticeModel(spread_s=0.0, late_ratio=0.0, none_ratio=0.0),
    )
    return simulate(scenario).summary.cost_by_capacity_usd["on-demand"] / ON_DEMAND_USD_PER_H


def test_uniform_progress_buys_as_much_on_demand_as_its_rules_and_the_literature_say() -> None:
    trace = load_trace(measured("aws-v100/v100_available_195s.csv"))
    zones = [trace.select([name]).window(start, 60).series[0] for name in trace.names for start in STARTS_H]
    rules = [stepped(zone) for zone in zones]
    world = [in_the_world(zone) for zone in zones]
    assert fmean(rules) == pytest.approx(PUBLISHED_H, abs=2.5)
    assert fmean(world) == pytest.approx(fmean(rules), abs=3.0)
    # Zone by zone too: where there is hardly any spot it stays on demand, where there is much it hardly buys.
    assert max(abs(a - b) for a, b in zip(world, rules, strict=True)) < 12.0
