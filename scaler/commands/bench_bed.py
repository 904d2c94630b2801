"""What the benches set up on a test bed and take away again.

Groups of instances, their nodes, a worker each in the ledger, the queue, the fleet and the controller's process. It only
runs against a bed: an API server all of whose nodes are kwok's, and an AWS endpoint that was named. Names carry `bench`.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from scaler.aws.client import open_aws
from scaler.aws.contract import Aws
from scaler.commands.bench_objects import (
    BENCH_LABEL,
    KWOK,
    NAME,
    NAMESPACE,
    SETTINGS,
    BenchPlan,
    BenchPool,
    daemon_set,
    fleet_labels,
    fleet_of,
    node_name,
    node_of,
    pod_name,
    pod_of,
    settings_of,
    template_of,
    trainer_pod_of,
)
from scaler.commands.bench_workers import EatingTrainer, MultiplexedWorkers
from scaler.commands.tables import table_of
from scaler.config.crd import definition
from scaler.kube.api import open_api
from scaler.kube.contract import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    ROLLOUT_FLEETS,
    Conflict,
    Json,
    KubeApi,
    KubeError,
    NotFound,
    Resource,
)
from scaler.ledger.contract import Ledger, LedgerError
from scaler.ledger.registry import open_ledger
from scaler.model.clock import Clock
from scaler.model.job import WorkerIdentity

_AT_ONCE = 32
_LAST_WORDS = 4000
_PATIENCE_S = 300.0
_ROOM = 3
"""A group may hold so many times its first size: replacements come while what they replace is there."""


class NotABed(Exception):
    """What was named is no test bed, or does not answer as one; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BedAddress:
    """Where a bed is: its API server, its AWS, and the Valkey store of its ledger."""

    kubeconfig: Path
    endpoint: str
    ledger: str
    region: str


