"""The bench does what it says, on a few nodes; how fast it is, is the bench's business."""

import asyncio
import json

import pytest

from tests.cluster.fixtures import require
from tests.e2e.cluster.bench import run

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

_NODES = 20


async def test_every_node_is_tainted_and_every_worker_told() -> None:
    require("kwok")
    done = await asyncio.to_thread(run, "interruptions", _NODES, quiet=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["notices"], figures["tainted"], figures["drained"]) == (_NODES, _NODES, _NODES)
    assert 0 < figures["p50_taint_s"] <= figures["p99_taint_s"]
    assert figures["p99_drain_s"] > 0
    assert _NODES <= figures["patches"] <= figures["api_requests"]
