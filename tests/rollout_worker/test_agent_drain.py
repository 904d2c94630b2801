"""Leaving: signal, notice file and the ledger's mark take the same path, in this process and in real ones."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_worker.agent import EXIT_HANDED_OVER, EXIT_LEDGER_AWAY
from rollout_worker.clock import SystemClock
from rollout_worker.held import UnitPhase
from scaler.ledger.history import EventKind
from scaler.model.interruption import BINDING, InterruptionNotice, NoticeKind
from scaler.model.notice_file import dump_notice
from scaler.model.work import ReleaseReason
from tests.builders.worker import a_unit
from tests.builders.worker_world import WorkerProcess, Workers, World, a_world, an_agent, quick_agent, until

LONG = a_unit(max_tokens=1000)
DRY_RUN = ("steps_per_s=50", "vocab=16")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as world:
        yield world


@pytest.fixture
def workers(world: World) -> Iterator[Workers]:
    workers = Workers(world)
    try:
        yield workers
    finally:
        workers.stop()


def notice(
    world: World, *, in_s: float | None, instance: str = "i-w", kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION
) -> None:
    now_s = SystemClock().now_s()
    deadline_s = None if in_s is None else now_s + in_s
    text = dump_notice(InterruptionNotice(instance_id=instance, kind=kind, noticed_at_s=now_s, deadline_s=deadline_s))
    draft = world.notice_file.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(world.notice_file)


def drain_by_ledger(world: World, in_s: float) -> None:
    assert world.ledger.drain("w", world.ledger.stats().at_s + in_s, "test", 1)


def released(world: World) -> dict[str, object]:
    (release,) = world.history_of(EventKind.RELEASED, LONG.unit_id)
    return release


def assert_all_handed_over(world: World, worker: WorkerProcess) -> None:
    """A token may fall between the decision to leave and the engine's hearing of it."""
    handed_over = released(world)["progress"]
    assert isinstance(handed_over, int)
    assert worker.tokens_generated() - handed_over in (0, 1)


@pytest.mark.parametrize("kind", sorted(BINDING))
async def test_the_notice_file_drains_and_ends_the_worker_whoever_takes_the_instance(
    world: World, kind: NoticeKind
) -> None:
    world.put(LONG)
    async with an_agent(world, permits=9, agent=quick_agent(notice_file=world.notice_file)) as running:
        await running.generated(9)
        notice(world, in_s=0.5, kind=kind)
        assert await running.ended() == EXIT_HANDED_OVER
    assert (released(world)["reason"], released(world)["progress"]) == (ReleaseReason.DRAIN, 9)
    assert world.worker().gone


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="half a file"),
        pytest.param(json.dumps({"instance_id": "i-w"}), id="no notice"),
        pytest.param("", id="an empty file"),
    ],
)
async def test_a_notice_file_that_is_none_changes_nothing_until_it_is_one(world: World, text: str) -> None:
    world.notice_file.write_text(text)
    async with an_agent(world, agent=quick_agent(notice_file=world.notice_file)) as running:
        await until(lambda: world.has_worker() and world.worker().status.ready)
        assert not running.machine.drains.active
        notice(world, in_s=-1.0)
        assert await running.ended() == EXIT_HANDED_OVER


async def test_a_pipe_in_the_notice_files_place_holds_nothing_up(world: World) -> None:
    os.mkfifo(world.notice_file)
    async with an_agent(world, agent=quick_agent(notice_file=world.notice_file)) as running:
        await until(lambda: world.has_worker() and world.worker().status.ready)
        notice(world, in_s=-1.0)
        assert await running.ended() == EXIT_HANDED_OVER


