"""Controllers that are killed, stopped past their lease, and cut off from the API server, each in the middle of work.

What is believed is what `witness` tells: one acts at any time, epochs prove it, nothing is launched twice, no notice is lost.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scaler.ledger.audit import audit
from tests.cluster.fixtures import require
from tests.e2e.cluster.bed import Bed, a_bed
from tests.e2e.cluster.proxy import Proxy, through
from tests.e2e.cluster.witness import Witness, user_of
from tests.simcloud.journal import BY_CALLERS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

_CEILING = 20
_WITHIN_S = 20.0
_NEEDS = ("controllers", "scheduler", "kwok")


class Scene:
    """A bed under load with its witness; controllers come as standbys and are told apart in every log."""

    def __init__(self, bed: Bed, witness: Witness) -> None:
        self.bed = bed
        self.witness = witness
        self.gone: set[str] = set()
        self.took: dict[str, float] = {}

    async def controller(self, name: str, proxy: Proxy | None = None) -> None:
        """Start one, and wait until it leads or stands by."""
        own = self.bed.plane.kubeconfig_for(user_of(name), ["system:masters"])
        self.bed.start_controller(name, kubeconfig=through(proxy, own) if proxy else own)
        await self.bed.until(f"{name} stands by", lambda: bool(self.witness.said(name, "standby")))

    async def succession(self, what: str, name: str) -> None:
        """Wait until `name` leads and has decided; the time counts from the call on."""
        began_s = self.bed.sim.kernel.now_s()
        await self.bed.until(f"{name} leads", lambda: self.witness.leader() == name, _WITHIN_S)
        leads_s = self.witness.terms[-1].seen_at_s - began_s
        await self.bed.until(f"{name} decides", lambda: bool(self.witness.said(name, "decision")), _WITHIN_S - leads_s)
        self.took[what] = self.witness.decided_at_s(name) - began_s
        told = "%s: lease after %.1f s, first decision after %.1f s"
        logging.getLogger(__name__).info(told, what, leads_s, self.took[what])

    def reclaim(self, number: int) -> set[str]:
        """Notices for so many instances."""
        noticed = set(self.bed.sim.fate.reclaim(number))
        self.gone |= noticed
        return noticed

    async def recovered(self) -> None:
        """Everything noticed is marked and out of its group, each was replaced once, and no message is left."""
        bed = self.bed
        await bed.until("every noticed node is tainted", lambda: bed.tainted() >= self.standing())
        await bed.until("noticed instances left their groups", lambda: self.gone.isdisjoint(bed.launched()))
        await bed.until("as many serve as before", lambda: bed.serving(self.gone) == _CEILING, 90)
        assert self.launched_ever() == _CEILING + len(self.gone), "each was replaced once"
        await bed.until("no message is left", lambda: self.messages() == 0)

    def standing(self) -> set[str]:
        """Noticed instances that have a node still."""
        return self.gone & {node.instance_id for node in self.bed.nodes.all()}

    def messages(self) -> int:
        """In the queue."""
        return len(self.bed.sim.queues.by_name["notices"].messages)

    def launched_ever(self) -> int:
        """Instances that there ever were."""
        return len(self.bed.sim.instances.by_id)


@asynccontextmanager
async def a_scene(folder: Path) -> AsyncIterator[Scene]:
    """A bed with a fleet that wants its ceiling, and no controller yet."""
    async with a_bed(folder, audit=True) as bed:
        scene = Scene(bed, Witness(bed))
        following = asyncio.create_task(scene.witness.run())
        try:
            bed.eat(60.0)
            await bed.fleet(guardRails={"ceiling": _CEILING})
            yield scene
        finally:
            following.cancel()


async def test_killed_while_launching_and_while_draining_and_stopped_past_its_lease(tmp_path: Path) -> None:
    require(*_NEEDS)
    async with a_scene(tmp_path) as scene:
        bed = scene.bed
        bed.sim.slow_next("LaunchInstances", 3.0, 10)
        await scene.controller("a")
        await bed.until("a leads", lambda: scene.witness.leader() == "a")
        await scene.controller("b")

        await bed.until("launches are in flight", lambda: len(bed.launched()) >= 3)
        bed.signal("a", signal.SIGKILL)
        await scene.succession("killed while launching", "b")
        await bed.until("the ceiling", lambda: bed.serving(set()) == _CEILING, 90)
        assert scene.launched_ever() == _CEILING, "nothing was launched twice"

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
        _nothing_of_ours_was_ended(bed)
        scene.witness.check()
        bed.rest()
        assert audit(bed.open_ledger()).findings == ()


@pytest.mark.parametrize("cut", ["half open", "closed"])
async def test_cut_off_from_the_api_server(tmp_path: Path, cut: str) -> None:
    require(*_NEEDS)
    async with a_scene(tmp_path) as scene:
        bed = scene.bed
        proxy = Proxy(bed.plane.url)
        await proxy.start()
        await scene.controller("a", proxy)
        await bed.until("a leads", lambda: scene.witness.leader() == "a")
        await scene.controller("b")
        await bed.until("the ceiling", lambda: bed.serving(set()) == _CEILING, 90)

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


def _nothing_of_ours_was_ended(bed: Bed) -> None:
    """A failover is no reason to end anything."""
    assert [one for one in bed.sim.log.ended if one.by in BY_CALLERS] == []
