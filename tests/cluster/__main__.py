"""`python -m tests.cluster up | status | down`: a control plane to try things on, apart from any test.

`up` leaves a supervisor behind that owns the processes, starts again what ends (as a kubelet does with static pods), and
on `down` (SIGTERM) stops everything and removes the folder, `out/cluster`. Each command can be repeated.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.cluster.build import PROGRAMS, Unavailable, build
from tests.cluster.control_plane import ControlPlane
from tests.cluster.folder import owner_of
from tests.cluster.process import Ended

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "out" / "cluster"
LOG = ROOT / "out" / "cluster.log"
_READY = "ready"
_LOOK_EVERY_S = 0.1
_GONE_WITHIN_S = 30.0
_REVIVE_EVERY_S = 1.0


def up() -> int:
    """Start, unless it runs; say how to reach it."""
    if owner_of(FOLDER) is None:
        build(PROGRAMS)
        shutil.rmtree(FOLDER, ignore_errors=True)
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("w") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster", "supervise"],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        while not (FOLDER / _READY).exists():
            if supervisor.poll() is not None:
                _say(f"it did not start: {LOG.read_text()[-3000:]}")
                return 1
            time.sleep(_LOOK_EVERY_S)
    return status()


def supervise() -> int:
    """Own the processes until SIGTERM."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    with ControlPlane(PROGRAMS, folder=FOLDER) as plane:
        (FOLDER / _READY).touch()
        while not told.wait(_REVIVE_EVERY_S):
            _revive(plane)
    return 0


def _revive(plane: ControlPlane) -> None:
    for name in plane.parts:
        if not plane.running(name):
            _say(f"{name} ended and is started again")
            with suppress(Ended):  # tried again at the next look
                plane.restart(name)


def down() -> int:
    """Stop it, if it runs, and leave nothing."""
    pid = owner_of(FOLDER)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(_GONE_WITHIN_S)
    shutil.rmtree(FOLDER, ignore_errors=True)
    LOG.unlink(missing_ok=True)
    return 0


def status() -> int:
    """Whether it runs, and how to reach it; exit code 1 where it does not."""
    pid = owner_of(FOLDER)
    if pid is None:
        _say("not running")
        return 1
    for child in psutil.Process(pid).children():
        _say(f"# {child.name()}: process {child.pid}, {child.memory_info().rss >> 20} MiB")
    _say(f"# kubeconfig: {FOLDER / 'kubeconfig'}\nexport KUBECONFIG={FOLDER / 'kubeconfig'}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


_COMMANDS: dict[str, Callable[[], int]] = {"up": up, "status": status, "down": down, "supervise": supervise}


def main() -> int:
    """Run the one command that is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("command", choices=_COMMANDS)
    try:
        return _COMMANDS[parser.parse_args().command]()
    except Unavailable as reason:
        _say(f"no control plane: {reason}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
