"""The worker as a process: kill -9, exit codes, what it imports, and the torch engine behind the real command line."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rollout_worker.__main__ import main
from rollout_worker.clock import SystemClock
from rollout_worker.engines.registry import open_engine
from scaler.ledger.history import EventKind
from tests.builders.engines import a_request, collect, load, opened, publish_model, tokens_of
from tests.builders.worker import a_unit
from tests.builders.worker_world import Workers, World, a_world, an_agent, until

FLAGS = ["--ledger", "x://", "--job", "j", "--worker", "w", "--replica-id", "r", "--instance-id", "i", "--weights", "."]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as world:
        yield world


@pytest.fixture
def workers(world: World) -> Iterator[Workers]:
    with all_stopped(Workers(world)) as workers:
        yield workers


@contextmanager
def all_stopped(workers: Workers) -> Iterator[Workers]:
    try:
        yield workers
    finally:
        workers.stop()


async def test_after_kill_9_the_next_worker_continues_from_the_last_progress(world: World, workers: Workers) -> None:
    unit = a_unit(max_tokens=60)
    world.put(unit)
    options = ("steps_per_s=50", "vocab=16")
    first = workers.start("w", "--lease-ttl", "1", "--publish-tokens", "4", options=options)
    await until(lambda: first.tokens_generated() >= 20)
    first.send(signal.SIGKILL)
    first.ended()
    second = workers.start("next", options=("steps_per_s=0", "vocab=16"))
    await until(lambda: world.committed() == 1)
    (lease,) = world.history_of(EventKind.LEASED, unit.unit_id)[1:]
    salvaged = lease["progress"]
    assert isinstance(salvaged, int)
    assert salvaged >= 8
    wasted = first.tokens_generated() + second.tokens_generated() - unit.max_tokens
    assert wasted == first.tokens_generated() - salvaged


async def test_the_torch_engine_behind_the_command_line_gives_the_same_tokens_after_a_kill(tmp_path: Path) -> None:
    unit = a_unit(max_tokens=50)
    with a_world(tmp_path, version=None) as world, all_stopped(Workers(world)) as workers:
        folder = publish_model(world.weights, 1)
        world.put(unit)
        first = workers.start("w", "--lease-ttl", "1", engine="torch", options=("steps_per_s=40",))
        await until(lambda: first.tokens_generated() >= 20)
        first.send(signal.SIGKILL)
        engine = open_engine("torch", {}, SystemClock())
        async with an_agent(world, worker="next", engine=lambda _gate: engine):
            await until(lambda: world.committed() == 1)
        (sample,) = world.samples()[0].samples
        assert world.history_of(EventKind.LEASED, unit.unit_id)[1]["progress"]
    async with opened("torch") as undisturbed:
        await load(undisturbed, folder)
        request = replace(a_request(seed=unit.seed, max_tokens=50), prompt=unit.prompt)
        assert sample.tokens == tokens_of(await collect(undisturbed, request))


def test_a_worker_starts_without_torch() -> None:
    code = "import sys, rollout_worker.__main__, rollout_worker.engines.torch_moe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path.cwd()).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--engine", "torch", "--engine-option", "colour=red"], "unknown engine option", id="an option"),
        pytest.param(["--engine", "torch", "--token-counter", "/nowhere/at/all"], "/nowhere/at/all", id="a path"),
    ],
)
def test_wrong_input_is_one_readable_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*FLAGS, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--engine", "steam"], id="an unknown engine"),
        pytest.param(["--engine", "torch", "--engine-option", "slots"], id="half an option"),
        pytest.param(["--engine", "torch", "--heartbeat-s", "3"], id="too slow a heartbeat"),
        pytest.param(["--engine", "torch", "--concurrency", "0"], id="no concurrency"),
        pytest.param(["--engine", "torch", "--lease-ttl", "-1"], id="a negative time"),
    ],
)
def test_a_wrong_flag_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*FLAGS, *arguments])
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


async def test_a_ledger_that_may_not_be_used_is_exit_code_2(world: World, workers: Workers) -> None:
    worker = workers.start("w", "--ledger", "steam:///nowhere")
    assert worker.ended() == 2
    assert "steam" in worker.log.read_text()
