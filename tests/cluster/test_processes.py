"""What becomes of processes, ports and folders: under crashes of the starter, of the test, and of others."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import pytest

from tests.builders.daemon import eventually
from tests.cluster import control_plane
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import require
from tests.cluster.folder import own_folder, owner_of, sweep
from tests.cluster.ports import PortHold
from tests.cluster.process import Child, Ended, Spawner
from tests.cluster.programs import ALWAYS

ROOT = Path(__file__).parents[2]
START_AND_WAIT = """
import time
from tests.cluster.control_plane import ControlPlane
with ControlPlane() as plane:
    print(plane.folder, plane.pid("etcd"), plane.pid("api"), flush=True)
    time.sleep(600)
"""


@contextmanager
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    try:
        yield made
    finally:
        made.close()


def sleeper(spawner: Spawner, folder: Path) -> Child:
    return Child(name="sleeper", args=["sleep", "600"], env=os.environ, log=folder / "log", spawner=spawner)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    with spawner() as mother:
        child = sleeper(mother, tmp_path)
        asking = Thread(target=child.start)
        asking.start()
        asking.join()
        child.pause()
        eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
        child.resume()
        eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING)
        child.kill()
        assert not child.running


def test_children_die_with_their_spawner(tmp_path: Path) -> None:
    with spawner() as mother:
        child = sleeper(mother, tmp_path)
        child.start()
    eventually(lambda: not child.running)
    with pytest.raises(Ended, match="sleeper does not run"):
        child.pause()


def test_a_port_is_given_once_and_again_after_its_release() -> None:
    holds = [PortHold() for _ in range(50)]
    assert len({hold.port for hold in holds}) == 50
    with socket.socket() as server:
        server.bind(("127.0.0.1", holds[0].port))
    for hold in holds:
        hold.release()


def test_a_folder_in_use_is_known_by_its_owner_and_one_left_behind_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left_behind = tmp_path / "headrace-cluster-of-a-killed-one"
    left_behind.mkdir()
    (left_behind / "owner").write_text("1")
    with own_folder() as folder:
        assert owner_of(folder) == os.getpid()
        sweep()
        assert list(tmp_path.iterdir()) == [folder]
    assert not folder.exists()
    assert owner_of(folder) is None


@pytest.mark.cluster
def test_nothing_is_left_after_a_test_that_fails() -> None:
    require()
    plane, started = ControlPlane(), list[psutil.Process]()
    with pytest.raises(AssertionError, match="a finding"):
        fail_on(plane, started)
    assert len(started) == len(ALWAYS)
    assert not any(process.is_running() for process in started)
    assert not plane.folder.exists()


def fail_on(plane: ControlPlane, started: list[psutil.Process]) -> None:
    with plane:
        started += [psutil.Process(plane.pid(name)) for name in ALWAYS]
        raise AssertionError("a finding")


@pytest.mark.cluster
def test_processes_die_with_a_killed_starter_and_the_next_start_sweeps_its_folder() -> None:
    require()
    starter = subprocess.Popen([sys.executable, "-c", START_AND_WAIT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with starter:
        assert starter.stdout is not None
        folder, *pids = starter.stdout.readline().split()
        starter.kill()
    eventually(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids))
    assert Path(folder).exists()
    sweep()
    assert not Path(folder).exists()


@pytest.mark.cluster
def test_a_port_that_somebody_else_took_meanwhile_costs_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    require()
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = [stranger.getsockname()[1]]

        class Unlucky(PortHold):
            def __init__(self) -> None:
                super().__init__()
                self.port = taken.pop() if taken else self.port

        monkeypatch.setattr(control_plane, "PortHold", Unlucky)
        with ControlPlane() as plane:
            assert plane.running("etcd")
        assert not taken


@pytest.mark.cluster
@pytest.mark.slow
def test_up_revives_what_is_killed_and_down_leaves_nothing(tmp_path: Path) -> None:
    require()
    folder = tmp_path / "bed"
    try:
        said = command("up", folder, "api")
        assert f"export KUBECONFIG={folder / 'kubeconfig'}" in said
        supervisor = psutil.Process(owner_of(folder))
        (etcd,) = (child for child in supervisor.children() if child.name() == "etcd")
        etcd.send_signal(signal.SIGKILL)
        eventually(lambda: [c.name() for c in supervisor.children() if c.pid != etcd.pid].count("etcd") == 1)
        assert command("up", folder, "api").count("process") == 2
    finally:
        command("down", folder)
    assert not supervisor.is_running()
    assert list(tmp_path.iterdir()) == []


def command(name: str, folder: Path, *parts: str) -> str:
    args = [sys.executable, "-m", "tests.cluster", name, *parts, "--folder", str(folder)]
    return subprocess.run(args, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
