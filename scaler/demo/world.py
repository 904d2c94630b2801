"""The demo's files and processes: a ledger, a trainer, a player of capacity, and the production controller.

Nothing here decides anything: the controller is `headrace run` on a YAML file, workers are its business, and whoever
plays the cloud is a process apart. The demo only starts them, watches, and ends them in order: first the trainer, then
the cloud (so that nothing is killed any more), then the controller, then the workers, which hand over as for any drain.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from scaler.demo.processes import Child, start, stop
from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from scaler.localcloud.processes import signal_group
from scaler.localcloud.state import InstanceRecord, StateDir
from scaler.model.capacity import CapacityType
from scaler.model.clock import Clock
from scaler.runtime.clock import SystemClock
from scaler.traces import offering_events
from scaler.traces.trace import CapacityTrace

JOB = "demo"
OFFERINGS = (("demo.device", "local-a", "0.40"), ("demo.device", "local-b", "0.55"))
"""Instance type, zone, price (USD/h): the second zone is dearer, so it comes second."""
PROCESSES = ("trainer", "cloud", "controller")
TRAINER_PATIENCE_S = 15.0
WORKER_PATIENCE_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large and how fast the demo is; fits two cores and three minutes."""

    floor: int = 1
    ceiling: int = 4
    group_size: int = 8
    batch_groups: int = 8
    max_staleness: int = 2
    concurrency: int = 16
    steps_per_s: float = 30.0
    train_s: float = 1.2
    """What an update takes at least: a small model stands for one that keeps a few replicas busy. On a fast machine it sees to it
    that the demo lasts as long as its bursts of interruptions."""
    notice_s: float = 3.0
    task: str = "repeat"


