"""A worker that learns its instance from the node agent's file."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_worker.agent import EXIT_HANDED_OVER
from rollout_worker.instance import WAIT_S, named_instance
from scaler.model.instance_file import InstanceFile, dump_instance
from tests.builders.clock import FakeClock
from tests.builders.worker_world import Workers, World, a_world, until

FILE = dump_instance(InstanceFile(instance_id="i-w", instance_type="g", zone="z", life_cycle="spot"))


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


async def test_it_waits_until_the_file_is_there_and_whole(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "instance.json"
    waiting = asyncio.ensure_future(named_instance(path, clock))
    await clock.advance(5.0)
    path.write_text(FILE[:10])
    await clock.advance(5.0)
    assert not waiting.done()
    path.write_text(FILE)
    await clock.advance(1.0)
    assert await waiting == "i-w"


@pytest.mark.parametrize("text", [None, "", "{}", "[]", FILE.replace("i-w", "")])
async def test_after_a_minute_it_says_what_is_wrong(tmp_path: Path, text: str | None) -> None:
    clock, path = FakeClock(), tmp_path / "instance.json"
    if text is not None:
        path.write_text(text)
    waiting = asyncio.ensure_future(named_instance(path, clock))
    await clock.advance(WAIT_S + 1.0)
    with pytest.raises(ValueError, match="instance"):
        await waiting


async def test_a_file_that_is_too_large_is_told_with_its_bound(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "instance.json"
    path.write_text(" " * 70_000 + FILE)
    waiting = asyncio.ensure_future(named_instance(path, clock))
    await clock.advance(WAIT_S + 1.0)
    with pytest.raises(ValueError, match="larger than 64 KiB"):
        await waiting


async def test_a_pipe_is_not_waited_for_longer_than_a_file(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "instance.json"
    os.mkfifo(path)
    waiting = asyncio.ensure_future(named_instance(path, clock))
    await clock.advance(WAIT_S + 1.0)
    with pytest.raises(ValueError, match="is no regular file"):
        await waiting


async def test_a_process_registers_under_the_instance_that_the_file_names(world: World, workers: Workers) -> None:
    path = world.root / "instance.json"
    worker = workers.start("w", instance_file=path)
    path.write_text(FILE.replace("i-w", "i-named"))
    await until(world.has_worker)
    assert world.worker().identity.instance_id == "i-named"
    worker.process.terminate()
    assert worker.ended() == EXIT_HANDED_OVER
