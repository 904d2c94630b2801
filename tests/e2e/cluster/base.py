"""What every bed of ours is made of: a real control plane with fake nodes, a durable Valkey, workers that are clients of the
ledger for every worker pod that runs, a trainer that eats samples, and the controller as a process of its own.

Where nodes come from is another matter: `bed` has SimCloud's Auto Scaling groups, `karpenter` has Karpenter.
What is asked of a bed is the world's truth: the API server's objects, the ledger's history, who asked for what.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from scaler.commands.bench_workers import EatingTrainer, MultiplexedWorkers, WorkerSettings
from scaler.config.crd import definition
from scaler.kube.api import open_api
from scaler.kube.contract import PODS, ROLLOUT_FLEETS, KubeApi, NotFound, PatchType
from scaler.kube.facts import DRAIN_TAINT, PodFacts
from scaler.kube.indexes import WatchedNodes, WatchedPods
from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from scaler.model.job import JobSettings, WorkerIdentity
from scaler.runtime.clock import SystemClock
from tests.builders.kube import Kube, namespace
from tests.builders.valkey_server import ValkeyServer
from tests.cluster.control_plane import ControlPlane
from tests.e2e.cluster.turn import turn

JOB = "fleet"
NAMESPACE = "rl"
SYSTEM = "headrace-system"
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
SETTINGS = JobSettings(group_size=4, batch_groups=4, max_staleness=8, max_concurrent=4096)
WORKERS = {"app": "rollout-worker"}
"""Labels of worker pods."""
LIVES = "tests.headrace.dev/worker-lives"
"""A finalizer on worker pods: they are gone when their process has ended, as a kubelet has it. For beds that `keep` pods."""
_LAST_LINES = 30
_MEMBER = "leaderworkerset.sigs.k8s.io/worker-index"


def caller_of(name: str) -> str:
    """Who the cloud takes a controller for: its access key."""
    return f"HEADRACE{name.upper()}"


CALLER = caller_of("a")
"""Of the controller that is there unless others are named."""
_HEADRACE = (sys.executable, "-m", "scaler.cli")


def _environment(name: str) -> dict[str, str]:
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": caller_of(name),
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }


@dataclass(slots=True)
class Life:
    """What became of a worker pod, on this machine's clock."""

    worker: str
    pod_name: str
    node_name: str
    instance_id: str
    crew: MultiplexedWorkers
    told_s: float | None = None
    """When it was seen to be on its way out: its worker has SIGTERM."""
    left_s: float | None = None
    """When its worker had handed everything over and said goodbye."""


