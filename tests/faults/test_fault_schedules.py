"""Two thousand random fault schedules: whatever goes wrong, no promise is broken, and afterwards the world comes to rest.

A failing seed shows its first broken promise and the command that runs it again. `HEADRACE_FAULT_SCHEDULES` asks for more,
or fewer, than two thousand.
"""

import os
import subprocess
import sys

import pytest

from tests.faults.runner import run_schedule

SCHEDULES = int(os.environ.get("HEADRACE_FAULT_SCHEDULES", "2000"))
CHUNK = 25
"""Schedules a test: some seconds, so that they spread over cores and none comes near a time-out."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_no_schedule_of_faults_breaks_a_promise(first: int) -> None:
    verdicts = [run_schedule(seed) for seed in range(first, min(first + CHUNK, SCHEDULES))]
    failed = [str(verdict) for verdict in verdicts if verdict.broken]
    assert not failed, "\n" + "\n".join(failed)


def test_a_seed_gives_the_same_events_in_every_process() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-m", "tests.faults", "--seed", "7", "--trace-events"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert "CALM" in traces[0]