@dataclass
class BenchBed:
    """See the module's docstring."""

    kube: KubeApi
    aws: Aws
    region: str
    endpoint: str
    kubeconfig: Path
    ledger_url: str
    clock: Clock
    plan: BenchPlan
    job: str = NAME
    instances: dict[str, BenchPool] = field(default_factory=dict)
    """Those that have joined, trainers' apart."""
    queue_url: str = ""
    metrics_url: str = ""
    folder: Path | None = None
    controller: "subprocess.Popen[bytes] | None" = None
    workers: MultiplexedWorkers | None = None
    _owner: Json = field(default_factory=dict)
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)

    def open_ledger(self) -> Ledger:
        """A client of the bench's job."""
        return open_ledger(self.ledger_url, self.job)

    async def set_up(self) -> None:
        """Everything, until the controller has the whole fleet in its hands."""
        await self._check()
        self.open_ledger().configure(SETTINGS)
        await self._definition()
        await self._ensure(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, None)
        await self._ensure(DAEMON_SETS, daemon_set(), NAMESPACE)
        self._owner = await self.kube.get(DAEMON_SETS, NAME, namespace=NAMESPACE)
        await self._queue()
        self._work()
        for pool in self.plan.groups:
            await self._group(pool)
        for pool in self.plan.groups:
            await self._fill(pool)
        await self._controller()
        fleet = fleet_of(self.plan, job=self.job, ledger_url=self.ledger_url, region=self.region)
        await self.kube.create(ROLLOUT_FLEETS, fleet, namespace=NAMESPACE)
        await self._settled()

    async def tear_down(self) -> None:
        """Take away what was set up."""
        await self._held.aclose()
        for resource, name in ((ROLLOUT_FLEETS, NAME), (CONFIG_MAPS, f"headrace-journal-{NAME}")):
            await self._delete(resource, name, NAMESPACE)
        for pool in self.plan.groups:
            await self.aws.call(
                "autoscaling", "DeleteAutoScalingGroup", AutoScalingGroupName=pool.name, ForceDelete=True
            )
        pods = await self.kube.list(PODS, namespace=NAMESPACE)
        await each(self._delete(PODS, pod["metadata"]["name"], NAMESPACE) for pod in pods.items)
        listed = await self.kube.list(NODES, label_selector=f"{BENCH_LABEL}={NAME}")
        await each(self._delete(NODES, node["metadata"]["name"], None) for node in listed.items)

    async def _check(self) -> None:
        nodes = (await self.kube.list(NODES)).items
        strangers = [
            node["metadata"]["name"] for node in nodes if KWOK not in (node["metadata"].get("annotations") or {})
        ]
        if strangers:
            raise NotABed(
                f"node {strangers[0]} is not kwok's: a bench taints and deletes nodes, so it only runs on a test bed"
            )

    async def _definition(self) -> None:
        await self._ensure(DEFINITIONS, definition(), None)
        for _ in range(100):
            try:
                await self.kube.list(ROLLOUT_FLEETS)
            except NotFound:
                await self.clock.sleep(0.1)
            else:
                return
        raise NotABed("the API server does not serve RolloutFleets")

    async def _ensure(self, resource: Resource, body: Json, namespace: str | None) -> None:
        with suppress(Conflict):  # of an earlier bench
            await self.kube.create(resource, body, namespace=namespace)

    async def _delete(self, resource: Resource, name: str, namespace: str | None) -> None:
        with suppress(NotFound):
            await self.kube.delete(resource, name, namespace=namespace)

    async def _queue(self) -> None:
        system = await self.kube.get(NAMESPACES, "kube-system")
        tags = {"headrace.dev/cluster": system["metadata"]["uid"]}
        made = await self.aws.call("sqs", "CreateQueue", QueueName=NAME, tags=tags)
        self.queue_url = made["QueueUrl"]

    async def _group(self, pool: BenchPool) -> None:
        template = await self.aws.call(
            "ec2",
            "CreateLaunchTemplate",
            LaunchTemplateName=f"{pool.name}-{self.clock.now_s():.0f}",
            LaunchTemplateData=template_of(pool),
        )
        await self.aws.call(
            "autoscaling",
            "CreateAutoScalingGroup",
            AutoScalingGroupName=pool.name,
            LaunchTemplate={"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"},
            MinSize=0,
            MaxSize=_ROOM * max(pool.nodes, self.plan.ceiling - self.plan.nodes, 1),
            DesiredCapacity=pool.nodes,
            AvailabilityZones=[self.region + pool.zone_letter],
            NewInstancesProtectedFromScaleIn=True,
        )
        await self.aws.call(
            "autoscaling", "SuspendProcesses", AutoScalingGroupName=pool.name, ScalingProcesses=["AZRebalance"]
        )

    async def _fill(self, pool: BenchPool) -> None:
        """Wait until a group is as large as it is to be, and have all of it join."""
        found: Sequence[str] = ()
        for _ in range(int(_PATIENCE_S)):
            found = await self.in_service(pool)
            if len(found) == pool.nodes:
                break
            await self.clock.sleep(1.0)
        else:
            raise NotABed(f"{len(found)} of {pool.nodes} instances are in service in {pool.name}")
        await each(self.join(instance, pool) for instance in found)

    async def in_service(self, pool: BenchPool) -> tuple[str, ...]:
        """Ids of a group's instances that are up."""
        found = await self.aws.call("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[pool.name])
        members = found["AutoScalingGroups"][0]["Instances"]
        return tuple(each["InstanceId"] for each in members if each["LifecycleState"] == "InService")

    async def join(self, instance: str, pool: BenchPool) -> None:
        """An instance becomes a node, with a pod and a worker where the plan has them."""
        settled = self.plan.settled and self.controller is None and pool != self.plan.trainers
        labels = fleet_labels(pool.name) if settled else {}
        await self.kube.create(NODES, node_of(instance, self.region + pool.zone_letter, pool.market, labels))
        if pool == self.plan.trainers:
            await self.kube.create(PODS, trainer_pod_of(instance), namespace=NAMESPACE)
            return
        if self.plan.pods:
            await self.kube.create(PODS, pod_of(instance, self._owner), namespace=NAMESPACE)
        if self.workers is not None:
            self.workers.add(WorkerIdentity(worker=worker_name(instance), replica_id=instance, instance_id=instance))
        self.instances[instance] = pool

    async def leave(self, instance: str) -> None:
        """An instance has gone: so have its worker, its pod and its node."""
        self.instances.pop(instance, None)
        if self.workers is not None:
            self.workers.leave(worker_name(instance))
        if self.plan.pods:
            await self._delete(PODS, pod_name(instance), NAMESPACE)
        await self._delete(NODES, node_name(instance), None)

    def _work(self) -> None:
        """Workers for whatever joins, and a trainer."""
        self.workers = MultiplexedWorkers(self.open_ledger, self.clock, self.plan.workers)
        trainer = EatingTrainer(self.open_ledger, self.clock, batches_per_s=self.plan.batches_per_s)
        self.workers.start()
        trainer.start()
        self._held.callback(self.workers.stop)
        self._held.callback(trainer.stop)

    async def _controller(self) -> None:
        folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        self.folder = folder
        port = _free_port()
        settings: dict[str, Any] = settings_of(
            region=self.region,
            endpoint=self.endpoint,
            queue_url=self.queue_url,
            state_dir=str(folder / "state"),
            port=port,
        )
        file = folder / "controller.yaml"
        file.write_text(yaml.safe_dump(settings))
        words = ["run", "--cluster", "-f", str(file), "--kubeconfig", str(self.kubeconfig)]
        log = self._held.enter_context(self.log.open("wb"))
        self.controller = subprocess.Popen(  # noqa: ASYNC220 - started once, and not waited for here
            [sys.executable, "-m", "scaler.cli", *words], stdout=log, stderr=log, env=os.environ | self.plan.variables
        )
        self._held.callback(_end, self.controller)
        self.metrics_url = f"http://127.0.0.1:{port}/metrics"

    @property
    def log(self) -> Path:
        """Where the controller's lines are, once it has been started."""
        if self.folder is None:
            raise NotABed("no controller has been started")
        return self.folder / "controller.log"

    async def ready(self) -> int | None:
        """Replicas that the fleet's status counts as ready."""
        found = await self.kube.get(ROLLOUT_FLEETS, NAME, namespace=NAMESPACE)
        ready: int | None = (found.get("status") or {}).get("ready")
        return ready

    async def _settled(self) -> None:
        """Until the controller counts every worker as ready."""
        ready = None
        for _ in range(int(_PATIENCE_S)):
            ready = await self.ready()
            if ready is not None and ready >= self.plan.nodes:
                return
            await self.clock.sleep(1.0)
        raise NotABed(f"the controller sees {ready} of {self.plan.nodes} replicas ready; {self.last_words()}")

    def last_words(self) -> str:
        """What the controller said last."""
        said = self.log.read_text()[-_LAST_WORDS:] if self.folder else ""
        return f"its last words:\n{said}"

    async def requests(self, of: str) -> Mapping[str, float]:
        """Requests that the controller has sent to the API server (`api`) or to AWS (`aws`), by its labels of them."""
        try:
            async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as answer:
                return _samples(await answer.text(), f"headrace_{of}_requests_total")
        except aiohttp.ClientError as error:
            raise NotABed(f"the controller does not answer ({error}); {self.last_words()}") from error


@asynccontextmanager
async def bench_bed(address: BedAddress, plan: BenchPlan, clock: Clock) -> AsyncIterator[BenchBed]:
    """A bed that nothing stands on yet; whatever was set up on it is taken away in the end."""
    kube = open_api(address.kubeconfig, clock=clock, qps=2000.0, burst=4000)
    aws = open_aws(address.region, clock=clock, endpoint_url=address.endpoint)
    bed = BenchBed(
        kube=kube,
        aws=aws,
        region=address.region,
        endpoint=address.endpoint,
        kubeconfig=address.kubeconfig,
        ledger_url=address.ledger,
        job=f"{NAME}-{clock.now_s():.0f}",
        clock=clock,
        plan=plan,
    )
    try:
        try:
            yield bed
        finally:
            await bed.tear_down()
    finally:
        await kube.close()
        await aws.close()


def told(measured: Coroutine[Any, Any, dict[str, Any]], *, as_json: bool) -> dict[str, Any] | None:
    """Measure and print; None, and a line that says why, where there is no bed to run on."""
    try:
        figures = asyncio.run(measured)
    except (NotABed, KubeError, LedgerError, OSError) as error:
        print(error, file=sys.stderr)
        return None
    print(json.dumps(figures, indent=1) if as_json else table_of([figures]))
    return figures


def worker_name(instance: str) -> str:
    """Of the worker on an instance."""
    return f"w-{instance}"


async def each(calls: Any) -> None:
    """Await all, some at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Any) -> None:
        async with slots:
            await call

    async with asyncio.TaskGroup() as group:
        for call in list(calls):
            group.create_task(one(call))


def added(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """By how much each count has grown."""
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def _samples(page: str, name: str) -> dict[str, float]:
    lines: Sequence[str] = [line for line in page.splitlines() if line.startswith(name)]
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
