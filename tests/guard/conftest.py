"""Drills run on the fake API server and on a real one, through our client."""

from collections.abc import AsyncIterator

import pytest

from scaler.kube.api import open_api
from scaler.runtime.clock import SystemClock
from tests.builders.fake_kube import FakeKube
from tests.builders.trainer_objects import TrainerOnApi
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import api_server, karpenter_cluster

__all__ = ["api_server", "karpenter_cluster"]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[TrainerOnApi]:
    """A trainer that lacks nothing."""
    clock = SystemClock()
    if request.param == "fake":
        fake = TrainerOnApi(api=FakeKube(clock), clock=clock)
        await fake.begin()
        yield fake
        return
    plane: ControlPlane = request.getfixturevalue("api_server")
    real = TrainerOnApi(api=open_api(plane.kubeconfig, clock=clock), clock=clock)
    await real.begin()
    yield real
    await real.end()
    await real.api.close()
