"""Controllers that are killed, stopped past their lease, and cut off from the API server, each in the middle of work.

What is believed is what `witness` tells: one acts at any time, epochs prove it, nothing is launched twice, no notice is lost.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from tests.cluster.fixtures import require
from tests.e2e.cluster.proxy import Proxy
from tests.e2e.cluster.scene import CEILING, NEEDS, a_scene

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_killed_while_launching_and_while_draining_and_stopped_past_its_lease(tmp_path: Path) -> None:
    require(*NEEDS)
    async with a_scene(tmp_path) as scene:
        bed = scene.bed
        bed.sim.slow_next("LaunchInstances", 3.0, 10)
        await scene.controller("a")
        await bed.until("a leads", lambda: scene.witness.leader() == "a")
        await scene.controller("b")

        await bed.until("launches are in flight", lambda: len(bed.launched()) >= 3)
        bed.signal("a", signal.SIGKILL)
        await scene.succession("killed while launching", "b")
        await bed.until("the ceiling", lambda: bed.serving(set()) == CEILING, 90)
        assert scene.launched_ever() == CEILING, "nothing was launched twice"

        await scene.controller("c")
        noticed = scene.reclaim(10)
        await bed.until("some are marked", lambda: bool(bed.tainted() & noticed))
        bed.signal("b", signal.SIGKILL)
        await scene.succession("killed while draining", "c")
        await scene.recovered()

        await scene.controller("d")
        bed.sim.slow_next("LaunchInstances", 2.0, 6)
        noticed = scene.reclaim(5)
        await bed.until("some are marked", lambda: bool(bed.tainted() & noticed))
        bed.signal("c", signal.SIGSTOP)
        await scene.succession("stopped", "d")
        await asyncio.sleep(3.0)
        bed.signal("c", signal.SIGCONT)
        await bed.until("c has ended", lambda: bed.controllers["c"].poll() is not None)
        await scene.recovered()
        scene.nothing_was_ended_by_us()
        scene.witness.check()
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


@pytest.mark.parametrize("cut", ["half open", "closed"])
async def test_cut_off_from_the_api_server(tmp_path: Path, cut: str) -> None:
    require(*NEEDS)
    async with a_scene(tmp_path) as scene:
        bed = scene.bed
        proxy = Proxy(bed.plane.url)
        await proxy.start()
        await scene.controller("a", proxy)
        await bed.until("a leads", lambda: scene.witness.leader() == "a")
        await scene.controller("b")
        await bed.until("the ceiling", lambda: bed.serving(set()) == CEILING, 90)

        cut_at_s = bed.sim.kernel.now_s()
        proxy.freeze() if cut == "half open" else await proxy.close()
        scene.reclaim(5)
        await scene.succession(cut, "b")
        await scene.recovered()
        await bed.until("a has ended", lambda: bed.controllers["a"].poll() is not None)
        assert [deed for deed in scene.witness.in_cloud("a") if deed.at_s > cut_at_s + 7.0] == []
        scene.witness.check()
        await proxy.close()
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()
