"""What a fleet that begins with nothing takes its goodput to be."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.cold_start import Start, started
from policies.demand import Averaging, read_demand
from policies.offers import offers
from scaler.model.capacity import ReplicaPhase
from scaler.model.reading import MISSING, Reading
from tests.builders.sizing import EAST, WEST, a_question, held
from tests.builders.snapshots import NOW_S

AT_ONCE = Averaging(rate_time_constant_s=0.0, goodput_time_constant_s=0.0)
SETTLES_S = 1200.0


def begun(
    memory: Mapping[str, float],
    goodput: float | None,
    replicas: Any = (),
    now_s: float = NOW_S,
    usd: float | None = 60.0,
) -> Start:
    measured = MISSING if goodput is None else Reading(goodput, now_s)
    view = a_question(replicas, (EAST, WEST), memory=memory, now_s=now_s, goodput_per_replica_per_s=measured)
    return started(view, read_demand(view, AT_ONCE, 1.0), offers(view), usd, SETTLES_S)


def test_it_is_in_balance_where_its_rent_is_the_trainers() -> None:
    start = begun({}, None)

    assert (start.cold, start.demand.balance, start.demand.may_lower) == (True, 6.0, False)


@pytest.mark.parametrize(
    ("goodput", "replicas", "usd"),
    [
        pytest.param(0.01, (), 60.0, id="its goodput is known"),
        pytest.param(None, held(EAST, 1), 60.0, id="something worked when it was first judged"),
        pytest.param(None, (), None, id="nobody knows what the trainer costs"),
    ],
)
def test_others_are_taken_as_they_are(goodput: float | None, replicas: Any, usd: float | None) -> None:
    start = begun({}, goodput, replicas, usd=usd)

    assert not start.cold
    assert start.demand.goodput == goodput


def test_first_samples_say_too_little_for_a_while() -> None:
    """Workers that are ready do not end it, samples do, twenty minutes after the first; more than assumed is believed."""
    asked = begun({}, None).demand
    working = begun(asked.memory, None, held(EAST, 6), NOW_S + 600)
    first = begun(working.demand.memory, 0.001, held(EAST, 6), NOW_S + 900)
    soon = begun(first.demand.memory, 0.3, held(EAST, 6), NOW_S + 2000)
    later = begun(soon.demand.memory, 0.25, held(EAST, 6), NOW_S + 2100)
    after = begun(later.demand.memory, 0.2, held(EAST, 6), NOW_S + 2110)

    assert [start.cold for start in (working, first, soon, later, after)] == [True, True, True, False, False]
    assert [start.demand.balance for start in (working, first, soon, later)] == pytest.approx([6.0, 6.0, 1 / 0.3, 4.0])
    assert after.demand.may_lower


def test_what_is_requested_only_is_nothing_yet() -> None:
    assert begun({}, None, held(EAST, 2, ReplicaPhase.REQUESTED)).cold
