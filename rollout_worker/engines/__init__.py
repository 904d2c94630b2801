"""Engines, one a file."""
