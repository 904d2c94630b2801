"""What `bench interruptions` sets up on a test bed and takes away again.

A group of instances, their nodes, a worker each in the ledger, the queue, the fleet and the controller's process. It only
runs against a bed: an API server all of whose nodes are kwok's, and an AWS endpoint that was named. Names carry `bench`.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from scaler.aws.contract import Aws
from scaler.commands.bench_workers import EatingTrainer, MultiplexedWorkers, WorkerSettings
from scaler.config.crd import definition
from scaler.kube.contract import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    NAMESPACES,
    NODES,
    ROLLOUT_FLEETS,
    Conflict,
    Json,
    KubeApi,
    NotFound,
    Resource,
)
from scaler.ledger.contract import Ledger
from scaler.ledger.registry import open_ledger
from scaler.model.clock import Clock
from scaler.model.job import JobSettings, WorkerIdentity

NAMESPACE = "headrace-bench"
NAME = "bench"
ZONE_LETTER = "a"
TYPE = "p5.48xlarge"
SETTINGS = JobSettings(group_size=4, batch_groups=8, max_staleness=1000, max_concurrent=100_000)
_KWOK = "kwok.x-k8s.io/node"
_AT_ONCE = 32
_LAST_WORDS = 4000
_PATIENCE_S = 300.0


class NotABed(Exception):
    """What was named is no test bed, or does not answer as one; the text says why."""


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
    nodes: int
    job: str = NAME
    instances: tuple[str, ...] = ()
    queue_url: str = ""
    metrics_url: str = ""
    folder: Path | None = None
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
        await self._ensure(DAEMON_SETS, _daemon_set(), NAMESPACE)
        await self._queue()
        await self._group()
        await self._join()
        self._work()
        await self._controller()
        await self.kube.create(ROLLOUT_FLEETS, self._fleet(), namespace=NAMESPACE)
        await self._settled()

    async def tear_down(self) -> None:
        """Take away what was set up."""
        await self._held.aclose()
        for resource, name in ((ROLLOUT_FLEETS, NAME), (CONFIG_MAPS, f"headrace-journal-{NAME}")):
            await self._delete(resource, name, NAMESPACE)
        await self.aws.call("autoscaling", "DeleteAutoScalingGroup", AutoScalingGroupName=NAME, ForceDelete=True)
        listed = await self.kube.list(NODES, label_selector=f"headrace.dev/bench={NAME}")
        await each(self._delete(NODES, node["metadata"]["name"], None) for node in listed.items)

    async def _check(self) -> None:
        nodes = (await self.kube.list(NODES)).items
        strangers = [
            node["metadata"]["name"] for node in nodes if _KWOK not in (node["metadata"].get("annotations") or {})
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

    async def _group(self) -> None:
        data = {
            "InstanceType": TYPE,
            "ImageId": "ami-0123456789abcdef0",
            "InstanceMarketOptions": {"MarketType": "spot"},
        }
        template = await self.aws.call(
            "ec2",
            "CreateLaunchTemplate",
            LaunchTemplateName=f"{NAME}-{self.clock.now_s():.0f}",
            LaunchTemplateData=data,
        )
        await self.aws.call(
            "autoscaling",
            "CreateAutoScalingGroup",
            AutoScalingGroupName=NAME,
            LaunchTemplate={"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"},
            MinSize=0,
            MaxSize=3 * self.nodes,
            DesiredCapacity=self.nodes,
            AvailabilityZones=[self.region + ZONE_LETTER],
            NewInstancesProtectedFromScaleIn=True,
        )
        await self.aws.call(
            "autoscaling", "SuspendProcesses", AutoScalingGroupName=NAME, ScalingProcesses=["AZRebalance"]
        )
        for _ in range(int(_PATIENCE_S)):
            self.instances = await self._in_service()
            if len(self.instances) == self.nodes:
                return
            await self.clock.sleep(1.0)
        raise NotABed(f"{len(self.instances)} of {self.nodes} instances are in service")

    async def _in_service(self) -> tuple[str, ...]:
        found = await self.aws.call("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[NAME])
        members = found["AutoScalingGroups"][0]["Instances"]
        return tuple(each["InstanceId"] for each in members if each["LifecycleState"] == "InService")

    async def _join(self) -> None:
        zone = self.region + ZONE_LETTER
        await each(self.kube.create(NODES, node_of(instance, zone)) for instance in self.instances)

    def _work(self) -> None:
        """A worker on every node, each busy; what replaces them joins nothing: launches are asked for, no more."""
        workers = MultiplexedWorkers(
            self.open_ledger,
            self.clock,
            WorkerSettings(units_at_once=1, unit_s=30.0, beat_s=max(2.0, self.nodes / 100)),
        )
        for instance in self.instances:
            workers.add(WorkerIdentity(worker=f"w-{instance}", replica_id=instance, instance_id=instance))
        trainer = EatingTrainer(self.open_ledger, self.clock, batches_per_s=1.0)
        workers.start()
        trainer.start()
        self._held.callback(workers.stop)
        self._held.callback(trainer.stop)

    async def _controller(self) -> None:
        folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        self.folder = folder
        port = _free_port()
        file = folder / "controller.yaml"
        file.write_text(yaml.safe_dump(self._settings(folder, port)))
        words = ["run", "--cluster", "-f", str(file), "--kubeconfig", str(self.kubeconfig)]
        log = self._held.enter_context((folder / "controller.log").open("wb"))
        process = subprocess.Popen(  # noqa: ASYNC220 - started once, and not waited for here
            [sys.executable, "-m", "scaler.cli", *words], stdout=log, stderr=log, env=dict(os.environ)
        )
        self._held.callback(_end, process)
        self.metrics_url = f"http://127.0.0.1:{port}/metrics"

    def _settings(self, folder: Path, port: int) -> dict[str, Any]:
        return {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "Controller",
            "metadata": {"name": NAME},
            "spec": {
                "namespaces": [NAMESPACE],
                "aws": {"region": self.region, "endpointUrl": self.endpoint},
                "notices": {"queue": {"url": self.queue_url}, "instanceStatus": False},
                "election": {"namespace": NAMESPACE, "name": NAME},
                "listen": f"127.0.0.1:{port}",
                "stateDir": str(folder / "state"),
            },
        }

    def _fleet(self) -> Json:
        """A fleet that wants exactly what is there, and replaces what goes."""
        pool = {
            "name": "spot",
            "launchTimeout": "1h",
            "provider": {
                "type": "auto_scaling_group",
                "group": NAME,
                "workerSet": {"type": "daemon_set", "name": NAME},
            },
            "offerings": [
                {
                    "instanceType": TYPE,
                    "zone": self.region + ZONE_LETTER,
                    "capacityType": "spot",
                    "priceUsdPerH": "10.00",
                }
            ],
        }
        rails = {"floor": self.nodes, "ceiling": self.nodes}
        stage = {
            "name": "rollout",
            "policy": {"type": "static", "replicas": self.nodes},
            "guardRails": rails,
            "pools": [pool],
        }
        job = {"name": self.job, "groupSize": 4, "batchGroups": 8, "maxStaleness": 1000, "maxConcurrent": 100_000}
        spec = {
            "spendCapUsdPerH": "1000000.00",
            "dryRun": False,
            "job": job,
            "ledger": {"type": "valkey", "url": self.ledger_url},
            "stages": [stage],
        }
        return {
            "apiVersion": ROLLOUT_FLEETS.api_version,
            "kind": ROLLOUT_FLEETS.kind,
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": spec,
        }

    async def _settled(self) -> None:
        """Until the controller counts every worker as ready."""
        ready = None
        for _ in range(int(_PATIENCE_S)):
            found = await self.kube.get(ROLLOUT_FLEETS, NAME, namespace=NAMESPACE)
            ready = (found.get("status") or {}).get("ready")
            if ready == self.nodes:
                return
            await self.clock.sleep(1.0)
        raise NotABed(f"the controller sees {ready} of {self.nodes} replicas ready; {self.last_words()}")

    def last_words(self) -> str:
        """What the controller said last."""
        said = (self.folder / "controller.log").read_text()[-_LAST_WORDS:] if self.folder else ""
        return f"its last words:\n{said}"

    async def api_requests(self) -> Mapping[str, float]:
        """Requests that the controller has sent to the API server, by verb and resource."""
        try:
            async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as answer:
                return _samples(await answer.text(), "headrace_api_requests_total")
        except aiohttp.ClientError as error:
            raise NotABed(f"the controller does not answer ({error}); {self.last_words()}") from error


def node_of(instance_id: str, zone: str) -> Json:
    """The node of an instance, as EKS registers one; kwok takes it for its own."""
    room = {"cpu": "192", "memory": "2048Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"bench-{instance_id}",
            "labels": {
                "headrace.dev/bench": NAME,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": zone,
                "node.kubernetes.io/instance-type": TYPE,
                "eks.amazonaws.com/capacityType": "SPOT",
            },
            "annotations": {_KWOK: "fake"},
        },
        "spec": {"providerID": f"aws:///{zone}/{instance_id}"},
        "status": {"capacity": room, "allocatable": room},
    }


def notice_of(instance_id: str, at: str) -> str:
    """The message of a Spot interruption, as EventBridge puts it into a queue."""
    return json.dumps(
        {
            "version": "0",
            "id": f"bench-{instance_id}",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "account": "123456789012",
            "time": at,
            "region": "us-east-1",
            "resources": [],
            "detail": {"instance-id": instance_id, "instance-action": "terminate"},
        }
    )


async def each(calls: Any) -> None:
    """Await all, some at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Any) -> None:
        async with slots:
            await call

    async with asyncio.TaskGroup() as group:
        for call in list(calls):
            group.create_task(one(call))


def _daemon_set() -> Json:
    """The worker set that the fleet names; it selects no node: the bench's workers are clients of the ledger."""
    labels = {"app": NAME}
    container = {"name": "worker", "image": "worker"}
    spec = {"nodeSelector": {"headrace.dev/bench": "none"}, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


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
