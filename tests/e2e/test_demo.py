"""`headrace demo` as a person runs it: a short one to its end, and one that is stopped in the middle."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scaler.runtime.clock import SystemClock

SUMMARY_KEYS = {
    "duration_s", "policy_updates", "reward_first", "reward_last", "interruptions_noticed", "interruptions_unnoticed",
    "units_committed", "units_lost", "samples_doubled", "tokens_generated", "tokens_salvaged", "tokens_wasted",
    "replicas_min", "replicas_max", "trainer_wait_ratio", "samples_dropped",
}  # fmt: skip


def demo(folder: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "scaler.cli", "demo", "--keep", str(folder / "kept"), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def left_of(folder: Path) -> list[list[str]]:
    """Command lines of processes that still work in the demo's folder."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any(str(folder / "kept") in word for word in line)]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_short_demo_ends_clean_with_its_figures_and_its_picture(tmp_path: Path) -> None:
    summary, plot = tmp_path / "summary.json", tmp_path / "plot.png"
    process = demo(tmp_path, "--updates", "4", "--summary", str(summary), "--plot", str(plot))
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    figures = json.loads(summary.read_text())
    assert figures.keys() >= SUMMARY_KEYS
    assert figures["policy_updates"] == 4
    assert figures["units_lost"] == figures["samples_doubled"] == 0
    assert figures["tokens_generated"] >= figures["tokens_wasted"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "nothing lost, nothing doubled" in output
    assert left_of(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    process = demo(tmp_path)
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + 90
    while not any("rollout_worker" in line for line in left_of(tmp_path)) and clock.monotonic_s() < deadline_s:
        signal.sigtimedwait([], 0.2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert left_of(tmp_path) == []
