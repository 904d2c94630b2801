"""Worker sets and Karpenter on a real control plane."""

from tests.cluster.fixtures import api_server, cluster, karpenter_cluster

__all__ = ["api_server", "cluster", "karpenter_cluster"]
