"""The loop, the clock, the journal, health and the read-only HTTP API."""