@dataclass(slots=True)
class World:
    """Everything that runs, in one folder."""

    folder: Path
    seed: int
    updates: int
    progress: bool
    trace: CapacityTrace
    """Played in its own time; its first series is the first offering, and so on."""
    scale: Scale = field(default_factory=Scale)
    store_url: str | None = None
    """Another ledger than a SQLite file in the folder, for example `valkey://127.0.0.1:6379/0`."""
    port: int = 0
    clock: Clock = field(default_factory=SystemClock)
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def ledger_url(self) -> str:
        """Where the work units are."""
        return self.store_url or f"sqlite://{self.folder / 'ledger.db'}"

    @property
    def state(self) -> StateDir:
        """Where the instances are."""
        return StateDir(self.folder / "cloud")

    @property
    def metrics_file(self) -> Path:
        """The trainer's own record."""
        return self.folder / "trainer.jsonl"

    @property
    def phase_log(self) -> Path:
        """Each phase as the trainer enters it."""
        return self.folder / "phases.jsonl"

    @property
    def status_url(self) -> str:
        """The controller's own account."""
        return f"http://127.0.0.1:{self.port}"

    def open_ledger(self) -> Ledger:
        """A connection of the demo's own."""
        return open_ledger(self.ledger_url, JOB)

    def start(self) -> None:
        """Write the files, start the processes."""
        self.port = self.port or _free_port()
        for name in ("weights", "checkpoints", "cloud"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.state.create()
        self._trace_file.write_text(offering_events.dump(self.trace))
        self._fleet_file.write_text(yaml.safe_dump(self.fleet(), sort_keys=False))
        for name in PROCESSES:
            self.launch(name)

    def launch(self, name: str) -> Child:
        """Start one of `PROCESSES`; again, if it was there before."""
        modules = {
            "trainer": ["trainer", *self._trainer_options()],
            "cloud": ["scaler.localcloud", *self._player_options()],
            "controller": ["scaler.cli", "run", "--file", str(self._fleet_file)],
        }
        command = [sys.executable, "-m", *modules[name]]
        self.children[name] = start(name, command, self.folder, {"OMP_NUM_THREADS": "1"})
        return self.children[name]

    def dead(self) -> Child | None:
        """A process that ended and should not have."""
        for name in PROCESSES:
            child = self.children[name]
            finished = name == "trainer" and child.process.poll() == 0
            if not child.running and not finished:
                return child
        return None

    def stop(self) -> None:
        """End everything, workers last; nothing of it is left when this returns."""
        for name, patience_s in (("trainer", TRAINER_PATIENCE_S), ("cloud", 5.0), ("controller", 10.0)):
            if name in self.children:
                stop(self.children[name], patience_s)
        self._stop_workers()

    def _stop_workers(self) -> None:
        """SIGTERM to all at once: each hands its work over; what has not gone in time is killed."""
        live = self.state.live_instances()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for record in live:
                signal_group(record.pid, record.start_ticks, number)
            self._wait_until_gone(live)

    def _wait_until_gone(self, records: tuple[InstanceRecord, ...]) -> None:
        deadline_s = self.clock.monotonic_s() + WORKER_PATIENCE_S
        while any(record.alive for record in records) and self.clock.monotonic_s() < deadline_s:
            time.sleep(0.05)

    def generated_tokens(self) -> int:
        """Tokens that all workers ever generated, killed ones included."""
        counters = self.state.root / "counters"
        return sum(self.state.read_counter(path.name) for path in counters.iterdir())

    def _trainer_options(self) -> list[str]:
        return [
            *("--ledger", self.ledger_url, "--job", JOB, "--configure", "--task", self.scale.task),
            *("--weights", str(self.folder / "weights"), "--checkpoints", str(self.folder / "checkpoints")),
            *("--updates", str(self.updates), "--seed", str(self.seed), "--metrics-file", str(self.metrics_file)),
            *("--group-size", str(self.scale.group_size), "--batch-groups", str(self.scale.batch_groups)),
            *("--max-staleness", str(self.scale.max_staleness), "--threads", "1"),
            *("--phase-log", str(self.phase_log)),
            *("--min-train-s", str(self.scale.train_s)),
        ]

    def _player_options(self) -> list[str]:
        return [
            *("--state-dir", str(self.state.root), "--trace", str(self._trace_file), "--seed", str(self.seed)),
            *("--notice-ratio", "0.5", "--notice-s", str(self.scale.notice_s)),
            *(
                word
                for series, (kind, zone, _) in self._offerings
                for word in ("--offering", f"{kind}/{zone}/{CapacityType.SPOT}={series}")
            ),
        ]

    @property
    def _fleet_file(self) -> Path:
        return self.folder / "fleet.yaml"

    @property
    def _trace_file(self) -> Path:
        return self.folder / "trace.csv"

    @property
    def _offerings(self) -> list[tuple[str, tuple[str, str, str]]]:
        return list(zip(self.trace.names, OFFERINGS, strict=False))

    def fleet(self) -> dict[str, object]:
        """The fleet's YAML: what a user would write, with a demo's short times."""
        scale = self.scale
        worker = [
            *(sys.executable, "-m", "rollout_worker", "--ledger", "{ledger}", "--job", "{job}", "--worker", "{worker}"),
            *("--replica-id", "{replicaId}", "--instance-id", "{instanceId}", "--notice-file", "{noticeFile}"),
            *("--token-counter", "{tokenCounter}", "--weights", "{weights}", "--engine", "torch"),
            *("--concurrency", str(scale.concurrency), "--engine-option", f"steps_per_s={scale.steps_per_s:g}"),
            *("--lease-ttl", "4", "--heartbeat-s", "0.5", "--publish-tokens", "8", "--publish-interval-s", "0.5"),
            *("--drain-margin-s", "0.5", "--grace-s", "3"),
            *([] if self.progress else ["--no-progress"]),
        ]
        return {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "RolloutFleet",
            "metadata": {"name": JOB},
            "spec": {
                "spendCapUsdPerH": "10",
                "interval": "500ms",
                "dryRun": False,
                "job": {
                    "groupSize": scale.group_size,
                    "batchGroups": scale.batch_groups,
                    "maxStaleness": scale.max_staleness,
                },
                "ledger": self._ledger(),
                "weightsDir": str(self.folder / "weights"),
                "http": {"listen": f"127.0.0.1:{self.port}"},
                "stages": [self._stage(worker)],
            },
        }

    def _ledger(self) -> dict[str, object]:
        if self.store_url is not None:
            return {"type": "valkey", "url": self.store_url}
        return {"type": "sqlite", "path": str(self.folder / "ledger.db")}

    def _stage(self, worker: list[str]) -> dict[str, object]:
        return {
            "name": "rollout",
            "policy": {
                "type": "rate_match",
                "headroom": "10%",
                "targetDepthSteps": 1.0,
                "maxDepthSteps": 1.5,
                "fillHorizon": "10s",
                "rateTimeConstant": "5s",
                "goodputTimeConstant": "8s",
            },
            "guardRails": {
                "floor": self.scale.floor,
                "ceiling": self.scale.ceiling,
                "cooldownDown": "6s",
                "disruptionBudget": "50%",
                "lowerAfterFresh": "5s",
            },
            "drain": {"voluntaryDeadline": "4s", "margin": "500ms", "reapAfter": "5s"},
            "signals": {"type": "ledger", "maxAge": "5s"},
            "pools": [
                {
                    "name": "local",
                    "provider": {
                        "type": "local",
                        "stateDir": str(self.state.root),
                        "command": worker,
                        "env": {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
                        "terminationGrace": "3s",
                    },
                    "offerings": [
                        {"instanceType": kind, "zone": zone, "capacityType": "spot", "priceUsdPerH": price}
                        for _, (kind, zone, price) in self._offerings
                    ],
                    "launchTimeout": "30s",
                    "refusalBackoffInitial": "2s",
                    "refusalBackoffMax": "4s",
                }
            ],
        }


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
