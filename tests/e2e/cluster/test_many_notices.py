"""Two hundred notices at once, while the cloud loses and replaces some of the same machines by itself."""

import asyncio
from pathlib import Path

import pytest

from scaler.commands.bench_workers import WorkerSettings
from tests.cluster.fixtures import require
from tests.e2e.cluster.base import CALLER
from tests.e2e.cluster.bed import a_bed
from tests.simcloud.journal import BY_CALLERS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

_TARGET, _NOTICED, _BROKEN = 220, 200, 15
_ZONE = "us-east-1a"


async def test_two_hundred_notices_end_exactly_at_the_target(tmp_path: Path) -> None:
    require("controllers", "scheduler", "kwok")
    slow = WorkerSettings(units_at_once=1, unit_s=20.0, beat_s=3.0)
    async with a_bed(tmp_path, zones=(_ZONE,), work=slow) as bed:
        bed.eat(10.0)
        bed.start_controller()
        await bed.fleet(
            zones=(_ZONE,),
            policy={"type": "static", "replicas": _TARGET},
            guardRails={"floor": _TARGET, "ceiling": _TARGET},
        )
        await bed.until("the whole fleet", lambda: len(bed.workers.names) == _TARGET, 240)

        gone = set(bed.sim.fate.reclaim(_NOTICED))
        # These end at once, before anybody can take them out of their group: it replaces them by itself.
        broken = set(bed.sim.fate.fail(sorted(gone)[:_BROKEN]))
        await bed.until("noticed instances have left their group", lambda: gone.isdisjoint(bed.launched()), 120)
        await bed.until("the target is served anew", lambda: bed.serving(gone) == _TARGET, 240)
        for _ in range(20):
            await asyncio.sleep(0.5)
            assert len(bed.launched()) == _TARGET
        ended = [each for each in bed.sim.log.ended if each.by in BY_CALLERS]
        assert not gone & {each.instance_id for each in ended}
        assert {each.caller for each in ended} <= {CALLER}
        assert broken
