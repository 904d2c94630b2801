"""One child process: started, killed, paused, started again; never outlives its parent.

Children are told by `setpriv` (util-linux) to die with the thread that started them. That thread is the spawner's own, so
that a child lives as long as its spawner, whichever thread asked for it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_SETPRIV = "setpriv"
_LOOK_EVERY_S = 0.002
_LAST_WORDS_CHARS = 2000


class Ended(Exception):
    """A process ended that should not have."""


class Spawner:
    """The thread that all children are born of."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

    def spawn(self, args: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a child in a session of its own that dies with this spawner."""
        return self._thread.submit(self._spawn, args, env, log).result()

    def _spawn(self, args: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            child = subprocess.Popen(
                [_SETPRIV, "--pdeathsig", "KILL", "--", *args],
                env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        while child.poll() is None and psutil.Process(child.pid).name() == _SETPRIV:
            time.sleep(_LOOK_EVERY_S)  # until then it would not die with us
        return child

    def close(self) -> None:
        """End the thread, and with it whatever children are left."""
        self._thread.shutdown()


@dataclass(slots=True, kw_only=True)
class Child:
    """A named program that can be started again and again with the same arguments."""

    name: str
    args: Sequence[str]
    env: Mapping[str, str]
    log: Path
    spawner: Spawner
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """Its process id.

        Raises:
            Ended: it does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise Ended(f"{self.name} does not run: {self.last_words()}")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is such a process, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, once it does not run."""
        self.kill()
        self._process = self.spawner.spawn(self.args, self.env, self.log)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it answering (SIGSTOP), and wait until it has stopped: on a busy machine its threads run on for a moment."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it answer again (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_LAST_WORDS_CHARS:] if self.log.exists() else ""
