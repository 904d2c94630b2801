"""Adapters out: what carries a plan's commands out, one file a kind of pool."""
