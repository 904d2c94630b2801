"""Pools on a simulated region: a group, our client in process on it, nodes, a worker set, and time that is passed by hand."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from scaler.act.auto_scaling_group import AutoScalingGroupPool, AutoScalingGroupSettings
from scaler.act.base import NotYet, PoolActor, PoolUnavailable
from scaler.act.sharing import Places
from scaler.act.worker_sets.base import WorkerPod, WorkerSet, WorkerSetView
from scaler.aws.contract import AwsError, AwsFault
from scaler.aws.errors import classify
from scaler.kube.facts import NodeFacts, NodeIndex
from scaler.model.capacity import CapacityType, Offering
from scaler.model.plan import DetachReplica, LaunchReplica, Reason, ReasonCode, TerminateReplica
from scaler.model.pool import Instance, InstanceState
from tests.builders.clock import FakeClock
from tests.simcloud.errors import CloudError, ConnectionDropped
from tests.simcloud.helpers import make_group
from tests.simcloud.instances import Instance as CloudInstance
from tests.simcloud.sim import SimCloud

TYPE = "p5.48xlarge"
ZONE_A, ZONE_B = "us-east-1a", "us-east-1b"
FLEET, OTHER_FLEET = "ml.grpo", "ml.other"
WHY = Reason(code=ReasonCode.SIZE_UP, message="a test")


def an_offering(
    zone: str = ZONE_A, capacity_type: CapacityType = CapacityType.SPOT, instance_type: str = TYPE
) -> Offering:
    """Spot at ten dollars."""
    return Offering(instance_type=instance_type, zone=zone, capacity_type=capacity_type, price_usd_per_h=10.0)


def a_launch(token: str, offering: Offering | None = None) -> LaunchReplica:
    """One replica more."""
    chosen = offering or an_offering()
    return LaunchReplica(token=token, stage="rollout", pool="spot", offering_id=chosen.offering_id, reason=WHY)


def an_end(*instances: Instance) -> TerminateReplica:
    """The end of one replica, with all of its instances."""
    ids = tuple(instance.instance_id for instance in instances)
    return TerminateReplica(
        stage="rollout", pool="spot", replica_id=instances[0].replica_id, instance_ids=ids, reason=WHY
    )


def a_detach(*instances: Instance) -> DetachReplica:
    """One replica leaves its group."""
    ids = tuple(instance.instance_id for instance in instances)
    return DetachReplica(stage="rollout", pool="spot", replica_id=instances[0].replica_id, instance_ids=ids, reason=WHY)


class SimAws:
    """`Aws` on a simulated region in the same process; answers and errors as over the wire."""

    def __init__(self, sim: SimCloud, caller: str = "HEADRACE") -> None:
        self.sim = sim
        self.caller = caller
        self.ahead: float | None = 0.0
        self._counts: dict[tuple[str, str], int] = {}

    async def call(self, service: str, operation: str, /, **parameters: Any) -> Mapping[str, Any]:
        key = service, operation
        self._counts[key] = self._counts.get(key, 0) + 1
        try:
            return self.sim.call(service, operation, caller=self.caller, **parameters)
        except CloudError as error:
            fault = classify(error.code, error.status or 400, error.message)
            raise AwsError(
                f"{operation}: {error.code}: {error.message}", fault=fault, code=error.code, operation=operation
            ) from error
        except ConnectionDropped as error:
            raise AwsError(f"{operation}: {error}", fault=AwsFault.UNREACHABLE, operation=operation) from error

    async def pages(self, service: str, operation: str, key: str, /, **parameters: Any) -> tuple[Any, ...]:
        items: list[Any] = []
        token: dict[str, str] = {}
        while True:
            answer = await self.call(service, operation, **parameters, **token)
            items += answer[key]
            if not answer.get("NextToken"):
                return tuple(items)
            token = {"NextToken": answer["NextToken"]}

    def ahead_s(self) -> float | None:
        return self.ahead

    def counts(self) -> Mapping[tuple[str, str], int]:
        return self._counts

    async def close(self) -> None:
        pass


@dataclass
class Nodes:
    """A `NodeIndex` of nodes that tests put there."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    """By instance id."""

    @property
    def current_at_s(self) -> float | None:
        return 0.0

    def all(self) -> tuple[NodeFacts, ...]:
        return tuple(self.nodes.values())

    def by_name(self, name: str) -> NodeFacts | None:
        return next((node for node in self.nodes.values() if node.name == name), None)

    def by_instance(self, instance_id: str) -> NodeFacts | None:
        return self.nodes.get(instance_id)

    async def changed(self) -> None:
        pass

    def join(self, instance_id: str, labels: Mapping[str, str] | None = None) -> NodeFacts:
        """The node of an instance."""
        node = NodeFacts(
            name=f"node-{instance_id}",
            uid=f"uid-{instance_id}",
            resource_version="1",
            created_at_s=0.0,
            instance_id=instance_id,
            instance_type=TYPE,
            zone=ZONE_A,
            capacity_type="spot",
            labels=dict(labels or {}),
            annotations={},
            taints=(),
            unschedulable=False,
            ready=True,
            conditions=(),
            allocatable={},
            deleting=False,
        )
        self.nodes[instance_id] = node
        return node


@dataclass
class Deployment:
    """A worker set of one pod a replica, which keeps its count by making pods anew, as a ReplicaSet does."""

    desired: int = 0
    pods: dict[str, WorkerPod] = field(default_factory=dict)
    """By UID."""
    tokens: set[str] = field(default_factory=set)
    refused: str | None = None
    slow: bool = False
    """Pods that are taken out stay for a while."""
    made: int = 0

    async def observe(self) -> WorkerSetView:
        return WorkerSetView(
            listed_at_s=0.0, pods=tuple(self.pods.values()), desired=self.desired, refused_reason=self.refused
        )

    async def add(self, token: str, offering_id: str) -> bool:
        if token in self.tokens:
            return False
        self.tokens.add(token)
        self.desired += 1
        self.fill()
        return True

    async def remove(self, replica_key: str) -> bool:
        pod = self.pods.get(replica_key)
        if pod is None:
            return True
        if not pod.terminating:
            self.desired -= 1
            self.pods[replica_key] = _pod(pod.name, replica_key, pod.node_name, terminating=True)
        if not self.slow:
            del self.pods[replica_key]
        return not self.slow

    async def close(self) -> None:
        pass

    def fill(self) -> None:
        """Make pods up to the count."""
        while sum(not pod.terminating for pod in self.pods.values()) < self.desired:
            self.made += 1
            self.pods[f"pod-{self.made}"] = _pod(f"worker-{self.made}", f"pod-{self.made}", "")

    def schedule(self, node_name: str) -> None:
        """The oldest pod that waits goes to that node."""
        uid, pod = next((uid, pod) for uid, pod in self.pods.items() if not pod.node_name)
        self.pods[uid] = _pod(pod.name, uid, node_name)

    def evict(self, node_name: str) -> None:
        """The pods of a node go, and others are made in their place."""
        self.pods = {uid: pod for uid, pod in self.pods.items() if pod.node_name != node_name}
        self.fill()

    def on(self, node_name: str) -> list[str]:
        """UIDs of a node's pods."""
        return [uid for uid, pod in self.pods.items() if pod.node_name == node_name]


