"""The control plane of the tests, for what is installed into one."""

from tests.cluster.fixtures import api_server

__all__ = ["api_server"]
