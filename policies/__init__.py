"""Sizing and placement policies: pure functions, one a file, listed in `policies.registry`."""
