"""The bench does what it says, on a few nodes; how long a pass takes is the bench's business."""

import asyncio
import json

import pytest

from tests.cluster.fixtures import require
from tests.e2e.cluster.bench import run

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

_NODES = 30
_TURNS = 8


async def test_the_loop_is_measured_over_a_fleet_that_is_whole() -> None:
    require("kwok")
    more = ["--turns", str(_TURNS), "--interval", "1s"]
    done = await asyncio.to_thread(run, "loop", _NODES, more, quiet=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["nodes"] == _NODES
    assert figures["ready"] >= 0.95 * _NODES
    assert figures["decisions"] >= _TURNS
    assert 0 < figures["p50_turn_s"] <= figures["p99_turn_s"]
    parts = ("observe", "assemble", "decide", "persist", "act", "tell")
    assert all(0 <= figures[f"p50_{part}_s"] <= figures["p99_turn_s"] for part in parts)
    assert (
        0 < figures["p50_cpu_s"] <= figures["p99_cpu_s"] <= figures["process_cpu_s_per_decision"] * figures["decisions"]
    )
    assert figures["peak_rss_mib"] > 0
    assert figures["api_requests"] > 0
    assert figures["aws_requests"] > 0
    assert figures["notices"] > 0