@pytest.mark.parametrize(
    ("instance", "kind"),
    [
        pytest.param("i-other", NoticeKind.SPOT_INTERRUPTION, id="of another instance"),
        pytest.param("i-w", NoticeKind.REBALANCE_RECOMMENDATION, id="only a recommendation"),
    ],
)
async def test_a_notice_that_does_not_bind_is_not_heeded(world: World, instance: str, kind: NoticeKind) -> None:
    notice(world, in_s=-1.0, instance=instance, kind=kind)
    world.put(a_unit())
    async with an_agent(world, agent=quick_agent(notice_file=world.notice_file)) as running:
        running.gate.open()
        await until(lambda: world.committed() == 1)
        assert not running.machine.drains.active


async def test_an_undrain_lets_it_lease_again(world: World) -> None:
    async with an_agent(world) as running:
        world.put(LONG)
        running.gate.allow(3)
        await running.generated(3)
        drain_by_ledger(world, 600.0)
        await until(lambda: running.machine.drains.active)
        world.put(a_unit("more"))
        assert world.ledger.undrain("w", 1) or world.worker().gone
        running.gate.allow(1)
        await until(lambda: "more.0/0" in running.machine.units or running.machine.gone)
        assert not running.machine.gone


async def test_while_the_ledger_is_away_a_signal_drains_when_it_comes_back_in_time(world: World) -> None:
    world.put(LONG)
    async with an_agent(world, permits=9, agent=quick_agent(grace_s=0.1)) as running:
        await running.generated(9)
        running.switch.away = True
        running.agent.drain_on(signal.SIGTERM)
        await until(lambda: bool(running.machine.in_phase(UnitPhase.TO_RELEASE)))
        assert not running.task.done()
        running.switch.away = False
        assert await running.ended() == EXIT_HANDED_OVER
    assert released(world)["progress"] == 9


async def test_a_ledger_that_stays_away_ends_it_at_the_deadline_and_the_exit_code_says_so(world: World) -> None:
    world.put(LONG)
    async with an_agent(world, permits=9, agent=quick_agent(grace_s=0.2)) as running:
        running.machine.drains.last_try_s = 0.0
        await running.generated(9)
        running.switch.away = True
        running.agent.drain_on(signal.SIGTERM)
        assert await running.ended() == EXIT_LEDGER_AWAY


# In real processes.


async def test_a_process_told_by_sigterm_hands_over_all_its_tokens_and_ends_with_0(
    world: World, workers: Workers
) -> None:
    world.put(LONG)
    worker = workers.start("w", "--grace-s", "1", options=DRY_RUN)
    await until(lambda: worker.tokens_generated() >= 10)
    worker.send(signal.SIGTERM)
    assert worker.ended() == EXIT_HANDED_OVER
    assert_all_handed_over(world, worker)
    assert world.worker().gone


async def test_a_process_told_by_its_notice_file_hands_over_all_its_tokens_and_ends_with_0(
    world: World, workers: Workers
) -> None:
    world.put(LONG)
    worker = workers.start("w", options=DRY_RUN)
    await until(lambda: worker.tokens_generated() >= 10)
    notice(world, in_s=1.0)
    assert worker.ended() == EXIT_HANDED_OVER
    assert_all_handed_over(world, worker)


async def test_a_process_told_by_the_ledger_hands_over_and_stays_idle_until_it_is_stopped(
    world: World, workers: Workers
) -> None:
    world.put(LONG)
    worker = workers.start("w", options=DRY_RUN)
    await until(lambda: worker.tokens_generated() >= 10)
    drain_by_ledger(world, 1.0)
    await until(lambda: world.worker().gone)
    assert_all_handed_over(world, worker)
    assert worker.process.poll() is None
    worker.send(signal.SIGTERM)
    assert worker.ended() == EXIT_HANDED_OVER


async def test_what_fits_before_the_deadline_is_finished(world: World, workers: Workers) -> None:
    unit = a_unit(max_tokens=30)
    world.put(unit)
    worker = workers.start("w", "--grace-s", "30", options=DRY_RUN)
    await until(lambda: worker.tokens_generated() >= 5)
    worker.send(signal.SIGTERM)
    assert worker.ended() == EXIT_HANDED_OVER
    assert world.committed() == 1
