"""Instances of EC2 that die before they were ever ready: while they are still listed as shutting down they are told apart from
those that left, so that an offering on which nothing starts is asked less and less often.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from scaler.act.auto_scaling_group import AutoScalingGroupPool
from scaler.act.base import PoolActor
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import LaunchReplica, TerminateReplica
from scaler.model.snapshot import OfferingView, ReplicaView
from scaler.model.spec import FleetSpec
from tests.builders.controller import Running, World, a_controller
from tests.builders.ec2_pools import Bed, an_offering
from tests.builders.fleet import WHY, a_spec, a_worker


def a_spec_on_ec2() -> FleetSpec:
    spec = a_spec(interval_s=10.0)
    (stage,) = spec.stages
    return replace(spec, stages=(replace(stage, pools=(replace(stage.pools[0], offerings=(an_offering(),)),)),))


@dataclass
class OnEc2(World):
    """A world whose pool is a group in a simulated region."""

    bed: Bed = field(default_factory=Bed)
    spec: FleetSpec = field(default_factory=a_spec_on_ec2)

    def __post_init__(self) -> None:
        self.clock = self.bed.clock
        super().__post_init__()
        self.bed.group()
        self.actor = AutoScalingGroupPool(self.bed.settings(), pool="pool", clock=self.clock)

    async def current(self) -> Mapping[str, PoolActor]:
        """As `ActorSource`."""
        return {"pool": self.actor}


@pytest.fixture
def world(tmp_path: Path) -> OnEc2:
    return OnEc2(tmp_path)


def offering(running: Running) -> OfferingView:
    return running.snapshot.stages[0].pools[0].offerings[0]


async def a_turn(world: OnEc2, running: Running) -> None:
    await running.turn()
    world.bed.sim.advance()


async def next_one(world: OnEc2, running: Running, known: set[str]) -> ReplicaView:
    """The next replica that a list shows: a launch's, or one that the group made in place of another."""
    for _ in range(60):
        await a_turn(world, running)
        for name, view in running.replicas.items():
            if name not in known and view.instance_ids:
                known.add(name)
                return view
    raise AssertionError("nothing came")


async def gone(world: OnEc2, running: Running, view: ReplicaView) -> None:
    """It is listed for a while, and then not any more."""
    for _ in range(60):
        await a_turn(world, running)
        if view.replica_id not in running.phases:
            return
    raise AssertionError("it is listed for ever")


def a_launch() -> LaunchReplica:
    return LaunchReplica(token="t", stage="rollout", pool="pool", offering_id=an_offering().offering_id, reason=WHY)


async def test_those_that_die_before_they_are_ready_are_a_refusal_from_the_third_on(world: OnEc2) -> None:
    world.script.plans, known = [(a_launch(),)], set[str]()
    async with a_controller(world) as running:
        for refusals in (0, 0, 1, 2):
            view = await next_one(world, running, known)
            world.bed.sim.fate.fail(view.instance_ids)
            await a_turn(world, running)
            assert running.phases[view.replica_id] is ReplicaPhase.TERMINATING
            await gone(world, running, view)
            assert offering(running).refusals == refusals
        assert offering(running).refused_because == "4 replicas in a row went before they were ready"


async def test_those_that_die_before_a_list_shows_them_are_told_likewise(world: OnEc2) -> None:
    world.script.plans, known = [(a_launch(),)], set[str]()
    async with a_controller(world) as running:
        await a_turn(world, running)
        for refusals in (0, 0, 1, 2):
            world.bed.sim.fate.fail([one.instance_id for one in world.bed.sim.instances.alive()])
            view = await next_one(world, running, known)
            assert view.phase is ReplicaPhase.TERMINATING
            while not list(world.bed.sim.instances.alive()):
                await a_turn(world, running)
            assert offering(running).refusals == refusals


async def test_those_that_we_end_before_they_are_ready_are_none(world: OnEc2) -> None:
    world.script.plans, known = [(a_launch(),)], set[str]()
    async with a_controller(world) as running:
        for number in range(4):
            view = await next_one(world, running, known)
            end = TerminateReplica(
                stage="rollout",
                pool="pool",
                replica_id=view.replica_id,
                instance_ids=view.instance_ids,
                reason=WHY,
            )
            world.script.plans = [(end,), (), (replace(a_launch(), token=f"t{number}"),)]
            await a_turn(world, running)
            await gone(world, running, view)
        assert (offering(running).refusals, offering(running).reclaiming_at_s) == (0, None)


async def test_those_that_were_ready_are_none(world: OnEc2) -> None:
    world.script.plans, known = [(a_launch(),)], set[str]()
    async with a_controller(world) as running:
        for _ in range(4):
            view = await next_one(world, running, known)
            (instance_id,) = view.instance_ids
            world.ledger.put(a_worker(instance_id))
            await a_turn(world, running)
            assert running.phases[view.replica_id] is ReplicaPhase.READY
            world.bed.sim.fate.fail(view.instance_ids)
            world.ledger.records.clear()
            await gone(world, running, view)
        assert offering(running).refusals == 0
