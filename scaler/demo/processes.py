"""The demo's own processes: started together, watched, and gone when the demo is gone.

Each runs in a session of its own, so that Ctrl-C reaches the demo alone and the demo ends them in the right order. On
Linux the kernel tells each to stop if the demo is killed outright.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """A started process and where its output goes."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def last_words(self, lines: int = 15) -> str:
        """The end of its log, for a person who has to find out what went wrong."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start(name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Child:
    """Start a process whose output goes to `<folder>/<name>.log`."""
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            # Safe as long as the demo starts no thread before its processes.
            preexec_fn=_stop_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    return Child(name, process, log)


def stop(child: Child, patience_s: float) -> int:
    """SIGTERM, then SIGKILL after `patience_s`; both to the whole group. Returns the exit code."""
    if child.running:
        _signal_group(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.process.wait(patience_s)
    _signal_group(child, signal.SIGKILL)
    return child.process.wait()


def _signal_group(child: Child, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, number)


def _stop_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
