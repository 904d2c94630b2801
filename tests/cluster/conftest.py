"""The control planes of the tests of this folder."""

from tests.cluster.fixtures import api_server, cluster, karpenter_cluster

__all__ = ["api_server", "cluster", "karpenter_cluster"]
