"""Bugs of others that the loop with its real engine must not have, by their numbers in `tests.bug_reports`.

Only the pool, the ledger and the notices are played; what is decided, remembered, counted and carried out is production's.
"""

import asyncio
import gc
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from weakref import ReferenceType

from scaler.act.base import LaunchOutcome, LaunchResult
from scaler.decide import decide
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import LaunchReplica, Memory, Plan
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec
from tests.builders.controller import Running, World, a_controller
from tests.builders.fleet import OFFERING, Script, a_notice, a_worker
from tests.builders.snapshots import a_fleet_spec, a_pool_spec, static_of

NO_PACE: dict[str, Any] = {"cooldown_up_s": 0.0, "cooldown_down_s": 0.0, "lower_after_fresh_s": 0.0}


@dataclass
class Engine(Script):
    """The production engine; keeps what it was shown."""

    def __call__(self, snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> Plan:
        self.seen.append(snapshot)
        return decide(snapshot, spec, memory)


def a_world(folder: Path, replicas: int, **facts: Any) -> World:
    pool = a_pool_spec("pool", OFFERING, **facts.pop("of_pool", {}))
    spec = a_fleet_spec(static_of(replicas), pools=[pool], **(NO_PACE | facts))
    return World(folder, spec=replace(spec, interval_s=10.0), script=Engine())


def workers_come(world: World) -> None:
    """Every instance's worker has registered and is ready; those of lost instances are cleared away."""
    there = set(world.pool.instances)
    world.ledger.records = {
        name: record for name, record in world.ledger.records.items() if record.identity.instance_id in there
    }
    known = {record.identity.instance_id for record in world.ledger.records.values()}
    world.ledger.put(*(a_worker(each, leases=2) for each in there - known))


async def turns(running: Running, count: int) -> None:
    for _ in range(count):
        await running.turn()
        workers_come(running.world)


async def test_bug_057_a_pool_that_chokes_on_one_bad_node_ends_nobody_and_the_loop_goes_on(tmp_path: Path) -> None:
    """ray#14264: one bad node crashed the autoscaler, and the handler of the crash ended every worker."""
    world = a_world(tmp_path, 3)
    observe = world.pool.observe

    async def chokes() -> Any:
        raise KeyError("topology.kubernetes.io/zone")

    async with a_controller(world) as running:
        await turns(running, 3)
        before = dict(world.pool.instances)
        world.pool.observe = chokes  # type: ignore[method-assign]
        await turns(running, 30)
        assert world.pool.instances == before
        assert running.controller.readout.pools_away == {"pool": 30}
        world.pool.observe = observe  # type: ignore[method-assign]
        await turns(running, 2)
        assert running.controller.readout.pools_away == {}
    assert (world.pool.ended, len(world.pool.launches)) == ([], 3)


async def test_bug_058b_an_update_in_the_middle_of_launches_never_passes_the_ceiling(tmp_path: Path) -> None:
    """skypilot#3255: replicas of the old and of the new version were counted apart, and together passed the maximum."""
    world = a_world(tmp_path, 4, max_replicas=4)
    launch, answered = world.pool.launch, asyncio.Event()

    async def slow(command: LaunchReplica) -> LaunchOutcome:
        await answered.wait()
        return await launch(command)

    world.pool.launch = slow  # type: ignore[method-assign]
    async with a_controller(world) as running:
        await running.turn()
        newer = a_fleet_spec(static_of(9), pools=[a_pool_spec("pool", OFFERING)], max_replicas=5, **NO_PACE)
        world.spec, world.digest = replace(newer, interval_s=10.0), "newer"
        await turns(running, 2)
        assert set(running.phases.values()) == {ReplicaPhase.REQUESTED}
        answered.set()
        await turns(running, 5)
    async with a_controller(world) as successor:
        await turns(successor, 5)
        assert len(world.pool.instances) == len(world.pool.tokens) == 5
        assert set(successor.phases.values()) == {ReplicaPhase.READY}


async def test_bug_069_a_dry_offering_is_asked_less_and_less_often_and_found_once_it_gives_again(
    tmp_path: Path,
) -> None:
    """KP#1521, #5850: launches into a zone without capacity, again and again for 70 minutes."""
    world = a_world(tmp_path, 3, of_pool={"refusal_backoff_max_s": 900.0})
    world.pool.refuse = LaunchResult.INSUFFICIENT_CAPACITY
    asked_at_s: list[float] = []
    async with a_controller(world) as running:
        for _ in range(70 * 6):
            before = len(world.pool.launches)
            at_s = world.clock.now_s()
            await running.turn()
            asked_at_s += [at_s] if len(world.pool.launches) > before else []
        waits_s = [later - earlier for earlier, later in pairwise(asked_at_s)]
        assert waits_s == [30, 60, 120, 240, 480, 900, 900, 900]
        world.pool.refuse = None
        await turns(running, 92)
    assert len(world.pool.instances) == 3, "after fifteen minutes at the latest somebody has asked"


def reachable(root: object, but: Iterable[object]) -> int:
    """How many objects hang on `root`, apart from code, `but` and weak references (sqlite3 sweeps its own now and then)."""
    code = (ModuleType, type, FunctionType, BuiltinFunctionType, ReferenceType)
    seen = {id(each) for each in but}
    todo = [root]
    count = 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, code):
            continue
        seen.add(id(each))
        count += 1 + (len(each) if isinstance(each, dict) else 0)  # a dict does not tell of its keys
        todo += gc.get_referents(each)
    return count


def gives_way(world: World, turn: int) -> None:
    """An hour brings everything: losses with and without notice, refusals, a ledger and a pool that are away."""
    by_age = sorted(world.pool.instances, key=lambda each: int(each.removeprefix("i-")))
    noticed = [notice for notice in world.notices.notices if notice.instance_id in world.pool.instances]
    if turn % 3 == 0:
        noticed += [a_notice(oldest, world.clock.now_s()) for oldest in by_age[:1]]
    elif turn % 3 == 1:
        world.pool.instances.pop(by_age[0] if by_age else "", None)
    elif turn % 6 == 2:
        world.pool.instances.pop(by_age[-1] if by_age else "", None)
    world.notices.notices = tuple(noticed[-2:])
    world.pool.refuse = LaunchResult.INSUFFICIENT_CAPACITY if turn % 40 == 7 else None
    world.pool.lose_answers = turn % 7 == 3
    world.ledger.away = turn % 50 == 11
    world.pool.away = turn % 50 == 17


async def test_bug_097_a_controller_holds_after_two_hours_of_churn_what_it_held_after_one(tmp_path: Path) -> None:
    """KP#3209: from 400 MB to 1.8 GB in 22 days, by a cache without a bound."""
    world = a_world(tmp_path, 4)
    held: list[int] = []
    async with a_controller(world) as running:
        played = (world, world.clock, world.ledger, world.pool, world.notices, world.script, world.spec)
        for turn in range(720):
            gives_way(world, turn)
            await turns(running, 1)
            world.script.seen.clear()
            if turn in (359, 719):
                gives_nothing(world)
                await turns(running, 70)
                world.script.seen.clear()
                gc.collect()
                held.append(reachable(running.controller, played))
        assert len(running.journal.decisions(10_000)) <= 1000
    assert len(world.pool.tokens) > 200, "there was churn"
    assert held[1] <= held[0] + 20


def gives_nothing(world: World) -> None:
    """Calm."""
    world.notices.notices = ()
    world.ledger.away = world.pool.away = world.pool.lose_answers = False
    world.pool.refuse = None
