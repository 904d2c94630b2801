"""The node agent: reads instance metadata on its node and writes what workers need into files. No API credentials.

Worker pods are kept from 169.254.169.254, where credentials of the node can be had; this small host-network process is not,
and serves nothing. It imports neither a Kubernetes nor an AWS client.
"""
