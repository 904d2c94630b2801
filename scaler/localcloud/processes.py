"""Processes by identity: a pid together with its start time, never a pid alone, because pids are used again.

An instance leads its own session and process group, both numbered like its pid. The kernel keeps that number taken while
any member lives, so a group may be signalled safely as long as its leader has been seen alive, or is an unreaped child.
A zombie is dead. Linux only: everything is read from /proc.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TOKEN_VARIABLE = "HEADRACE_LAUNCH_TOKEN"
"""Every process of an instance inherits its launch token under this name."""

_SESSION_FIELD = 3
_START_TICKS_FIELD = 19
"""Places after the command name in /proc/<pid>/stat (proc_pid_stat(5) counts them from 3)."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What /proc/<pid>/stat says of a process. `start_ticks` counts clock ticks since boot."""

    pid: int
    state: str
    session: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Neither a zombie nor being removed."""
        return self.state not in "ZXx"


def parse_stat(line: str) -> ProcessStat | None:
    """The process in a line of /proc/<pid>/stat; None where the line is not whole."""
    # The command name may hold spaces and brackets: the last bracket ends it.
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    try:
        return ProcessStat(
            pid=int(head.split(" ", 1)[0]),
            state=fields[0],
            session=int(fields[_SESSION_FIELD]),
            start_ticks=int(fields[_START_TICKS_FIELD]),
        )
    except (ValueError, IndexError):
        return None


def stat_of(pid: int) -> ProcessStat | None:
    """The process that has this pid now, zombies included; None where there is none."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
    except OSError:
        return None


def is_alive(pid: int, start_ticks: int) -> bool:
    """Whether that very process still runs."""
    stat = stat_of(pid)
    return stat is not None and stat.alive and stat.start_ticks == start_ticks


def signal_group(pid: int, start_ticks: int, signum: signal.Signals) -> bool:
    """Signal the group that this process leads, if it is still that very process; says whether it was."""
    if not is_alive(pid, start_ticks):
        return False
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    return True


def reap(children: set[int]) -> None:
    """Collect those of our own children that ended, after ending what is left of their groups; never waits.

    Only these pids are collected: another's children (a subprocess that somebody waits for) are not touched.
    """
    for pid in tuple(children):
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            # Unreaped, the leader keeps its number taken: the group cannot be a stranger's.
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ChildProcessError, ProcessLookupError):
            pass
        children.discard(pid)


def kill_leftovers(session: int, launch_token: str) -> int:
    """End the processes of a session whose leader is gone; says how many.

    A stranger may lead a session of that number by now, so each process must carry the launch token as well. One that
    overwrote its environment is not found.
    """
    mark = f"{TOKEN_VARIABLE}={launch_token}".encode()
    killed = 0
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            killed += _kill_if_marked(int(entry.name), session, mark)
    return killed


def _kill_if_marked(pid: int, session: int, mark: bytes) -> bool:
    stat = stat_of(pid)
    if stat is None or not stat.alive or stat.session != session:
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Read after opening the handle: what is signalled is what was read.
        if mark not in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
