"""Several sources as one: each standing notice once, the earliest deadline of those that contradict each other."""

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
