"""`python -m tests.cluster up | status | down`: a control plane to try things on, apart from any test.

`up` leaves a supervisor behind that owns the processes, starts again what ends (as a kubelet does with static pods), and
on `down` (SIGTERM) stops everything and removes the folder, `out/cluster` by default. Each command can be repeated.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cluster.build import Unavailable, build
from tests.cluster.control_plane import ControlPlane
from tests.cluster.folder import owner_of
from tests.cluster.process import Ended
from tests.cluster.programs import ALWAYS, PARTS, named

ROOT = Path(__file__).parents[2]
_READY = "ready"
_LOOK_EVERY_S = 0.1
_GONE_WITHIN_S = 30.0
_REVIVE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line says."""

    folder: Path
    parts: Sequence[str]

    @property
    def log(self) -> Path:
        """What the supervisor says; beside the folder, which the control plane makes itself."""
        return self.folder.with_suffix(".log")


def up(wanted: Wanted) -> int:
    """Start, unless it runs; say how to reach it."""
    if owner_of(wanted.folder) is None:
        build(list(dict.fromkeys([*ALWAYS, *map(named, wanted.parts)])))
        shutil.rmtree(wanted.folder, ignore_errors=True)
        supervisor = _start_supervisor(wanted)
        while not (wanted.folder / _READY).exists():
            if supervisor.poll() is not None:
                _say(f"it did not start: {wanted.log.read_text()[-3000:]}")
                return 1
            time.sleep(_LOOK_EVERY_S)
    return status(wanted)


def _start_supervisor(wanted: Wanted) -> subprocess.Popen[bytes]:
    wanted.log.parent.mkdir(parents=True, exist_ok=True)
    with wanted.log.open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cluster", "supervise", "--folder", str(wanted.folder), *wanted.parts],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def supervise(wanted: Wanted) -> int:
    """Own the processes until SIGTERM."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    with ControlPlane(wanted.parts, folder=wanted.folder) as plane:
        (wanted.folder / _READY).touch()
        while not told.wait(_REVIVE_EVERY_S):
            _revive(plane)
    return 0


def _revive(plane: ControlPlane) -> None:
    for name in plane.parts:
        if not plane.running(name):
            _say(f"{name} ended and is started again")
            with suppress(Ended):  # tried again at the next look
                plane.restart(name)


def down(wanted: Wanted) -> int:
    """Stop it, if it runs, and leave nothing."""
    pid = owner_of(wanted.folder)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(_GONE_WITHIN_S)
    shutil.rmtree(wanted.folder, ignore_errors=True)
    wanted.log.unlink(missing_ok=True)
    return 0


def status(wanted: Wanted) -> int:
    """Whether it runs, and how to reach it; exit code 1 where it does not."""
    pid = owner_of(wanted.folder)
    if pid is None:
        _say("not running")
        return 1
    for child in psutil.Process(pid).children():
        _say(f"# {child.name()}: process {child.pid}, {child.memory_info().rss >> 20} MiB")
    kubeconfig = wanted.folder / "kubeconfig"
    _say(f"# kubeconfig: {kubeconfig}\nexport KUBECONFIG={kubeconfig}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


_COMMANDS: dict[str, Callable[[Wanted], int]] = {"up": up, "status": status, "down": down, "supervise": supervise}


def main() -> int:
    """Run the one command that is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to start beside the API server; all by default")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "cluster")
    given = parser.parse_intermixed_args()
    try:
        return _COMMANDS[given.command](Wanted(folder=given.folder.absolute(), parts=given.parts or [*PARTS]))
    except Unavailable as reason:
        _say(f"no control plane: {reason}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
