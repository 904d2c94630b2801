"""`headrace run` as a real process on a real ledger and local pools, in a folder of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import yaml

from scaler.localcloud.processes import signal_group
from scaler.localcloud.state import StateDir

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "runtime" / "trivial_worker.py"
_PATIENCE_S = 30.0
"""How long a test waits for what must come; two busy cores make everything slow."""


def eventually(look: Callable[[], T | None]) -> T:
    """What `look` gives once it gives something; fails when it never does."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_at, f"never came true: {look}"
        time.sleep(0.05)


@dataclass
class Place:
    """A fleet's folder: its file, ledger and state."""

    folder: Path
    running: list["Process"] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """The fleet's YAML."""
        return self.folder / "fleet.yaml"

    @property
    def state(self) -> StateDir:
        """The local cloud."""
        return StateDir(self.folder / "state")

    @property
    def logs(self) -> Path:
        """One log for each instance that ever was."""
        return self.folder / "state" / "logs"

    def write(self, *, replicas: int = 2, listen: str = "127.0.0.1:0") -> None:
        """Write the fleet's file: so many replicas, always."""
        command = [sys.executable, str(WORKER), "{ledger}", "{job}", "{worker}"]
        provider = {
            "type": "local",
            "stateDir": "state",
            "command": [*command, "{replicaId}", "{instanceId}"],
            "env": {"PYTHONPATH": str(ROOT)},
        }
        offering = {"instanceType": "g", "zone": "z1", "capacityType": "spot", "priceUsdPerH": "1.00"}
        rails = {"floor": 0, "ceiling": 5, "cooldownDown": "0s", "lowerAfterFresh": "0s", "disruptionBudget": "100%"}
        stage = {
            "name": "rollout",
            "policy": {"type": "static", "replicas": replicas},
            "guardRails": rails,
            "pools": [{"name": "pool", "provider": provider, "offerings": [offering]}],
        }
        fleet = {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "RolloutFleet",
            "metadata": {"name": "fleet"},
            "spec": {
                "spendCapUsdPerH": "100.00",
                "interval": "200ms",
                "dryRun": False,
                "job": {"groupSize": 2, "batchGroups": 2},
                "ledger": {"type": "sqlite", "path": "ledger.db"},
                "http": {"listen": listen},
                "stages": [stage],
            },
        }
        self.write_text(yaml.safe_dump(fleet))

    def write_text(self, text: str) -> None:
        """Replace the fleet's file, as an editor does."""
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def start(self) -> "Process":
        """Start a controller."""
        process = Process(self)
        self.running.append(process)
        return process

    def clean(self) -> None:
        """Leave no process behind."""
        for process in self.running:
            process.kill()
        for record in self.state.list_instances().records if self.state.instances.exists() else ():
            signal_group(record.pid, record.start_ticks, signal.SIGKILL)


class Process:
    """One `headrace run`."""

    def __init__(self, place: Place) -> None:
        self._log = place.folder / f"controller-{len(place.running)}.log"
        with self._log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "scaler.cli", "run", "-f", str(place.file)],
                cwd=place.folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """What it printed so far."""
        return self._log.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Its log events of a name."""
        lines = [line for line in self.log.splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def wait_for(self, event: str) -> dict[str, Any]:
        """The first log event of a name."""
        return eventually(lambda: self.events(event))[0]

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self.wait_for("listening")["address"])

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and text of an answer; status 0 where nobody answers."""
        try:
            with urlopen(Request(self.url + path, method=method), timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except URLError:
            return 0, ""

    def status(self) -> dict[str, Any]:
        """`/status`."""
        body: dict[str, Any] = json.loads(self.get("/status?last=1000")[1])
        return body

    def ready_replicas(self) -> set[str]:
        """Ids of the replicas that generate."""
        stages = self.status().get("stages", [])
        return {each["replica_id"] for stage in stages for each in stage["replicas"] if each["phase"] == "ready"}

    def wait_for_ready(self, count: int) -> set[str]:
        """Wait until just so many replicas are ready."""
        return eventually(lambda: found if len(found := self.ready_replicas()) == count else None)

    def kill(self) -> None:
        """kill -9."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def stop(self, by: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit code."""
        self.popen.send_signal(by)
        return self.popen.wait(_PATIENCE_S)


@contextmanager
def a_place(folder: Path) -> Iterator[Place]:
    """A folder with a fleet of two; everything started in it is ended."""
    place = Place(folder)
    place.write()
    try:
        yield place
    finally:
        place.clean()
