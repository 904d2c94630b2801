"""What stays for good is taken out of the garbage collector's sight, once it is there and not before."""

import asyncio
import gc
from collections.abc import Iterator
from typing import cast

import pytest

from scaler.kube.facts import PodIndex
from scaler.runtime.cluster.heap import settle_heap
from tests.builders.clock import FakeClock
from tests.builders.nodes import Nodes


@pytest.fixture
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()  # as the tests' own conftest had it


@pytest.mark.usefixtures("thawed")
async def test_the_heap_is_settled_after_the_first_lists() -> None:
    clock, nodes = FakeClock(), Nodes(at_s=None)
    settling = asyncio.ensure_future(settle_heap(nodes, cast("PodIndex", nodes), clock))
    await clock.advance(5.0)
    assert gc.get_freeze_count() == 0
    nodes.at_s = clock.now_s()
    await clock.advance(1.0)
    await settling
    assert gc.get_freeze_count() > 0
