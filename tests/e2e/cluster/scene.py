"""A fleet at work under a witness, with controllers that come and go: what tests of failovers and outages begin with."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.cluster.bed import Bed, a_bed
from tests.e2e.cluster.kubelet import ATTENTIVE_KUBELET
from tests.e2e.cluster.proxy import Proxy, through
from tests.e2e.cluster.witness import Witness, user_of
from tests.simcloud.journal import BY_CALLERS

NEEDS = ("controllers", "scheduler", "kwok")
COMES_BACK_S = 150.0
"""From the API server's return to that of those who start a replacement's worker: controllers, scheduler, kubelet. Each asks
again up to a minute later, as client-go backs off, and once more where its watch is too old then; 65 s have been seen."""
LAUNCH_TIMEOUT = "300s"
"""Of the fleet: a launch that was given up for that would be replaced, and is not what is tested."""
WITHIN_S = 20.0
"""From the loss of a leader to its successor's first decision."""


class Scene:
    """A bed under load with its witness; controllers come as standbys and are told apart in every log."""

    def __init__(self, bed: Bed, witness: Witness, ceiling: int) -> None:
        self.bed = bed
        self.witness = witness
        self.ceiling = ceiling
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
        await self.bed.until(f"{name} leads", lambda: self.witness.leader() == name, WITHIN_S)
        leads_s = self.witness.terms[-1].seen_at_s - began_s
        await self.bed.until(f"{name} decides", lambda: self.witness.has_decided(name), WITHIN_S - leads_s)
        self.took[what] = self.witness.decided_at_s(name) - began_s
        told = "%s: lease after %.1f s, first decision after %.1f s"
        logging.getLogger(__name__).info(told, what, leads_s, self.took[what])

    async def full(self) -> None:
        """Wait for the ceiling."""
        await self.bed.until("the ceiling", lambda: self.bed.serving(set()) == self.ceiling, 120)

    def reclaim(self, number: int) -> set[str]:
        """Notices for so many instances."""
        noticed = set(self.bed.sim.fate.reclaim(number))
        self.gone |= noticed
        return noticed

    async def recovered(self, within_s: float = 90.0) -> None:
        """Everything noticed is marked and out of its group, and each was replaced once; `within_s`: until all serve."""
        bed = self.bed
        await bed.until("every noticed node is tainted", lambda: bed.tainted() >= self.standing())
        await bed.until("noticed instances left their groups", lambda: self.gone.isdisjoint(bed.launched()))
        await bed.until("as many serve as before", lambda: bed.serving(self.gone) == self.ceiling, within_s)
        assert self.launched_ever() == self.ceiling + len(self.gone), f"each was replaced once: {self.launch_reasons()}"

    async def nothing_is_left_in_the_queue(self) -> None:
        """Every message was acknowledged by somebody: those of a dead leader come again once they are visible."""
        await self.bed.until("no message is left", lambda: self.messages() == 0, 90)

    def standing(self) -> set[str]:
        """Noticed instances that have a node still."""
        return self.gone & {node.instance_id for node in self.bed.nodes.all()}

    def messages(self) -> int:
        """In the queue."""
        return len(self.bed.sim.queues.by_name["notices"].messages)

    def launched_ever(self) -> int:
        """Instances that there ever were."""
        return len(self.bed.sim.instances.by_id)

    def launch_reasons(self) -> Counter[tuple[str, str, str]]:
        """Why each controller launched, as it says itself, and what came of it; for people."""
        return Counter(
            (name, said["reason"], said["outcome"])
            for name in self.bed.controllers
            for said in self.witness.said(name, "command")
            if said["kind"] == "launch"
        )

    def nothing_was_ended_by_us(self) -> None:
        """A failover, or an outage, is no reason to end anything."""
        assert [one for one in self.bed.sim.log.ended if one.by in BY_CALLERS] == []

    def drained(self, instance_ids: set[str]) -> bool:
        """Whether the ledger told the workers of these instances to drain, as they themselves heard."""
        told = {self.bed.worked_on[worker] for worker in list(self.bed.workers.drained_at_s)}
        return instance_ids <= told


@asynccontextmanager
async def a_scene(folder: Path, ceiling: int = 20) -> AsyncIterator[Scene]:
    """A bed with a fleet that wants its ceiling, and no controller yet."""
    async with a_bed(folder, audit=True, flags={"kwok": ATTENTIVE_KUBELET}) as bed:
        scene = Scene(bed, Witness(bed), ceiling)
        following = asyncio.create_task(scene.witness.run())
        try:
            bed.eat(3.0 * ceiling)
            await bed.fleet(guardRails={"ceiling": ceiling}, launch_timeout=LAUNCH_TIMEOUT)
            yield scene
        finally:
            following.cancel()
