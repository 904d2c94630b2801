"""The simulator is like life: a demo that ran on this machine, recorded and replayed with measured rates, goes the same way."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from scaler.simulate.loading import load_scenario, open_trace
from scaler.simulate.policy_file import load_policy
from scaler.simulate.result import Summary
from scaler.simulate.world import simulate

SEEDS = 10


def replayed(folder: Path, trace: Path, scenario: Path) -> list[Summary]:
    """The same capacity under the same policy; luck differs by seed."""
    policy, capacity = load_policy(str(folder / "fleet.yaml")), open_trace(str(trace))
    return [simulate(load_scenario(str(scenario)).bind(policy, trace=capacity), seed).summary for seed in range(SEEDS)]


def headrace(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "scaler.cli", *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_updates_and_waiting_of_a_demo_are_those_of_its_replay(tmp_path: Path) -> None:
    folder, trace, scenario = tmp_path / "demo", tmp_path / "trace.csv", tmp_path / "scenario.yaml"
    headrace("demo", "--updates", "40", "--keep", str(folder))
    recorded = headrace("record", "--from", str(folder), "--out", str(trace), "--scenario", str(scenario), "--json")
    assert recorded.returncode == 0, recorded.stderr
    life: dict[str, Any] = json.loads(recorded.stdout)

    runs = replayed(folder, trace, scenario)
    assert fmean(run.policy_updates for run in runs) == pytest.approx(life["policy_updates"], rel=0.15)
    assert fmean(run.trainer_wait_ratio for run in runs) == pytest.approx(life["trainer_wait_ratio"], rel=0.15)
