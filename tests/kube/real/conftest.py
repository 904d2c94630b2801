"""A control plane of these tests' own: they kill and stop its parts."""

from collections.abc import AsyncIterator, Iterator

import pytest

from scaler.kube.api import open_api
from scaler.kube.contract import KubeApi
from scaler.runtime.clock import SystemClock
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import require


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    require()
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[KubeApi]:
    """The test's own client, not that of what is tested."""
    client = open_api(plane.kubeconfig, clock=SystemClock())
    yield client
    await client.close()
