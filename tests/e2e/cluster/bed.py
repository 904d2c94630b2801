"""A cluster to run Headrace in: a real control plane with fake nodes, SimCloud over HTTP, a durable Valkey, workers that are
clients of the ledger for every worker pod that runs, a trainer that eats samples, and the controller as a process of its own.

What is asked of the bed is the world's truth: SimCloud's log, the API server's objects, the ledger's history.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from scaler.commands.bench_workers import EatingTrainer, MultiplexedWorkers, WorkerSettings
from scaler.config.crd import definition
from scaler.kube.api import open_api
from scaler.kube.contract import ROLLOUT_FLEETS, KubeApi, NotFound
from scaler.kube.facts import DRAIN_TAINT, PodFacts
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from scaler.model.job import JobSettings, WorkerIdentity
from scaler.runtime.clock import SystemClock
from scaler.runtime.cluster.daemon import cluster_uid
from tests.builders.kube import Kube, daemon_set, namespace
from tests.builders.valkey_server import ValkeyServer
from tests.cluster.control_plane import ControlPlane
from tests.simcloud.helpers import make_group
from tests.simcloud.joiner import Joiner
from tests.simcloud.server import serve
from tests.simcloud.settings import Settings
from tests.simcloud.sim import SimCloud

JOB = "fleet"
NAMESPACE = "rl"
SYSTEM = "headrace-system"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
SETTINGS = JobSettings(group_size=4, batch_groups=4, max_staleness=8, max_concurrent=4096)


def caller_of(name: str) -> str:
    """Who the cloud takes a controller for: its access key."""
    return f"HEADRACE{name.upper()}"


CALLER = caller_of("a")
"""Of the controller that is there unless others are named."""


def quick_cloud() -> Settings:
    """A cloud whose machines come within a second and whose groups notice within a few."""
    return Settings(
        launch_delay_s=(0.2, 0.6),
        in_service_delay_s=(0.1, 0.2),
        shutdown_delay_s=(0.2, 0.5),
        reconcile_delay_s=(0.2, 0.5),
        health_check_delay_s=(2.0, 4.0),
        retry_delay_s=(3.0, 5.0),
        notice_s=120.0,
    )


@dataclass
class Bed:
    """See the module's docstring."""

    plane: ControlPlane
    sim: SimCloud
    endpoint: str
    store: ValkeyServer
    kube: Kube
    api: KubeApi
    nodes: WatchedNodes
    pods: WatchedPods
    workers: MultiplexedWorkers
    folder: Path
    queue_url: str = ""
    controllers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    trainer: EatingTrainer | None = None
    instances: dict[str, str] = field(default_factory=dict)
    """Worker that lives -> its instance."""
    worked_on: dict[str, str] = field(default_factory=dict)
    """The same of every worker there ever was."""

    def open_ledger(self) -> Ledger:
        """A client of the job's ledger."""
        return open_ledger(self.store.url, JOB)

    def eat(self, samples_per_s: float) -> None:
        """A trainer that takes so many samples a second from now on."""
        if self.trainer is not None:
            self.trainer.stop()
        self.trainer = EatingTrainer(
            self.open_ledger, SystemClock(), batches_per_s=samples_per_s / SETTINGS.batch_samples
        )
        self.trainer.start()

    def trained(self) -> int:
        """Batches that the trainer of now has eaten."""
        return self.trainer.steps if self.trainer else 0

    def start_controller(
        self,
        name: str = "a",
        *,
        kubeconfig: Path | None = None,
        port: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a controller process, with settings of its own if some are given."""
        file = self.folder / f"controller-{name}.yaml"
        file.write_text(yaml.safe_dump(settings or self.settings(name, port)))
        words = ["run", "--cluster", "--kubeconfig", str(kubeconfig or self.plane.kubeconfig), "-f", str(file)]
        env = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": caller_of(name),
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(Path(__file__).parents[3]),
        }
        with (self.folder / f"controller-{name}.log").open("ab") as out:
            self.controllers[name] = subprocess.Popen(
                [sys.executable, "-m", "scaler.cli", *words],
                stdout=out,
                stderr=out,
                env=env,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - only makes a system call
            )

    def settings(self, name: str, port: int) -> dict[str, Any]:
        """A controller's settings."""
        return {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "Controller",
            "metadata": {"name": name},
            "spec": {
                "aws": {"region": self.sim.settings.region, "endpointUrl": self.endpoint},
                "notices": {"queue": {"url": self.queue_url}},
                "election": {"namespace": SYSTEM},
                "listen": f"127.0.0.1:{port}",
                "stateDir": str(self.folder / f"state-{name}"),
            },
        }

    def log_of(self, name: str = "a") -> str:
        """What a controller has said."""
        return (self.folder / f"controller-{name}.log").read_text()

    def signal(self, name: str, number: int) -> None:
        """Signal a controller."""
        self.controllers[name].send_signal(number)

    async def fleet(self, name: str = JOB, **changes: Any) -> None:
        """Make a fleet."""
        await self.kube.create(a_fleet(self.store.url, name, **changes))

    async def status(self, name: str = JOB) -> Mapping[str, Any]:
        """A fleet's status as its object tells it."""
        found = await self.api.get(ROLLOUT_FLEETS, name, namespace=NAMESPACE)
        return dict(found.get("status") or {})

    def launched(self) -> list[str]:
        """Ids of all instances that run now in the rollout groups."""
        found = self.sim.call("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
        return [
            one["InstanceId"]
            for group in found
            if group["AutoScalingGroupName"].startswith("rollout")
            for one in group["Instances"]
        ]

    def tainted(self) -> set[str]:
        """Instances whose nodes carry our taint."""
        return {node.instance_id for node in self.nodes.all() if any(taint.key == DRAIN_TAINT for taint in node.taints)}

    def serving(self, without: set[str]) -> int:
        """Instances in rollout groups that run a worker, those of `without` left out."""
        working = set(self.instances.values()) - without
        return len(working & set(self.launched()))

    def handed_over(self, instance_id: str, by_s: float) -> bool:
        """Whether the instance's worker had handed over by then, or there never was one."""
        of_it = [worker for worker, instance in self.worked_on.items() if instance == instance_id]
        return all(self.workers.drained_at_s.get(worker, float("inf")) <= by_s for worker in of_it)

    def rest(self) -> None:
        """Trainer and workers stop where they are."""
        if self.trainer is not None:
            self.trainer.stop()
            self.trainer = None
        self.workers.stop()

    async def until(self, what: str, holds: Callable[[], bool], within_s: float = 60.0) -> float:
        """Wait until something holds, look by look; returns the seconds it took."""
        began_s = time.monotonic()
        while not holds():
            if time.monotonic() - began_s > within_s:
                raise AssertionError(f"not within {within_s} s: {what}")
            await asyncio.sleep(0.2)
        return time.monotonic() - began_s

    async def metrics(self, address: str) -> str:
        """A controller's metrics page."""
        async with aiohttp.ClientSession() as session, session.get(f"{address}/metrics") as answer:
            return await answer.text()

    async def run_pods(self) -> None:
        """A worker for every worker pod that runs; SIGTERM for one that is being deleted; the end for one that is gone."""
        known: dict[str, str] = {}
        while True:
            pods = {pod.uid: pod for pod in self.pods.all() if pod.labels.get("app") == "rollout-worker"}
            for uid, pod in pods.items():
                if uid not in known and pod.phase == "Running" and not pod.deleting:
                    known[uid] = self._begin(pod)
                elif uid in known and pod.deleting:
                    self.workers.leave(known[uid])
            for uid in known.keys() - pods.keys():
                self.instances.pop(known[uid], None)
                self.workers.kill(known.pop(uid))
            await asyncio.sleep(0.1)

    def _begin(self, pod: PodFacts) -> str:
        node = self.nodes.by_name(pod.node_name)
        identity = WorkerIdentity(
            worker=f"{pod.name}-{pod.uid[:8]}",
            replica_id=pod.name,
            instance_id=node.instance_id if node else "",
            pod_uid=pod.uid,
            node_uid=node.uid if node else "",
        )
        self.instances[identity.worker] = self.worked_on[identity.worker] = identity.instance_id
        self.workers.add(identity)
        return identity.worker


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@asynccontextmanager
async def a_bed(
    folder: Path,
    *,
    zones: tuple[str, ...] = ZONES,
    with_: tuple[str, ...] = ("controllers", "scheduler", "kwok"),
    audit: bool = False,
) -> AsyncIterator[Bed]:
    """Everything but the controller, ready; nothing is left afterwards."""
    clock = SystemClock()
    plane = ControlPlane(with_, audit=audit)
    store_folder = folder / "store"
    store_folder.mkdir()
    store = ValkeyServer(store_folder)
    await asyncio.to_thread(plane.start)
    sim = SimCloud(clock, 0, quick_cloud())
    api = open_api(plane.kubeconfig, clock=clock, qps=1000.0, burst=2000)
    bed: Bed | None = None
    try:
        store.start()
        with serve(sim) as server:
            async with Kube.of(plane) as kube:
                nodes, pods = WatchedNodes(api, clock), WatchedPods(api, clock, {NAMESPACE})
                workers = MultiplexedWorkers(lambda: open_ledger(store.url, JOB), clock, WorkerSettings())
                bed = Bed(plane, sim, server.address, store, kube, api, nodes, pods, workers, folder)
                await _set_up(bed, zones)
                workers.start()
                joiner = Joiner(sim, api, clock)
                tasks = [asyncio.create_task(work) for work in (nodes.run(), pods.run(), joiner.run(), bed.run_pods())]
                try:
                    yield bed
                finally:
                    await _tear_down(bed, tasks)
    finally:
        store.kill()
        await api.close()
        await asyncio.to_thread(plane.stop)


async def _set_up(bed: Bed, zones: tuple[str, ...]) -> None:
    for name in (NAMESPACE, SYSTEM):
        await bed.kube.create(namespace(name))
    await bed.kube.apply(definition())
    await _until_served(bed.api)
    await bed.kube.create(
        daemon_set("rollout-worker", within=NAMESPACE, nodeSelector={"role": "rollout"}, tolerations=[])
    )
    for zone in zones:
        make_group(bed.sim, f"rollout-{zone}", zones=(zone,), high=600, **node_tags("role", "rollout"))
    tags = {"headrace.dev/cluster": await cluster_uid(bed.api)}
    made = bed.sim.call("sqs", "CreateQueue", QueueName="notices", tags=tags)
    bed.queue_url = made["QueueUrl"]
    bed.sim.bus.subscribe("notices")
    bed.open_ledger().configure(SETTINGS)


async def _until_served(api: KubeApi) -> None:
    """A definition is accepted a moment before its kind is served."""
    for _ in range(100):
        try:
            await api.list(ROLLOUT_FLEETS)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the kind is not served")


async def _tear_down(bed: Bed, tasks: Sequence[asyncio.Task[None]]) -> None:
    for process in bed.controllers.values():
        process.terminate()
        process.send_signal(signal.SIGCONT)
    for process in bed.controllers.values():
        try:
            await asyncio.to_thread(process.wait, 15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if bed.trainer is not None:
        bed.trainer.stop()
    bed.workers.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def node_tags(label: str, value: str) -> dict[str, Any]:
    """Tags of a group whose nodes carry a label."""
    key = f"k8s.io/cluster-autoscaler/node-template/label/{label}"
    return {"Tags": [{"Key": key, "Value": value, "PropagateAtLaunch": True}]}


def a_fleet(store_url: str, name: str = JOB, *, zones: tuple[str, ...] = ZONES, **spec: Any) -> dict[str, Any]:
    """A RolloutFleet of Auto Scaling groups, one a zone."""
    pools = [
        {
            "name": f"spot-{zone[-1]}",
            "launchTimeout": "60s",
            "provider": {
                "type": "auto_scaling_group",
                "group": f"rollout-{zone}",
                "workerSet": {"type": "daemon_set", "name": "rollout-worker"},
            },
            "offerings": [
                {"instanceType": "p5.48xlarge", "zone": zone, "capacityType": "spot", "priceUsdPerH": "10.00"}
            ],
        }
        for zone in zones
    ]
    rails = {
        "floor": 2,
        "ceiling": 32,
        "cooldownDown": "2s",
        "disruptionBudget": "50%",
        "lowerAfterFresh": "3s",
        **spec.pop("guardRails", {}),
    }
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "RolloutFleet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "spendCapUsdPerH": "10000.00",
            "interval": "1s",
            "dryRun": False,
            "job": {
                "groupSize": SETTINGS.group_size,
                "batchGroups": SETTINGS.batch_groups,
                "maxStaleness": SETTINGS.max_staleness,
            },
            "ledger": {"type": "valkey", "url": store_url},
            "stages": [
                {
                    "name": "rollout",
                    "policy": {"type": "rate_match", "rateTimeConstant": "1s", "goodputTimeConstant": "5s"},
                    "guardRails": rails,
                    "drain": {"voluntaryDeadline": "20s", "margin": "2s"},
                    "pools": pools,
                }
            ],
            **spec,
        },
    }
