"""Which tests run where: those marked `long` only where somebody asks for them, as `make test-long` does.

Also what a run of thousands of tests in one process needs: thousands of items and all modules stay for good, and the garbage
collector looked at them again and again, a tenth of the time. They are taken out of its sight, and it looks less often.

And no property fails for the time that an example takes, or that it takes to make one: a busy machine takes longer.
"""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from tests.order import dealt

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

LONG = "HEADRACE_LONG"
"""Set to 1: tests that take a minute and more each run too."""


_LOOK_AFTER = 20_000
"""Objects more than before: then the collector looks at the newest. The rest of them comes twenty times more seldom each."""


def pytest_collection_finish() -> None:
    """From here on only what tests make is garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_LOOK_AFTER, 20, 20)


def pytest_sessionfinish() -> None:
    """What goes with the process is garbage again, or libraries that count their objects say that they leaked."""
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take long begin first. Skip what is long, and say how to have it."""
    bedded = [item for item in items if item.get_closest_marker("cluster")]
    slow = [item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("cluster")]
    chosen = {*bedded, *slow}
    rest = [item for item in items if item not in chosen]
    items[:] = dealt(bedded, slow, rest, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    if os.environ.get(LONG) == "1":
        return
    skip = pytest.mark.skip(reason=f"takes a minute or more: make test-long, or {LONG}=1")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)