@dataclass(kw_only=True)
class ClusterBed:
    """See the module's docstring."""

    plane: ControlPlane
    store: ValkeyServer
    kube: Kube
    api: KubeApi
    nodes: WatchedNodes
    pods: WatchedPods
    workers: MultiplexedWorkers
    folder: Path
    keeps: bool = False
    """Pods stay until their worker has left, see `LIVES`; else kwok takes them at once."""
    finish_s: float = 0.0
    """A worker with SIGTERM goes on for so long: what it holds may get done."""
    crews: dict[str, MultiplexedWorkers] = field(default_factory=dict)
    """Workers of other jobs than the bed's own, by their pods' label `app`."""
    controllers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    trainer: EatingTrainer | None = None
    instances: dict[str, str] = field(default_factory=dict)
    """Worker that lives -> its instance."""
    worked_on: dict[str, str] = field(default_factory=dict)
    """The same of every worker there ever was."""
    lives: dict[str, Life] = field(default_factory=dict)
    """By pod UID, of every worker there ever was."""
    most_replicas: int = 0
    """The most worker pods that were there at once, pods on their way out left out; reset it at will."""

    def open_ledger(self) -> Ledger:
        """A client of the job's ledger."""
        return open_ledger(self.store.url, JOB)

    def crew(self, job: str, app: str) -> None:
        """Workers of another job for pods whose label `app` says so."""
        open_ledger(self.store.url, job).configure(SETTINGS)
        made = MultiplexedWorkers(lambda: open_ledger(self.store.url, job), SystemClock(), WorkerSettings())
        self.crews[app] = made
        made.start()

    def trained(self) -> int:
        """Batches that the trainer of now has eaten."""
        return self.trainer.steps if self.trainer else 0

    def eat(self, samples_per_s: float) -> None:
        """A trainer that takes so many samples a second from now on."""
        pace = samples_per_s / SETTINGS.batch_samples
        if self.trainer is not None:
            self.trainer.pace(pace)
            return
        self.trainer = EatingTrainer(self.open_ledger, SystemClock(), batches_per_s=pace)
        self.trainer.start()

    def start_controller(
        self,
        name: str = "a",
        *,
        kubeconfig: Path | None = None,
        port: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a controller process, with settings of its own if some are given."""
        file = self.settings_file(name)
        file.write_text(yaml.safe_dump(settings or self.settings(name, port)))
        words = ["run", "--cluster", "--kubeconfig", str(kubeconfig or self.plane.kubeconfig), "-f", str(file)]
        with (self.folder / f"controller-{name}.log").open("ab") as out:
            self.controllers[name] = subprocess.Popen(
                [*_HEADRACE, *words],
                stdout=out,
                stderr=out,
                env=_environment(name),
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - only makes a system call
            )

    def settings_file(self, name: str = "a") -> Path:
        """Where a controller's settings lie."""
        return self.folder / f"controller-{name}.yaml"

    async def headrace(self, *words: str) -> tuple[int, str]:
        """Run a command as whoever looks after the cluster would; its exit code, and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *_HEADRACE,
            *words,
            "--kubeconfig",
            str(self.plane.kubeconfig),
            env=_environment("a"),
            stdout=subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    def settings(self, name: str, port: int) -> dict[str, Any]:
        """A controller's settings."""
        return {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "Controller",
            "metadata": {"name": name},
            "spec": {
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

    async def change(self, name: str = JOB, *, policy: Mapping[str, Any]) -> None:
        """Give the fleet's stage another policy, as `kubectl patch` does."""
        change = [{"op": "replace", "path": "/spec/stages/0/policy", "value": dict(policy)}]
        await self.api.patch(ROLLOUT_FLEETS, name, change, namespace=NAMESPACE, patch_type=PatchType.JSON)

    async def status(self, name: str = JOB) -> Mapping[str, Any]:
        """A fleet's status as its object tells it."""
        found = await self.api.get(ROLLOUT_FLEETS, name, namespace=NAMESPACE)
        return dict(found.get("status") or {})

    def tainted(self) -> set[str]:
        """Instances whose nodes carry our taint."""
        return {node.instance_id for node in self.nodes.all() if any(taint.key == DRAIN_TAINT for taint in node.taints)}

    def handed_over(self, instance_id: str, by_s: float) -> bool:
        """Whether the instance's worker had handed over by then, or there never was one."""
        of_it = [worker for worker, instance in self.worked_on.items() if instance == instance_id]
        return all(self.workers.drained_at_s.get(worker, float("inf")) <= by_s for worker in of_it)

    def rest(self) -> None:
        """Trainer and workers stop where they are."""
        if self.trainer is not None:
            self.trainer.stop()
            self.trainer = None
        for crew in (self.workers, *self.crews.values()):
            crew.stop()

    async def until(self, what: str, holds: Callable[[], bool], within_s: float = 60.0) -> float:
        """Wait until something holds, look by look; returns the seconds it took."""
        began_s = time.monotonic()
        while not holds():
            if time.monotonic() - began_s > within_s:
                raise AssertionError(f"not within {within_s} s: {what}\n{self._last_words()}")
            await asyncio.sleep(0.2)
        return time.monotonic() - began_s

    def _last_words(self) -> str:
        return "\n".join(line for name in self.controllers for line in self.log_of(name).splitlines()[-_LAST_LINES:])

    async def metrics(self, address: str) -> str:
        """A controller's metrics page."""
        async with aiohttp.ClientSession() as session, session.get(f"{address}/metrics") as answer:
            return await answer.text()

    def replicas(self) -> list[PodFacts]:
        """Worker pods that are not on their way out; one a replica."""
        return [pod for pod in self._worker_pods() if not pod.deleting and pod.phase not in ("Succeeded", "Failed")]

    async def run_pods(self) -> None:
        """A worker for every worker pod that runs; SIGTERM for one that is being deleted; the end for one that is gone."""
        known: dict[str, str] = {}
        while True:
            self.most_replicas = max(self.most_replicas, len(self.replicas()))
            pods = {pod.uid: pod for pod in self._worker_pods()}
            for uid, pod in pods.items():
                if uid not in known and pod.phase == "Running" and not pod.deleting:
                    known[uid] = self._begin(pod)
                elif uid in known and pod.deleting:
                    self._told(self.lives[uid])
            for uid in known.keys() - pods.keys():
                self.instances.pop(known[uid], None)
                self.lives[uid].crew.kill(known.pop(uid))
            if self.keeps:
                await self._let_go()
            await asyncio.sleep(0.1)

    def _worker_pods(self) -> Sequence[PodFacts]:
        """Of k pods that are one replica, the first, where the engine's endpoint is."""
        apps = {WORKERS["app"], *self.crews}
        ours = (pod for pod in self.pods.all() if pod.labels.get("app") in apps)
        return [pod for pod in ours if pod.labels.get(_MEMBER, "0") == "0"]

    def _begin(self, pod: PodFacts) -> str:
        node = self.nodes.by_name(pod.node_name)
        identity = WorkerIdentity(
            worker=f"{pod.name}-{pod.uid[:8]}",
            replica_id=pod.name,
            instance_id=node.instance_id if node else "",
            pod_uid=pod.uid,
            node_uid=node.uid if node else "",
        )
        worker, instance_id = identity.worker, identity.instance_id
        self.instances[worker] = self.worked_on[worker] = instance_id
        crew = self.crews.get(pod.labels["app"], self.workers)
        self.lives[pod.uid] = Life(worker, pod.name, pod.node_name, instance_id, crew)
        crew.add(identity)
        return worker

    def _told(self, life: Life) -> None:
        now_s = time.time()
        if life.told_s is None:
            life.told_s = now_s
        if life.left_s is None and now_s >= life.told_s + self.finish_s:
            life.crew.leave(life.worker)
        if life.left_s is None and life.worker not in life.crew.names:
            life.left_s = now_s

    async def _let_go(self) -> None:
        """Pods on their way out whose process has ended, or never began."""
        for pod in self.pods.all():
            life = self.lives.get(pod.uid)
            if pod.deleting and WORKERS.items() <= pod.labels.items() and (life is None or life.left_s is not None):
                with suppress(NotFound):
                    patch = {"metadata": {"uid": pod.uid, "finalizers": None}}
                    await self.api.patch(PODS, pod.name, patch, namespace=pod.namespace)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a bed is made on: everything but where nodes come from."""

    plane: ControlPlane
    store: ValkeyServer
    kube: Kube
    api: KubeApi
    nodes: WatchedNodes
    pods: WatchedPods
    workers: MultiplexedWorkers
    folder: Path

    def parts(self) -> dict[str, Any]:
        """By name, as a bed takes them."""
        return {name: getattr(self, name) for name in self.__slots__}


@asynccontextmanager
async def ground(plane: ControlPlane, folder: Path, work: WorkerSettings | None = None) -> AsyncIterator[Ground]:
    """The control plane with our definition, a store and workers without pods; nothing is left afterwards."""
    with turn():
        clock = SystemClock()
        store_folder = folder / "store"
        store_folder.mkdir()
        store = ValkeyServer(store_folder)
        await asyncio.to_thread(plane.start)
        api = open_api(plane.kubeconfig, clock=clock, qps=1000.0, burst=2000)
        try:
            store.start()
            async with Kube.of(plane) as kube:
                workers = MultiplexedWorkers(lambda: open_ledger(store.url, JOB), clock, work or WorkerSettings())
                nodes, pods = WatchedNodes(api, clock), WatchedPods(api, clock, {NAMESPACE})
                await _define(kube, api)
                open_ledger(store.url, JOB).configure(SETTINGS)
                yield Ground(
                    plane=plane, store=store, kube=kube, api=api, nodes=nodes, pods=pods, workers=workers, folder=folder
                )
        finally:
            store.kill()
            await api.close()
            await asyncio.to_thread(plane.stop)


async def _define(kube: Kube, api: KubeApi) -> None:
    for name in (NAMESPACE, SYSTEM):
        await kube.create(namespace(name))
    await kube.apply(definition())
    # A definition is accepted a moment before its kind is served.
    for _ in range(100):
        try:
            await api.list(ROLLOUT_FLEETS)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the kind is not served")


@asynccontextmanager
async def at_work(bed: ClusterBed, *others: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Watches, workers, kubelet and `others` run; everything that the bed started is stopped afterwards."""
    bed.workers.start()
    tasks = [asyncio.create_task(work) for work in (bed.nodes.run(), bed.pods.run(), bed.run_pods(), *others)]
    try:
        yield
    finally:
        await _tear_down(bed, tasks)


async def _tear_down(bed: ClusterBed, tasks: Sequence[asyncio.Task[None]]) -> None:
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
    for crew in (bed.workers, *bed.crews.values()):
        crew.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def a_fleet_of(pools: Sequence[Mapping[str, Any]], store_url: str, name: str = JOB, **spec: Any) -> dict[str, Any]:
    """A RolloutFleet over these pools that moves quickly."""
    policy = spec.pop("policy", {"type": "rate_match", "rateTimeConstant": "1s", "goodputTimeConstant": "5s"})
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
                    "policy": policy,
                    "guardRails": rails,
                    "drain": {"voluntaryDeadline": "20s", "margin": "2s"},
                    "pools": list(pools),
                }
            ],
            **spec,
        },
    }
