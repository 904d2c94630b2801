"""The shipped scenarios: complete, in balance where they say, and the published cases wait as published."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from scaler.simulate.loading import load_scenario, open_trace, shipped_scenarios
from scaler.simulate.scenario import Scenario
from scaler.simulate.world import simulate
from tests.builders.scenario_yaml import fixed, plenty
from tests.builders.scenarios import ceiling_fits
from tests.builders.traces import measured

NAMES = ("aws-48-nodes", "case-a", "case-b", "case-d", "small", "thousand-accelerators")
BALANCE = {
    "aws-48-nodes": 27.914,
    "case-a": 33.846,
    "case-b": 7.692,
    "case-d": 20.0,
    "small": 6.0,
    "thousand-accelerators": 110.0,
}
ROOT = Path(__file__).resolve().parents[2]


def published(name: str, replicas: int, hours: float = 48.0) -> Scenario:
    """The scenario with its published fleet from the start, on more capacity than it wants."""
    bound = load_scenario(name).bind(fixed(replicas), trace=plenty(), hours=hours)
    return replace(bound, warm_replicas=replicas)


def test_all_six_are_shipped() -> None:
    assert tuple(sorted(shipped_scenarios())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_is_in_balance_where_it_says_below_its_ceiling_and_runs_half_a_day(name: str) -> None:
    found = load_scenario(name)
    bound = found.bind(fixed(1))
    assert found.name == name
    assert found.hours >= 12
    assert ceiling_fits(bound)
    assert bound.balance_replicas == pytest.approx(BALANCE[name], abs=1e-3)
    assert bound.unblocked_samples_per_s == pytest.approx(found.spec.trainer.unblocked_samples_per_s)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_its_source_beside_it(name: str) -> None:
    """In the small one all are assumed, which its head says once."""
    text = shipped_scenarios()[name].read_text()
    if name == "small":
        assert "Every number is an assumption" in text
        return
    body = text[text.index("spec:") :]
    section = re.compile(r"^\s*[\w-]+:$|^\s*#|^\s*$|^\s*(- )?\{?name: |^\s*regions:")
    stated = re.compile(r"#.*(\[[SFA=?]|architecture|calibration|as a fleet's default|EC2)")
    # prices by zone and the lines of generated capacity are sourced by the comment above them
    above = r"(us|asia|europe)-[\w-]+: \"|up:|down:|every:|lasts:|strikes:|sigma|mostTokens|- \{name: us"
    unsourced = [
        line
        for line in body.splitlines()
        if re.search(r"\d", line) and not (section.match(line) or stated.search(line) or re.search(above, line))
    ]
    assert not unsourced


def test_case_a_waits_as_published() -> None:
    """1 - 1.95 / 2.75 = 29.1 % by arithmetic, 30 % as published."""
    summary = simulate(published("case-a", 24)).summary
    assert summary.trainer_wait_ratio == pytest.approx(0.291, abs=0.02)
    assert summary.replicas_mean == pytest.approx(24.0, abs=0.1)


@pytest.mark.parametrize(("name", "replicas", "waits"), [("case-b", 2, 0.74), ("case-d", 8, 0.60)])
def test_tails_filtering_and_weight_syncs_move_the_calibrated_waiting_by_less_than_three_points(
    name: str, replicas: int, waits: float
) -> None:
    summary = simulate(published(name, replicas)).summary
    assert summary.trainer_wait_ratio == pytest.approx(waits, abs=0.03)
    assert summary.samples_dropped == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_fleet_in_balance_hardly_waits(name: str) -> None:
    replicas = int(BALANCE[name]) + 1
    assert simulate(published(name, replicas, hours=12.0)).summary.trainer_wait_ratio < 0.03


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "trace",
    [
        "gcp-h100/h100_available_count_10min.csv",
        "aws-v100/v100_available_195s.csv",
        "bamboo/p3-trace.csv",
        "bamboo/a100x1-east1b.txt",
        "parcae/trace_hh_55_65.jsonl",
        "aws-v100/held-4-nodes/us-west-2c_v100_1.json",
    ],
)
def test_each_scale_makes_a_trace_a_choice(name: str, trace: str) -> None:
    """All zones together could hold balance at the best of times, and none holds hundreds of times of it."""
    bound = load_scenario(name).bind(fixed(1), trace=open_trace(str(measured(trace))), hours=500.0)
    most = sum(max(m.capacity.counts) for m in bound.offerings if m.pool == "spot")
    assert 0.7 * bound.balance_replicas <= most <= 20 * bound.balance_replicas


def test_the_wheel_holds_them() -> None:
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"scaler/simulate/scenarios/{name}.yaml" for name in NAMES} <= files
