"""Metric names (all in one file), logs, events."""
