"""What a controller stands on goes away and comes back, under load and with notices arriving: ledger, API server, etcd.

Hold what cannot be known, do what can be done, and be right again afterwards; one acts at any time throughout.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from tests.cluster.fixtures import require
from tests.e2e.cluster.scene import COMES_BACK_S, NEEDS, Scene, a_scene

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


async def test_what_a_controller_stands_on_goes_away_and_comes_back(tmp_path: Path) -> None:
    require(*NEEDS)
    async with a_scene(tmp_path, 32) as scene:
        bed = scene.bed
        await scene.controller("a")
        await scene.full()
        await _a_new_start_touches_nothing_before_it_knows(scene)
        await _without_its_ledger(scene)
        await _the_api_server_hangs_for_a_moment(scene)
        await _etcd_is_killed(scene)
        await _the_api_server_is_away_for_long(scene)
        await scene.nothing_is_left_in_the_queue()
        scene.nothing_was_ended_by_us()
        scene.witness.check()
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


async def _a_new_start_touches_nothing_before_it_knows(scene: Scene) -> None:
    """The only controller is started anew while the ledger hangs: it leads, and decides nothing until it has all lists."""
    bed, before = scene.bed, set(scene.bed.launched())
    bed.store.pause()
    bed.signal("a", signal.SIGTERM)
    await bed.until("a has ended", lambda: bed.controllers["a"].poll() is not None)
    await scene.controller("b")
    await bed.until("b leads", lambda: scene.witness.leader() == "b")
    await bed.until("b waits", lambda: len(scene.witness.said("b", "waiting_for_first_answers")) >= 2)
    assert not scene.witness.has_decided("b")
    bed.store.resume()
    await bed.until("b decides", lambda: scene.witness.has_decided("b"))
    decided_at_s = scene.witness.decided_at_s("b")
    assert [deed for deed in scene.witness.in_cloud("b") if deed.at_s < decided_at_s] == []
    only_journal = [deed.what for deed in scene.witness.in_cluster("b") if deed.at_s < decided_at_s]
    assert all("configmaps/" in what or "rolloutfleets/" in what or "events/" in what for what in only_journal)
    assert scene.witness.read_before("b", decided_at_s) >= {"nodes", "pods", "rolloutfleets", "configmaps"}
    steps = bed.trained()
    await bed.until("the trainer eats again", lambda: bed.trained() > steps + 1)
    assert set(bed.launched()) == before


async def _without_its_ledger(scene: Scene) -> None:
    """Nothing is lowered; nodes with a notice are tainted meanwhile, and drained afterwards."""
    bed = scene.bed
    bed.store.kill()
    noticed = scene.reclaim(2)
    await bed.until("they are tainted without a ledger", lambda: bed.tainted() >= noticed)
    assert len(bed.launched()) >= scene.ceiling - len(noticed)
    await asyncio.to_thread(bed.store.start)
    await scene.recovered()


async def _the_api_server_hangs_for_a_moment(scene: Scene) -> None:
    """Shorter than the lease: the same leader goes on."""
    bed, epoch = scene.bed, scene.witness.epoch()
    bed.plane.pause("kube-apiserver")
    scene.reclaim(3)
    await asyncio.sleep(3.0)
    bed.plane.resume("kube-apiserver")
    await scene.recovered()
    assert scene.witness.epoch() == epoch


async def _etcd_is_killed(scene: Scene) -> None:
    """And started again at once; somebody leads afterwards."""
    bed = scene.bed
    await scene.controller("c")
    bed.plane.kill("etcd")
    scene.reclaim(3)
    await asyncio.to_thread(bed.plane.restart, "etcd")
    await asyncio.to_thread(bed.plane.wait_ready)
    await scene.recovered(COMES_BACK_S)


async def _the_api_server_is_away_for_long(scene: Scene) -> None:
    """Drains go on in the ledger while the leader leads; nothing is launched; the other one takes over once it is back."""
    bed = scene.bed
    await scene.controller("d")
    before, launched = scene.witness.leader(), set(bed.launched())
    bed.plane.kill("kube-apiserver")
    killed_at_s = bed.sim.kernel.now_s()
    noticed = scene.reclaim(4)
    await bed.until("they drain without an API server", lambda: scene.drained(noticed))
    await bed.until("its leader has ended", lambda: bed.controllers[before].poll() is not None)
    assert set(bed.launched()) <= launched, "nothing was launched that no journal told of"
    assert [d for d in scene.witness.in_cloud(before) if d.at_s > killed_at_s and "LaunchInstances" in d.what] == []
    await asyncio.to_thread(bed.plane.restart, "kube-apiserver")
    await asyncio.to_thread(bed.plane.wait_ready)
    await bed.until("another leads", lambda: scene.witness.leader() != before)
    await scene.recovered(COMES_BACK_S)
