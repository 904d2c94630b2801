"""Controllers that are killed, stopped past their lease, and cut off from the API server, each in the middle of work.

What is believed is what `witness` tells: one acts at any time, epochs prove it, nothing is launched twice, no notice is lost.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from tests.cluster.fixtures import require
from tests.e2e.cluster.proxy import Proxy
from tests.e2e.cluster.scene import NEEDS, WITHIN_S, Scene, a_scene

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


RENEW_DEADLINE_S = 7.0
"""A leader stops so long after it began its last renewal that succeeded."""


async def test_leaders_are_killed_stopped_and_cut_off_in_the_middle_of_work(tmp_path: Path) -> None:
    require(*NEEDS)
    async with (
        a_scene(tmp_path) as scene,
        Proxy(scene.bed.plane.url) as frozen,
        Proxy(scene.bed.plane.url) as closed,
    ):
        await scene.controller("a")
        await _killed_while_launching(scene, "a", "b")
        await _killed_while_draining(scene, "b", "c")
        await _stopped_past_its_lease(scene, "c", "d", frozen)
        await _cut_off(scene, "d", "e", frozen.freeze, closed)
        await _cut_off(scene, "e", "f", closed.close)
        await scene.nothing_is_left_in_the_queue()
        scene.nothing_was_ended_by_us()
        scene.witness.check()
        assert max(scene.took.values()) < WITHIN_S
        scene.bed.rest()
        assert audit(scene.bed.open_ledger()).findings == ()


async def _killed_while_launching(scene: Scene, leader: str, standby: str) -> None:
    bed = scene.bed
    bed.sim.slow_next("LaunchInstances", 3.0, 10)
    await bed.until("it leads", lambda: scene.witness.leader() == leader)
    await scene.controller(standby)
    await bed.until("launches are in flight", lambda: len(bed.launched()) >= 3)
    bed.signal(leader, signal.SIGKILL)
    await scene.succession("killed while launching", standby)
    await scene.full()
    assert scene.launched_ever() == scene.ceiling, "nothing was launched twice"


async def _killed_while_draining(scene: Scene, leader: str, standby: str) -> None:
    bed = scene.bed
    await scene.controller(standby)
    noticed = scene.reclaim(10)
    await bed.until("some are marked", lambda: bool(bed.tainted() & noticed))
    bed.signal(leader, signal.SIGKILL)
    await scene.succession("killed while draining", standby)
    await scene.recovered()


async def _stopped_past_its_lease(scene: Scene, leader: str, standby: str, way: Proxy) -> None:
    """In the middle of replacing what was noticed; it goes on in the middle of its successor's work."""
    bed = scene.bed
    await scene.controller(standby, way)
    bed.sim.slow_next("LaunchInstances", 2.0, 6)
    noticed = scene.reclaim(5)
    await bed.until("some are marked", lambda: bool(bed.tainted() & noticed))
    bed.signal(leader, signal.SIGSTOP)
    await scene.succession("stopped past its lease", standby)
    scene.reclaim(2)
    await asyncio.sleep(3.0)
    bed.signal(leader, signal.SIGCONT)
    await bed.until("it has ended", lambda: bed.controllers[leader].poll() is not None)
    await scene.recovered()


async def _cut_off(
    scene: Scene, leader: str, standby: str, cut: Callable[[], Awaitable[None]], way: Proxy | None = None
) -> None:
    """AWS and the ledger are within its reach, and it must leave them alone."""
    bed = scene.bed
    await scene.controller(standby, way)
    await cut()
    cut_at_s = bed.sim.kernel.now_s()
    scene.reclaim(3)
    await scene.succession(f"cut off: {cut.__name__}", standby)
    await scene.recovered()
    await bed.until("it has ended", lambda: bed.controllers[leader].poll() is not None)
    late = [deed for deed in scene.witness.in_cloud(leader) if deed.at_s > cut_at_s + RENEW_DEADLINE_S]
    assert late == []
