"""Every test of this folder runs on the fake and on a real API server, through our client."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import NAMESPACES, NODES, Json, KubeApi
from scaler.runtime.clock import SystemClock
from tests.builders.fake_kube import FakeKube
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import api_server

__all__ = ["api_server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A client, and a namespace and a prefix that no other test uses."""

    api: KubeApi
    namespace: str

    async def node(self, name: str = "a", **more: object) -> Json:
        """A node of this test."""
        meta = {"name": f"{self.namespace}-{name}", "labels": {"test": self.namespace}}
        return await self.api.create(NODES, {"metadata": meta, **more})


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    if request.param == "fake":
        yield await _begun(FakeKube(SystemClock()))
        return
    plane: ControlPlane = request.getfixturevalue("api_server")
    bench = await _begun(open_api(plane.kubeconfig, clock=SystemClock()))
    yield bench
    for node in (await bench.api.list(NODES, label_selector=f"test={bench.namespace}")).items:
        await bench.api.delete(NODES, node["metadata"]["name"])
    await bench.api.close()


async def _begun(api: KubeApi) -> Bench:
    namespace = f"kube-{uuid4().hex[:8]}"
    await api.create(NAMESPACES, {"metadata": {"name": namespace}})
    return Bench(api=api, namespace=namespace)
