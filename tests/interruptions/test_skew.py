"""Deadlines that another clock keeps."""

import pytest

from scaler.interruptions.skew import Skew
from scaler.model.interruption import InterruptionNotice, NoticeKind


def a_notice(deadline_s: float | None = 1120.0) -> InterruptionNotice:
    return InterruptionNotice(
        instance_id="i-1", kind=NoticeKind.SPOT_INTERRUPTION, noticed_at_s=1000.0, deadline_s=deadline_s
    )


@pytest.mark.parametrize(
    ("ahead_s", "noticed_at_s", "deadline_s"),
    [(None, 1000.0, 1120.0), (1.0, 1000.0, 1120.0), (30.0, 970.0, 1090.0), (-400.0, 1400.0, 1520.0)],
    ids=["not known yet", "no clear difference", "their clock is ahead", "their clock is behind"],
)
def test_a_notice_is_told_on_our_clock(ahead_s: float | None, noticed_at_s: float, deadline_s: float) -> None:
    (told,) = Skew(lambda: ahead_s).ours([a_notice()])
    assert (told.noticed_at_s, told.deadline_s) == (noticed_at_s, deadline_s)


def test_a_deadline_does_not_wobble_with_the_measurement() -> None:
    measured = iter([30.0, 31.0, 29.5, 28.5, 40.0])
    skew = Skew(lambda: next(measured))
    deadlines = [skew.ours([a_notice()])[0].deadline_s for _ in range(5)]
    assert deadlines == [1090.0, 1090.0, 1090.0, 1090.0, 1080.0]


def test_a_notice_without_a_deadline_has_none_on_our_clock_either() -> None:
    (told,) = Skew(lambda: 60.0).ours([a_notice(None)])
    assert told.deadline_s is None
