"""Adapters in: from the ledger and the pools to one Snapshot."""
