"""A fleet from its floor to its ceiling, through the loss of a third, and back to its floor, on real servers."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import require
from tests.e2e.cluster.bed import a_bed

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]


async def test_first(tmp_path: Path) -> None:
    require("controllers", "scheduler", "kwok")
    async with a_bed(tmp_path) as bed:
        bed.eat(80.0)
        bed.start_controller()
        await bed.fleet()
        print("floor", await bed.until("the floor", lambda: len(bed.launched()) >= 2, 60))
        print("ceiling", await bed.until("the ceiling", lambda: len(bed.workers.names) >= 32, 90))
        print(await bed.status())