def _pod(name: str, uid: str, node_name: str, *, terminating: bool = False) -> WorkerPod:
    return WorkerPod(
        name=name,
        namespace="ml",
        uid=uid,
        node_name=node_name,
        replica_key=uid,
        launch_token="",
        created_at_s=0.0,
        ready=bool(node_name),
        terminating=terminating,
    )


class Bed:
    """One group in one region."""

    def __init__(self, seed: int = 7) -> None:
        self.clock = FakeClock(1_800_000_000.0)
        self.sim = SimCloud(self.clock, seed)
        self.aws = SimAws(self.sim)
        self.nodes = Nodes()
        self.places = Places()

    def group(self, name: str = "rollout", **settings: Any) -> None:
        """A group as the pool wants it, unless told otherwise."""
        make_group(self.sim, name, **settings)

    def settings(self, *, group: str = "rollout", fleet: str = FLEET, **more: Any) -> AutoScalingGroupSettings:
        """Settings of a pool on it."""
        given: dict[str, Any] = {"offerings": (an_offering(),), "nodes": self.nodes, "places": self.places} | more
        return AutoScalingGroupSettings(aws=self.aws, group=group, fleet=fleet, **given)

    def pool(self, *, group: str = "rollout", fleet: str = FLEET, **more: Any) -> AutoScalingGroupPool:
        """A pool on it; a controller of its own where `places` is new."""
        return AutoScalingGroupPool(self.settings(group=group, fleet=fleet, **more), pool="spot", clock=self.clock)

    def restarted(self, **more: Any) -> AutoScalingGroupPool:
        """The pool of a controller that remembers nothing."""
        return self.pool(places=Places(), **more)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in the cloud too."""
        self.clock.pass_time(seconds)
        self.sim.advance()

    async def up(self, pool: PoolActor, *tokens: str, offering: Offering | None = None) -> tuple[Instance, ...]:
        """Launch these and wait until they serve."""
        for token in tokens:
            await pool.launch(a_launch(token, offering))
        self.pass_time(30)
        return await listed(pool)

    def desired(self, group: str = "rollout") -> int:
        """What the group is told to hold."""
        self.sim.advance()
        return self.sim.groups.get(group).desired

    def running(self, group: str | None = None) -> list[CloudInstance]:
        """What EC2 runs."""
        return self.sim.running(group)

    def calls(self, operation: str) -> int:
        """Calls of an operation by us."""
        return sum(call.caller == self.aws.caller for call in self.sim.log.of(operation))


async def listed(pool: PoolActor) -> tuple[Instance, ...]:
    """What the pool lists."""
    return (await pool.observe()).instances


async def by_token(pool: PoolActor) -> dict[str, InstanceState]:
    """State of each listed instance by its launch token."""
    return {instance.launch_token: instance.state for instance in await listed(pool)}


async def until_settled(act: Any, bed: Bed, *, turns: int = 30, every_s: float = 10.0) -> Any:
    """Repeat a command with every turn of the loop, as the controller does, until it is answered."""
    for _ in range(turns):
        try:
            return await act()
        except (NotYet, PoolUnavailable):
            bed.pass_time(every_s)
    raise AssertionError("never answered")


@pytest.fixture
def bed() -> Iterator[Bed]:
    """A region with an empty group."""
    made = Bed()
    made.group()
    yield made
    check_endings(made)


def check_endings(bed: Bed) -> None:
    """Whatever we ended was named: no group chose a victim because of us."""
    for ended in bed.sim.ended():
        if ended.caller == bed.aws.caller:
            assert ended.by in ("terminate_named", "terminate_instances"), ended


def is_a(index: Nodes, workers: Deployment) -> tuple[NodeIndex, WorkerSet]:
    """The fakes are what they stand for."""
    return index, workers
