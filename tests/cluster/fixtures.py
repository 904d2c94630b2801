"""Fixtures: a control plane a test process, started when the first test asks for it.

A conftest that needs them says `from tests.cluster.fixtures import api_server` (or `cluster`, `karpenter_cluster`) and
names it in `__all__`; however many conftests do, there is one of each. Tests that use them carry `pytest.mark.cluster`.

They are shared by all tests of a process, in random order: a test makes its objects in a namespace of its own, names its
nodes after itself and removes them, and starts again what it killed. One that cannot keep to this calls `require` and
makes a `ControlPlane`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.build import Unavailable, binaries, is_required
from tests.cluster.control_plane import ControlPlane


def require(*with_: str) -> None:
    """Skip the test where there can be no such control plane; an error where one is required."""
    try:
        binaries(ControlPlane(with_).parts)
    except Unavailable as reason:
        if is_required():
            raise
        pytest.skip(f"no control plane: {reason}")


class _Shared:
    """One control plane for whoever uses it at the time."""

    def __init__(self, *with_: str, audit: bool = False) -> None:
        self._with = with_
        self._audit = audit
        self._users = 0

    @contextmanager
    def use(self) -> Iterator[ControlPlane]:
        if self._users == 0:
            require(*self._with)
            self._plane = ControlPlane(self._with, audit=self._audit)
            self._plane.start()
        self._users += 1
        try:
            yield self._plane
        finally:
            self._users -= 1
            if self._users == 0:
                self._plane.stop()


_API = _Shared()
_CLUSTER = _Shared("controllers", "scheduler", "kwok")
_KARPENTER = _Shared("controllers", "scheduler", "kwok", "karpenter", "kuberay", "lws", audit=True)


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """etcd and kube-apiserver: objects are kept, watched and guarded, and nothing acts on them."""
    with _API.use() as plane:
        yield plane


@pytest.fixture(scope="session")
def cluster() -> Iterator[ControlPlane]:
    """With controllers, the scheduler and kwok: pods of workloads run on nodes that are made."""
    with _CLUSTER.use() as plane:
        yield plane


@pytest.fixture(scope="session")
def karpenter_cluster() -> Iterator[ControlPlane]:
    """As `cluster`, with the KubeRay operator, LeaderWorkerSet, and Karpenter, which does nothing before it has a NodePool."""
    with _KARPENTER.use() as plane:
        yield plane
