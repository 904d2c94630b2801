"""A launch token starts one process, whoever is killed when: real launchers, really killed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from scaler.act.base import InstanceState, LaunchResult
from scaler.localcloud import launching
from scaler.localcloud.state import write_json
from scaler.model.clock import Clock
from tests.builders.local import Site, a_launch, eventually

LAUNCHER = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from pathlib import Path
    from scaler.localcloud import launching
    from scaler.localcloud.state import StateDir
    from tests.builders.local import Site, a_launch

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    def die_after(function):
        return lambda *args, **kwargs: (function(*args, **kwargs), die())

    def arrange(step):
        if step == "before anything is written":
            launching.write_json = die
        elif step == "after the launch is written":
            launching._spawn = die
        elif step == "after the process is started":
            launching._spawn = die_after(launching._spawn)
        elif step == "while the process has not said who it is":
            launching._ANNOUNCE_THEN_EXEC = "sleep 0.5; " + launching._ANNOUNCE_THEN_EXEC
            launching._spawn = die_after(launching._spawn)
        elif step == "before the record is written":
            StateDir.write_record = die
        elif step == "after the record is written":
            StateDir.write_record = die_after(StateDir.write_record)

    async def launch_all(pool, tokens):
        for token in tokens:
            await pool.launch(a_launch(token))

    root, step, *tokens = sys.argv[1:]
    arrange(step)
    from scaler.runtime.clock import SystemClock
    asyncio.run(launch_all(Site(Path(root)).pool(clock=SystemClock()), tokens))
    """
)
STEPS = {
    "before anything is written": LaunchResult.LAUNCHED,
    "after the launch is written": LaunchResult.LAUNCHED,
    "after the process is started": LaunchResult.ALREADY,
    "while the process has not said who it is": LaunchResult.ALREADY,
    "before the record is written": LaunchResult.ALREADY,
    "after the record is written": LaunchResult.ALREADY,
}


def a_launcher(site: Site, step: str, *tokens: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", LAUNCHER, str(site.root), step, *tokens], cwd=Path.cwd())


@pytest.mark.parametrize(("step", "replayed"), STEPS.items(), ids=STEPS)
async def test_a_launch_whose_controller_was_killed_is_carried_out_once(
    site: Site, step: str, replayed: LaunchResult
) -> None:
    with a_launcher(site, step, "t-1") as launcher:
        assert launcher.wait() == -signal.SIGKILL
    pool = site.pool()
    outcome = await pool.launch(a_launch("t-1"))
    assert outcome.result is replayed
    await eventually(site.started)
    assert site.started() == ["t-1"]
    (instance,) = (await pool.observe()).instances
    assert (instance.instance_id, instance.state) == (outcome.instance_id, InstanceState.RUNNING)
    assert site.processes() == {site.record(outcome.instance_id).pid}


async def test_a_new_controller_finds_what_was_started_and_not_recorded_by_looking(site: Site) -> None:
    with a_launcher(site, "after the process is started", "t-1") as launcher:
        launcher.wait()
    pool = site.pool()
    await eventually(site.started)
    (instance,) = (await pool.observe()).instances
    assert instance.launch_token == "t-1"
    assert site.processes() == {site.record(instance.instance_id).pid}


async def test_a_launch_that_started_nothing_is_void(site: Site) -> None:
    with a_launcher(site, "after the launch is written", "t-1") as launcher:
        launcher.wait()
    assert list(site.state.launches.iterdir())
    assert (await site.pool().observe()).instances == ()
    assert not list(site.state.launches.iterdir())


async def test_while_another_launches_its_launch_is_pending(site: Site) -> None:
    launch = launching.new_launch("spot", "t-1", "zone-a", 5.0)
    lock = launching.try_lock(site.state)
    assert lock is not None
    write_json(site.state.launches / f"{launch.instance_id}.json", asdict(launch))
    (instance,) = (await site.pool().observe()).instances
    assert (instance.state, instance.launched_at_s) == (InstanceState.PENDING, 5.0)
    os.close(lock)


@pytest.mark.parametrize("seed", range(3))
async def test_killed_at_a_random_moment_and_replayed_every_token_has_run_once(
    site: Site, real_clock: Clock, seed: int
) -> None:
    tokens = [f"t-{number}" for number in range(30)]
    stop_at = random.Random(seed).randrange(1, 25)
    with a_launcher(site, "never", *tokens) as launcher:
        await eventually(lambda: len(site.started()) >= stop_at)
        launcher.kill()
    pool = site.pool(clock=real_clock)
    results = Counter([(await pool.launch(a_launch(token))).result for token in tokens])
    assert set(results) <= {LaunchResult.LAUNCHED, LaunchResult.ALREADY}
    assert results[LaunchResult.ALREADY] >= stop_at
    await eventually(lambda: len(site.started()) >= len(tokens))
    assert Counter(site.started()) == dict.fromkeys(tokens, 1)
    assert site.processes() == {record.pid for record in site.state.live_instances()}


async def test_two_controllers_that_launch_the_same_tokens_at_once_start_each_once(
    site: Site, real_clock: Clock
) -> None:
    pools = [site.pool(clock=real_clock) for _ in range(4)]
    tokens = [f"t-{number}" for number in range(5)]
    outcomes = await asyncio.gather(*(pool.launch(a_launch(token)) for token in tokens for pool in pools))
    assert Counter(outcome.result for outcome in outcomes) == {LaunchResult.LAUNCHED: 5, LaunchResult.ALREADY: 15}
    await eventually(lambda: len(site.started()) >= 5)
    assert Counter(site.started()) == dict.fromkeys(tokens, 1)


def test_the_same_token_means_another_instance_in_another_pool() -> None:
    ids = {launching.new_launch(pool, token, "z", 0.0).instance_id for pool in ("a", "b") for token in ("1", "2")}
    assert len(ids) == 4
