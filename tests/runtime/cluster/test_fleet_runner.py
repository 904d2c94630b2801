"""A fleet's life beside others: what ends it, what ends everybody, and what it waits for before it looks at anything."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from scaler.act.sharing import Places
from scaler.kube.contract import CONFIG_MAPS, ROLLOUT_FLEETS, NotFound
from scaler.kube.facts import PodIndex
from scaler.ledger.contract import StaleEpoch
from scaler.runtime.cluster.fleet import FleetRunner
from scaler.runtime.cluster.kube_journal import Succeeded
from scaler.runtime.cluster.notice_hub import NoticeHub
from scaler.runtime.cluster.owners import Owners
from scaler.runtime.cluster.shared import Muster, Shared
from scaler.runtime.fleet_source import FleetKey
from scaler.runtime.notice_watch import NoticeWatch
from tests.builders.clock import FakeClock
from tests.builders.fake_kube import FakeKube
from tests.builders.nodes import Nodes
from tests.builders.rollout_fleets import a_cluster, an_object, the_object

ELSEWHERE = StaleEpoch("a later epoch is in the ledger")


def shared(kube: FakeKube, clock: FakeClock, folder: Path, nodes: Nodes | None = None, *, leads: bool = True) -> Shared:
    found = nodes or Nodes()
    return Shared(
        clock=clock,
        kube=kube,
        aws=None,
        nodes=found,
        pods=cast("PodIndex", found),
        places=Places(),
        hub=NoticeHub(NoticeWatch({}, clock), clock),
        owners=Owners(found, clock),
        muster=Muster(clock),
        leading=lambda: leads,
        state_dir=folder,
    )


class Scripted(FleetRunner):
    """One whose runs end as told; the last one goes on for ever."""

    def script(self, *ends: Exception) -> "Scripted":
        self.ends = list(ends)
        self.began_at_s: list[float] = []
        return self

    async def _once(self) -> None:
        self.began_at_s.append(self._shared.clock.monotonic_s())
        if not self.ends:
            await asyncio.Event().wait()
        raise ExceptionGroup("of its tasks", [self.ends.pop(0)])


def a_runner(kube: FakeKube, clock: FakeClock, folder: Path, *, leads: bool = True) -> Scripted:
    key = FleetKey(uid="u", namespace="rl", name="demo")
    return Scripted(shared(kube, clock, folder, leads=leads), key, epoch=7, identity="me")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize(
    "end", [RuntimeError("a fault of ours"), NotFound("some object of its own", status=404), ELSEWHERE], ids=repr
)
async def test_a_fleet_that_breaks_is_begun_anew_and_nobody_else_hears_of_it(
    clock: FakeClock, tmp_path: Path, end: Exception
) -> None:
    runner = a_runner(FakeKube(clock), clock, tmp_path).script(end, end)
    running = asyncio.create_task(runner.run())
    await clock.advance(30.0)
    begun_s = [at_s - runner.began_at_s[0] for at_s in runner.began_at_s]
    assert begun_s == [0.0, 2.0, 6.0], "and longer from time to time"
    running.cancel()


def later_leader(_: FakeClock) -> tuple[Exception, bool]:
    return Succeeded("a later leader has written"), True


def lost_lease(_: FakeClock) -> tuple[Exception, bool]:
    return ELSEWHERE, False


@pytest.mark.parametrize("case", [later_leader, lost_lease])
async def test_a_later_leader_of_this_cluster_is_everybodys(
    clock: FakeClock, tmp_path: Path, case: Callable[[FakeClock], tuple[Exception, bool]]
) -> None:
    end, leads = case(clock)
    with pytest.raises(ExceptionGroup) as caught:
        await a_runner(FakeKube(clock), clock, tmp_path, leads=leads).script(end).run()
    assert caught.value.subgroup(type(end)) is not None


async def test_a_ledger_that_knows_a_later_epoch_costs_a_new_start_only_now_and_then(
    clock: FakeClock, tmp_path: Path
) -> None:
    """A fleet that came from another cluster is right with a new epoch; one that has two controllers never is."""
    runner = a_runner(FakeKube(clock), clock, tmp_path).script(*[ELSEWHERE] * 100)
    running = asyncio.create_task(runner.run())
    await clock.advance(590.0)
    assert not running.done()
    await clock.advance(90.0)
    with pytest.raises(ExceptionGroup):
        await running


async def test_a_fleet_that_is_deleted_while_it_rests_is_over_at_once(clock: FakeClock, tmp_path: Path) -> None:
    runner = a_runner(FakeKube(clock), clock, tmp_path).script(RuntimeError("x"))
    running = asyncio.create_task(runner.run())
    await clock.settle()
    runner.stop()
    await clock.settle()
    assert running.done()


async def test_nothing_is_begun_before_nodes_and_pods_are_listed(clock: FakeClock, tmp_path: Path) -> None:
    """Without nodes nobody knows whose an instance is, nor which are a trainer's."""
    kube, nodes = await a_cluster(clock, an_object()), Nodes(at_s=None)
    key = FleetKey(uid=(await the_object(kube))["metadata"]["uid"], namespace="rl", name="demo")
    runner = FleetRunner(shared(kube, clock, tmp_path, nodes), key, epoch=7, identity="me")
    running = asyncio.create_task(runner.run())
    await clock.advance(30.0)
    assert (await kube.list(CONFIG_MAPS)).items == ()
    nodes.at_s = clock.now_s()
    await clock.advance(1.0)
    assert [body["metadata"]["name"] for body in (await kube.list(CONFIG_MAPS)).items] == ["headrace-journal-demo"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_another_object_of_its_name_is_another_fleet(clock: FakeClock, tmp_path: Path) -> None:
    kube = await a_cluster(clock, an_object())
    old = FleetKey(uid="gone", namespace="rl", name="demo")
    await FleetRunner(shared(kube, clock, tmp_path), old, epoch=7, identity="me").run()
    assert (await kube.list(CONFIG_MAPS)).items == ()
    assert len((await kube.list(ROLLOUT_FLEETS)).items) == 1


async def test_fleets_that_begin_together_wait_for_each_other_and_not_for_ever(clock: FakeClock) -> None:
    muster = Muster(clock)
    for fleet in ("a", "b"):
        muster.expect(fleet)
    muster.here("a")
    waiting = asyncio.create_task(muster.complete())
    await clock.settle()
    assert not waiting.done()
    muster.here("b")
    await clock.settle()
    assert waiting.done()
    muster.expect("broken")
    late = asyncio.create_task(muster.complete())
    await clock.advance(10.0)
    assert late.done()
