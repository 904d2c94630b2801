"""The cluster-side runtime on a real API server."""

from tests.cluster.fixtures import api_server

__all__ = ["api_server"]
