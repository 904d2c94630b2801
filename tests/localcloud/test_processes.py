import asyncio
import os
import signal
import subprocess
import sys

import pytest

from scaler.localcloud.processes import is_alive, parse_stat, reap, signal_group, stat_of
from tests.builders.local import FAMILY, Site, a_launch, eventually, launched


def test_a_process_is_alive_under_its_pid_and_start_time_only() -> None:
    me = stat_of(os.getpid())
    assert me is not None
    assert is_alive(me.pid, me.start_ticks)
    assert not is_alive(me.pid, me.start_ticks - 1), "the same pid with another start time is another process"
    assert not is_alive(2**22 + 1, me.start_ticks), "no such pid"


def test_a_zombie_counts_as_dead_and_is_not_signalled() -> None:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as child:
        stat = stat_of(child.pid)
        assert stat is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert stat_of(child.pid) is not None, "its entry is still there"
        assert not is_alive(child.pid, stat.start_ticks)
        assert not signal_group(child.pid, stat.start_ticks, signal.SIGKILL)


@pytest.mark.parametrize("line", ["", "12 (sh", "12 (sh) S 1 2", "x (sh) S 1 2 3", "nonsense"])
def test_a_line_that_is_not_whole_is_no_process(line: str) -> None:
    assert parse_stat(line) is None


def test_a_command_name_may_hold_brackets_and_spaces() -> None:
    line = "7 (a) b (c)) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0"
    stat = parse_stat(line)
    assert stat is not None
    assert (stat.pid, stat.state, stat.session, stat.start_ticks) == (7, "S", 7, 4242)


def test_reaping_takes_our_children_only_and_leaves_other_peoples() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as theirs:
        os.waitid(os.P_PID, theirs.pid, os.WEXITED | os.WNOWAIT)
        ours = os.posix_spawnp("sh", ["sh", "-c", "exit 3"], os.environ, setsid=True)
        os.waitid(os.P_PID, ours, os.WEXITED | os.WNOWAIT)
        children = {ours}
        reap(children)
        assert children == set()
        assert stat_of(ours) is None
        assert theirs.wait() == 0, "its exit status was not taken away"


async def test_when_a_leader_dies_what_it_started_goes_too(site: Site) -> None:
    pool = site.pool(FAMILY)
    (record,) = await site.running(pool, "t-1")
    await eventually(lambda: len(site.processes()) == 2)
    os.kill(record.pid, signal.SIGKILL)
    await eventually(lambda: not record.alive)
    await pool.observe()
    await eventually(lambda: not site.processes())


async def test_what_hid_its_environment_goes_with_its_leader_too(site: Site) -> None:
    pool = site.pool(("sh", "-c", 'env -i sleep 300 & echo $! >"$HEADRACE_TEST_DIR/child"; wait'))
    record = site.record(launched(await pool.launch(a_launch("t-1"))))
    written = site.root / "child"
    await eventually(lambda: written.exists() and written.read_text())
    child = stat_of(int(written.read_text()))
    assert child is not None
    os.kill(record.pid, signal.SIGKILL)
    await eventually(lambda: not record.alive)
    await pool.observe()
    await eventually(lambda: not is_alive(child.pid, child.start_ticks))


async def test_a_controller_that_adopted_a_dead_instance_ends_its_leftovers(site: Site) -> None:
    (record,) = await site.running(site.pool(FAMILY), "t-1")
    await eventually(lambda: len(site.processes()) == 2)
    os.kill(record.pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, record.pid, 0)  # as init does once its parent is gone
    await site.pool().observe()
    await eventually(lambda: not site.processes())
