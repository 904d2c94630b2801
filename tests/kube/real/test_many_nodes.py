"""What 5,000 nodes cost who watches them: nodes as large as those of EKS, listed, then some changed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import NODES, Json, KubeApi
from scaler.runtime.clock import SystemClock
from tests.builders.kube import node
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import require

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(420)]

COUNT = 5_000
CHANGED = 500
MOST_BYTES = 400 << 20
_ROOT = Path(__file__).parents[3]
_AT_ONCE = 64


def a_full_node(name: str) -> Json:
    """About 15 KB: 50 images, 6 conditions, 30 labels, as a node has that has run for a while."""
    labels = {f"example.com/label-{i}": f"value-{i}" for i in range(20)}
    body = node(name, labels=labels, annotations={f"example.com/note-{i}": f"{name}-{i}" for i in range(5)})
    registry = "602401143452.dkr.ecr.us-west-2.amazonaws.com"
    body["status"] |= {
        "images": [
            {"names": [f"{registry}/image-{i}@sha256:{i:064x}", f"{registry}/image-{i}:v1.{i}"], "sizeBytes": 10**8 + i}
            for i in range(50)
        ],
        "conditions": [
            {
                "type": type_,
                "status": "True" if type_ == "Ready" else "False",
                "reason": f"Kubelet{type_}",
                "message": f"kubelet has told of {type_}",
                "lastHeartbeatTime": "2026-11-29T10:00:00Z",
                "lastTransitionTime": "2026-11-29T10:00:00Z",
            }
            for type_ in (
                "Ready",
                "MemoryPressure",
                "DiskPressure",
                "PIDPressure",
                "NetworkUnavailable",
                "StorageReady",
            )
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
    }
    return body


async def in_turn(calls: Iterator[Any]) -> None:
    """So many at a time."""

    async def work() -> None:
        for call in calls:
            await call

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())


@pytest.fixture
async def crowded() -> AsyncIterator[tuple[ControlPlane, KubeApi]]:
    """A control plane of its own: gone with all its nodes at once."""
    require()
    with ControlPlane() as plane:
        api = open_api(plane.kubeconfig, clock=SystemClock(), qps=5_000.0, burst=5_000, time_out_s=60.0)
        await in_turn(api.create(NODES, a_full_node(f"n-{i}")) for i in range(COUNT))
        yield plane, api
        await api.close()


@pytest.fixture
def watcher(crowded: tuple[ControlPlane, KubeApi]) -> Iterator[subprocess.Popen[str]]:
    plane, _ = crowded
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kube.real.watch_process", str(plane.kubeconfig)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


async def ask(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return dict(json.loads(await asyncio.to_thread(process.stdout.readline)))


async def test_5000_nodes_are_watched_in_less_than_400_mib(
    crowded: tuple[ControlPlane, KubeApi], watcher: subprocess.Popen[str]
) -> None:
    _, api = crowded
    listed = await ask(watcher)
    assert listed["nodes"] == COUNT
    patch = {"metadata": {"annotations": {"version": "1"}}}
    await in_turn(api.patch(NODES, f"n-{i}", patch) for i in range(CHANGED))
    told = await ask(watcher)
    while told["versions"] < CHANGED:
        await asyncio.sleep(0.1)
        told = await ask(watcher)
    assert told["peak_bytes"] < MOST_BYTES, told
