"""What Karpenter refuses after a launch was answered: the loop hears of it at once, and asks there less and less often."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scaler.act.base import PoolActor
from scaler.act.karpenter_claims import CAPACITY_LABEL, TYPE_LABEL, ZONE_LABEL
from scaler.act.sharing import Places
from scaler.config.schema import RolloutFleet
from scaler.decide.timing import AFTER_REFUSAL_S
from scaler.decide.world import backoff_ends_at_s
from scaler.kube.contract import NODE_CLAIMS
from scaler.model.snapshot import OfferingView
from scaler.model.spec import FleetSpec
from scaler.runtime.cluster.notice_hub import NoticeHub
from scaler.runtime.cluster.owners import Owners
from scaler.runtime.cluster.pools import ClusterActors
from scaler.runtime.cluster.shared import Muster, Shared
from scaler.runtime.notice_watch import NoticeWatch
from tests.builders.controller import Running, World, a_controller
from tests.builders.fleet import OFFERING, a_launch, a_spec
from tests.builders.fleet_yaml import a_cluster_fleet, a_pool, a_worker_set, an_offering, the_fleet
from tests.builders.karpenter import POOL, KarpenterWorld

INTERVAL_S = 60.0
HERE = {TYPE_LABEL: OFFERING.instance_type, ZONE_LABEL: OFFERING.zone, CAPACITY_LABEL: "spot"}


def a_fleet() -> RolloutFleet:
    provider = {"type": "karpenter", "nodePool": POOL, "workerSet": a_worker_set(name="w")}
    offering = an_offering(instanceType=OFFERING.instance_type, zone=OFFERING.zone)
    return the_fleet(a_cluster_fleet(a_pool(name="pool", provider=provider, offerings=[offering])))


@dataclass
class OnKarpenter(World):
    """A world whose pool is a NodePool; Karpenter has nothing to give unless told otherwise."""

    spec: FleetSpec = field(default_factory=lambda: a_spec(interval_s=INTERVAL_S))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.karpenter = KarpenterWorld(offerings=(OFFERING,))
        self.clock = self.ledger.clock = self.karpenter.clock
        self.made = 0

    def join(self, running: Running, group: asyncio.TaskGroup) -> None:
        karpenter, clock = self.karpenter, self.clock
        shared = Shared(
            clock=clock,
            kube=karpenter.kube,
            aws=None,
            nodes=karpenter.nodes,
            pods=karpenter.pods,
            places=Places(),
            hub=NoticeHub(NoticeWatch({}, clock), clock),
            owners=Owners(karpenter.nodes, clock),
            muster=Muster(clock),
            leading=lambda: True,
            state_dir=self.folder,
        )
        fleet = a_fleet()
        self.actors = ClusterActors(shared, lambda: fleet, lambda _: False, running.controller.refused.set, group)

    async def current(self) -> Mapping[str, PoolActor]:
        """As `ActorSource`."""
        return await self.actors.current()

    async def claims(self, count: int, *, launched: bool = False) -> None:
        """Karpenter makes claims together, and those that it cannot launch end after three seconds."""
        names = [f"c{self.made + n}" for n in range(count)]
        self.made += count
        for name in names:
            state, labels = ("True", HERE) if launched else ("Unknown", {})
            self.karpenter.claim(name, launched=state, reason="AwaitingReconciliation", labels=labels)
        await self.clock.advance(3.0)
        for name in () if launched else names:
            self.karpenter.kube.store.find(NODE_CLAIMS, None, name)["metadata"].pop("finalizers")
            self.karpenter.kube.store.remove(NODE_CLAIMS, None, name, None, None)
        await self.clock.settle()


async def _run(world: OnKarpenter, running: Running) -> None:
    async with asyncio.TaskGroup() as watches:
        world.join(running, watches)
        await running.controller.run(running.group)


@asynccontextmanager
async def at_work(world: OnKarpenter) -> AsyncIterator[Running]:
    async with asyncio.TaskGroup() as group, a_controller(world, start=False) as running:
        task = group.create_task(_run(world, running))
        await world.clock.settle()
        yield running
        task.cancel()


@pytest.fixture
def world(tmp_path: Path) -> OnKarpenter:
    return OnKarpenter(tmp_path)


def shown(running: Running) -> OfferingView:
    return running.snapshot.stages[0].pools[0].offerings[0]


async def test_a_claim_that_is_refused_brings_one_turn_soon_that_knows(world: OnKarpenter) -> None:
    world.script.plans = [(a_launch("t1"), a_launch("t2"))]
    async with at_work(world) as running:
        turns = len(world.script.seen)
        await world.claims(2)
        await world.clock.advance(AFTER_REFUSAL_S - 0.1)
        assert len(world.script.seen) == turns
        await world.clock.advance(0.2)
        assert len(world.script.seen) == turns + 1
        assert shown(running).refusals == 1
        await world.clock.advance(INTERVAL_S - 1.0)
        assert len(world.script.seen) == turns + 1


async def test_refusals_of_claims_climb_the_back_off_until_one_is_launched_there(world: OnKarpenter) -> None:
    world.script.plans = [(a_launch(f"t{n}"),) for n in range(20)]
    waits_s = []
    async with at_work(world) as running:
        for _ in range(4):
            await world.claims(1)
            await world.clock.advance(AFTER_REFUSAL_S + 0.1)
            view = shown(running)
            waits_s.append(backoff_ends_at_s(world.spec.stages[0].pools[0], view, 0.0) - (view.refused_at_s or 0.0))
            await world.clock.advance(300.0)
        first_s = world.spec.stages[0].pools[0].refusal_backoff_initial_s
        longest_s = world.spec.stages[0].pools[0].refusal_backoff_max_s
        assert waits_s == [min(first_s * 2**n, longest_s) for n in range(4)]
        await world.claims(1, launched=True)
        await world.clock.advance(INTERVAL_S)
        assert (shown(running).refusals, shown(running).refused_at_s) == (0, None)
