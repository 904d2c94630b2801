"""Kubernetes as a transport: raw JSON in and out, watched lists, the leader's lease. Knows no fleet."""
