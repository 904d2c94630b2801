"""Worker sets and Karpenter on a real control plane."""

from tests.cluster.fixtures import cluster, karpenter_cluster

__all__ = ["cluster", "karpenter_cluster"]
