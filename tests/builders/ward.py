"""A cluster in memory with one fleet that lacks nothing, for `headrace doctor`: tests make one thing of it wrong."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from scaler.commands.doctor import look_at_fleet
from scaler.commands.doctor_checks.base import Level, Line
from scaler.commands.doctor_checks.cluster_world import Access
from scaler.commands.doctor_checks.http_probes import Heard
from scaler.commands.doctor_checks.rights import ACCESS_REVIEWS, SELF_REVIEWS
from scaler.config.controller import Controller
from scaler.config.crd import definition
from scaler.config.custom_object import accepted
from scaler.kube.contract import DEFINITIONS, LEASES, NAMESPACES, NODES, PODS, ROLLOUT_FLEETS, Json, KubeError, Resource
from scaler.kube.facts import FLEET_LABEL
from scaler.kube.lease_record import written
from tests.builders.clock import FakeClock
from tests.builders.ec2_pools import SimAws
from tests.builders.fake_kube import FakeKube
from tests.builders.fleet_status import a_status
from tests.builders.fleet_yaml import a_stage, an_asg, an_offering
from tests.builders.rollout_fleets import an_object
from tests.simcloud.helpers import make_group
from tests.simcloud.sim import SimCloud

SYSTEM = "headrace-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:headrace"
GROUP = "rollout-a"


class Reviewing(FakeKube):
    """Answers reviews of rights: all are granted but those in `denied`, as (verb, resource)."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.user = ACCOUNT
        self.denied: set[tuple[str, str]] = set()
        self.away: KubeError | None = None

    async def create(self, resource: Resource, body: Json, *, namespace: str | None = None) -> Json:
        if self.away is not None:
            raise self.away
        if resource == SELF_REVIEWS:
            return {"status": {"userInfo": {"username": self.user}}}
        if resource == ACCESS_REVIEWS:
            asked = body["spec"]["resourceAttributes"]
            resource_name = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {"status": {"allowed": (asked["verb"], resource_name) not in self.denied}}
        return await super().create(resource, body, namespace=namespace)


def a_spot_pool(**provider: Any) -> Json:
    """On the group of the simulated region."""
    offering = an_offering(instanceType="p5.48xlarge", zone="us-east-1a", priceUsdPerH="10.00")
    return {**an_asg(**{"group": GROUP, **provider}), "offerings": [offering]}


@dataclass
class Ward:
    """The cluster. `begin` before anything else; `look` gives the doctor's lines."""

    ledger: str = "valkey://127.0.0.1:1/0"
    spec: Json = field(default_factory=dict)
    clock: FakeClock = field(default_factory=lambda: FakeClock(1_800_000_000.0))
    heard: Heard | None = None
    on_aws: bool = True

    def __post_init__(self) -> None:
        self.kube = Reviewing(self.clock)
        self.sim = SimCloud(self.clock, 7)
        self.aws = SimAws(self.sim)
        self.queue_url = ""
        self.refused = False
        """Whether the spec was, when it was looked at last."""

    async def begin(self, **group: Any) -> None:
        """Everything, lacking nothing."""
        make_group(self.sim, GROUP, **group)
        cluster = self.kube.place(NAMESPACES, {"metadata": {"name": "kube-system"}})["metadata"]["uid"]
        self.queue_url = self.queue("notices", cluster)
        await self.kube.create(DEFINITIONS, definition())
        ledger = {"type": "valkey", "url": self.ledger}
        spec = {"ledger": ledger, "dryRun": False, "stages": [a_stage(pools=[a_spot_pool()])], **self.spec}
        await self.kube.create(ROLLOUT_FLEETS, an_object(**spec), namespace="rl")
        await self.judge()
        self.renew()
        self.node("node-a")
        self.pod("agent", "node-a", SYSTEM, {"app.kubernetes.io/component": "node-agent"})
        self.pod("worker", "node-a", "rl", {FLEET_LABEL: "rl.demo"})

    def queue(self, name: str, cluster: str) -> str:
        """A queue that is tagged with a cluster's UID; its URL."""
        tags = {"headrace.dev/cluster": cluster}
        return str(self.sim.call("sqs", "CreateQueue", QueueName=name, tags=tags)["QueueUrl"])

    async def judge(self, status: Json | None = None) -> None:
        """The controller writes the fleet's status."""
        body = await self.kube.get(ROLLOUT_FLEETS, "demo", namespace="rl")
        told = {
            "observedGeneration": body["metadata"].get("generation", 0),
            "lastAccepted": accepted(body).to_json(),
        }
        change = {"status": {**(status or a_status()), **told}}
        await self.kube.patch(ROLLOUT_FLEETS, "demo", change, namespace="rl", subresource="status")

    def renew(self, *, before_s: float = 1.0, holder: str = "headrace-0_x") -> None:
        """The lease as its holder left it so long ago."""
        at_s = self.clock.now_s() - before_s
        body = written(None, name="headrace", holder=holder, epoch=7, duration_s=10, now_s=at_s)
        if self.kube.store.has(LEASES, SYSTEM, "headrace"):
            self.kube.store.remove(LEASES, SYSTEM, "headrace", None, 0)
        self.kube.place(LEASES, body, namespace=SYSTEM)

    def node(self, name: str, fleet: str = "rl.demo") -> None:
        """A node that carries a fleet's label."""
        self.kube.place(NODES, {"metadata": {"name": name, "labels": {FLEET_LABEL: fleet}}, "spec": {}, "status": {}})

    def pod(self, name: str, node: str, namespace: str, labels: Json) -> None:
        """One that is ready."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        meta = {"name": name, "namespace": namespace, "labels": labels}
        self.kube.place(PODS, {"metadata": meta, "spec": {"nodeName": node}, "status": status})

    def settings(self, **spec: Any) -> Controller:
        """The controller's."""
        queue = {"queue": {"url": self.queue_url}}
        plain = {"aws": {"region": "us-east-1"}, "namespaces": ["rl"], "notices": queue}
        head = {"apiVersion": "headrace.dev/v1alpha1", "kind": "Controller", "metadata": {"name": "headrace"}}
        return Controller.model_validate({**head, "spec": {**plain, **spec}})

    async def look(self, settings: Controller | None = None, fleet: str = "demo") -> list[Line]:
        """What the doctor finds; its waits pass at once."""
        access = Access(
            clock=self.clock,
            kube=self.kube,
            reviews=self.kube,
            aws=self.aws if self.on_aws else None,
            settings=settings or self.settings(),
            namespace="rl",
            name=fleet,
            heard=self.heard,
        )
        looking = asyncio.ensure_future(look_at_fleet(access))
        while not looking.done():
            await asyncio.wait((looking,), timeout=0.002)
            await self.clock.advance(0.25)
        self.refused, lines = looking.result()
        return list(lines)


def about(lines: list[Line], words: str) -> Line:
    """The one line about these words."""
    (found,) = [line for line in lines if words in line.about]
    return found


def troubles(lines: list[Line]) -> list[tuple[str, str]]:
    """What is not well, as (level, about)."""
    return [(line.level.value, line.about) for line in lines if line.level is not Level.OK]
