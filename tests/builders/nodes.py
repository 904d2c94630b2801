"""Node facts and an index of them that a test moves by hand."""

import asyncio
from dataclasses import replace
from itertools import count

from scaler.kube.facts import Condition, NodeFacts, Taint

_VERSIONS = count(1)


def a_node(
    instance_id: str,
    *taints: Taint,
    conditions: tuple[Condition, ...] = (),
    annotations: dict[str, str] | None = None,
    name: str = "node-1",
    uid: str = "",
) -> NodeFacts:
    return NodeFacts(
        name=name,
        uid=uid or f"uid-of-{instance_id}",
        resource_version=str(next(_VERSIONS)),
        created_at_s=0.0,
        instance_id=instance_id,
        instance_type="g5.xlarge",
        zone="z1",
        capacity_type="spot",
        labels={},
        annotations=annotations or {},
        taints=taints,
        unschedulable=False,
        ready=True,
        conditions=conditions,
        allocatable={},
        deleting=False,
    )


class Nodes:
    """A `NodeIndex`."""

    def __init__(self, *nodes: NodeFacts, at_s: float | None = 0.0) -> None:
        self.nodes = {node.uid: node for node in nodes}
        self.at_s = at_s
        self._news = asyncio.Event()

    @property
    def current_at_s(self) -> float | None:
        return self.at_s

    def put(self, *nodes: NodeFacts) -> None:
        self.nodes |= {node.uid: replace(node, resource_version=str(next(_VERSIONS))) for node in nodes}
        self._news.set()

    def remove(self, uid: str) -> None:
        del self.nodes[uid]
        self._news.set()

    def all(self) -> tuple[NodeFacts, ...]:
        return tuple(self.nodes.values())

    def by_name(self, name: str) -> NodeFacts | None:
        return next((node for node in self.all() if node.name == name), None)

    def by_instance(self, instance_id: str) -> NodeFacts | None:
        return next((node for node in self.all() if instance_id and node.instance_id == instance_id), None)

    async def changed(self) -> None:
        await self._news.wait()
        self._news.clear()
