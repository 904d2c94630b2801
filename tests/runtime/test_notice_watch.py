"""Several sources as one: each standing notice once, the earliest deadline of those that contradict each other."""

import asyncio
import itertools
import math

import pytest

from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.runtime.notice_watch import NoticeWatch
from tests.builders.clock import FakeClock
from tests.builders.fleet import FakeNotices


def a_notice(instance_id: str, deadline_s: float | None) -> InterruptionNotice:
    kind = NoticeKind.SPOT_INTERRUPTION
    return InterruptionNotice(instance_id=instance_id, kind=kind, noticed_at_s=1.0, deadline_s=deadline_s)


async def heard(*notices: InterruptionNotice) -> dict[str, float | None]:
    """Deadlines by instance, one source a notice, in this order."""
    clock = FakeClock()
    watch = NoticeWatch({f"s{n}": FakeNotices(clock, (notice,)) for n, notice in enumerate(notices)}, clock)
    await watch.poll()
    current = watch.current()
    assert len({notice.instance_id for notice in current}) == len(current)
    return {notice.instance_id: notice.deadline_s for notice in current}


async def test_of_two_notices_for_one_instance_the_earlier_deadline_stands() -> None:
    assert await heard(a_notice("i", 70.0), a_notice("i", 50.0), a_notice("i", None)) == {"i": 50.0}


@pytest.mark.parametrize("deadline_s", [math.nan, math.inf, -math.inf])
async def test_a_deadline_that_is_no_number_counts_as_none_and_hides_nobody_elses(deadline_s: float) -> None:
    notices = [a_notice("i", 70.0), a_notice("i", 50.0), a_notice("j", deadline_s), a_notice("i", None)]
    for order in itertools.permutations(notices):
        assert await heard(*order) == {"i": 50.0, "j": None}


class Heard(FakeNotices):
    """Writes down what it is told, and breaks on order."""

    def __init__(self, clock: FakeClock, *, deaf: bool = False, breaks: int = 0) -> None:
        super().__init__(clock)
        self.deaf = deaf
        self.breaks = breaks
        self.runs = 0
        self.heard: list[tuple[str, frozenset[str]]] = []

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self.breaks:
            raise RuntimeError("broken")
        await asyncio.Event().wait()

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        if self.deaf:
            raise RuntimeError("deaf")
        self.heard.append(("recorded", instance_ids))

    async def drained(self, instance_ids: frozenset[str]) -> None:
        self.heard.append(("drained", instance_ids))


async def test_every_source_hears_what_is_recorded_and_drained_though_one_of_them_fails() -> None:
    clock = FakeClock()
    deaf, fine = Heard(clock, deaf=True), Heard(clock)
    watch = NoticeWatch({"deaf": deaf, "fine": fine}, clock)
    ids = frozenset({"i"})
    await watch.recorded(ids)
    await watch.drained(ids)
    assert fine.heard == [("recorded", ids), ("drained", ids)]
    assert deaf.heard == [("drained", ids)]


async def test_a_source_that_breaks_runs_again_after_a_while_and_takes_no_other_with_it() -> None:
    clock = FakeClock()
    broken, fine = Heard(clock, breaks=2), Heard(clock)
    watch = NoticeWatch({"broken": broken, "fine": fine}, clock)
    watching = asyncio.ensure_future(watch.watch(asyncio.Event()))
    await clock.advance(4.0)
    assert (broken.runs, fine.runs) == (1, 1)
    await clock.advance(10.0)
    assert (broken.runs, fine.runs) == (3, 1)
    watching.cancel()
