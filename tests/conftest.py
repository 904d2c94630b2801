"""Which tests run where: those marked `long` only where somebody asks for them, as `make test-long` does."""

import os

import pytest

LONG = "HEADRACE_LONG"
"""Set to 1: tests that take a minute and more each run too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is long, and say how to have it."""
    if os.environ.get(LONG) == "1":
        return
    skip = pytest.mark.skip(reason=f"takes a minute or more: make test-long, or {LONG}=1")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)
