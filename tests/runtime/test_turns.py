"""What a turn tells of nodes and notices: by who acts, and only once it cannot be lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaler.model.plan import Plan
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec
from scaler.runtime.journal import Committed, Journal, Turn
from tests.builders.controller import World, a_controller
from tests.builders.fleet import a_drain, a_launch, a_notice, a_spec, a_worker, an_instance, worker_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class SpyMarks:
    """`Marks` that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def want(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan) -> None:
        self.told.append("want")

    def rest(self) -> None:
        self.told.append("rest")

    def recorded(self, snapshot: Snapshot, *, durable: bool) -> frozenset[str]:
        return frozenset({"durable"} if durable else {"not durable"})


@pytest.mark.parametrize(
    ("spec", "leads", "told"),
    [
        pytest.param(a_spec(), True, "want", id="acting"),
        pytest.param(a_spec(paused=True), True, "want", id="paused: noticed nodes are marked"),
        pytest.param(a_spec(dry_run=True), True, "rest", id="a dry run touches no node"),
        pytest.param(a_spec(), False, "rest", id="another leads"),
    ],
)
async def test_nodes_are_marked_by_who_acts_and_by_nobody_else(
    world: World, spec: FleetSpec, leads: bool, told: str
) -> None:
    marks = SpyMarks()
    world.spec = spec
    async with a_controller(world) as running:
        running.controller._parts = replace(running.controller._parts, marks=marks, may_act=lambda: leads)
        await running.turn()
        world.ledger.away = True
        await running.turn()
    assert marks.told == [told, told]


class UnwrittenTurns:
    """A journal whose turns are not durable."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.durable = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, turn: Turn) -> Committed:
        return replace(await self._journal.commit(turn), durable=self.durable)


async def test_what_is_not_durable_is_not_launched_and_its_notice_not_let_go(world: World) -> None:
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    notice = a_notice("i", world.clock.now_s())
    world.notices.notices = (notice,)
    world.script.plans = [(a_launch("t1"), a_drain("i", world.clock.now_s() + 120, notice=notice))]
    async with a_controller(world) as running:
        journal = UnwrittenTurns(running.journal)
        running.controller._parts = replace(running.controller._parts, journal=journal)
        await running.turn()
        await running.turn()
        assert world.pool.launches == []
        assert world.ledger.records[worker_of("i")].drain is not None, "a drain waits for no journal"
        assert world.notices.let_go == frozenset()
        journal.durable = True
        await running.turn()
        assert world.pool.launches == ["t1"]
        assert world.notices.let_go == {"i"}
