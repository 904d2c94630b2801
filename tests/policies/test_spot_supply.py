"""What spot has given of what was wanted, and how long a shortage is reckoned to last."""

from typing import Any

import pytest

from policies.demand import Averaging, read_demand
from policies.offers import offers
from policies.spot_supply import Expectation, SpotSupply, spot_supply
from tests.builders.sizing import EAST, ON_DEMAND, WEST, a_question, held, seen
from tests.builders.snapshots import NOW_S

EXPECTED = Expectation(ratio=0.6, weight_s=3600.0, forget_s=7200.0)
BEFORE = {"at_s": NOW_S - 3600, "spot_share": 0.5, "share_averaged_s": 3600.0}


def given(replicas: Any = (), offerings: Any = (EAST, WEST, ON_DEMAND), memory: Any = None) -> SpotSupply:
    question = a_question(replicas, offerings, memory=memory)
    demand = read_demand(question, Averaging(rate_time_constant_s=0, goodput_time_constant_s=0), 1.0)
    return spot_supply(question, offers(question), demand, EXPECTED)


@pytest.mark.parametrize(
    ("replicas", "offerings", "share"),
    [
        pytest.param([], (EAST, WEST), 0.6, id="a new fleet: as expected"),
        pytest.param(
            [], (EAST, seen(WEST, refusals=1, refused_at_s=NOW_S)), 0.3, id="refused: half expected, half none"
        ),
        pytest.param(held(EAST, 4), (EAST, WEST), 0.8, id="all there: half expected, half all"),
        pytest.param(held(ON_DEMAND, 4), (EAST, ON_DEMAND), 0.6, id="on-demand says nothing of spot"),
    ],
)
def test_the_first_look(replicas: Any, offerings: Any, share: float) -> None:
    assert given(replicas, offerings).share == pytest.approx(share)


def test_the_mean_is_one_over_time_and_forgets_no_faster_than_told() -> None:
    after = given(held(EAST, 4), memory=BEFORE)
    much_later = given(held(EAST, 4), memory={**BEFORE, "share_averaged_s": 7200.0})

    assert [after.share, after.averaged_s] == pytest.approx([0.75, 7200.0])
    assert [much_later.share, much_later.averaged_s] == pytest.approx([0.75, 7200.0])


def test_a_fleet_that_wants_less_is_not_short() -> None:
    assert given(held(EAST, 2), memory=BEFORE).short_since_s == NOW_S
    assert given(held(EAST, 2), memory={**BEFORE, "spot_wanted": 2.0}).short_since_s is None


@pytest.mark.parametrize(
    ("share", "since_s", "lasts_s"),
    [
        pytest.param(0.9, None, 1800, id="spot is usually there: as long as usual"),
        pytest.param(0.2, None, 4 * 1800, id="it is there a fifth of the time: four times as long"),
        pytest.param(0.9, NOW_S - 9000, 9000, id="what has lasted will last as long again"),
    ],
)
def test_how_long_a_shortage_lasts(share: float, since_s: float | None, lasts_s: float) -> None:
    supply = SpotSupply(share=share, short_since_s=since_s, averaged_s=0.0)

    assert supply.lasts_s(NOW_S, 1800.0) == pytest.approx(lasts_s)


@pytest.mark.parametrize(
    ("share", "seen_s", "counted"),
    [
        pytest.param(0.6, None, 0.6, id="nothing seen: as expected"),
        pytest.param(0.5, 7200.0, 1 / 3, id="four looks, two of which it was there: (4 * 0.5 - 1) / 3"),
        pytest.param(0.5, 1e12, 0.5, id="seen for ever"),
        pytest.param(0.9, 1800.0, 0.05, id="one look says nothing"),
    ],
)
def test_what_a_look_at_spot_lets_one_count_on(share: float, seen_s: float | None, counted: float) -> None:
    supply = SpotSupply(share=share, short_since_s=None, averaged_s=seen_s)

    assert supply.to_count_on(1800.0) == pytest.approx(counted)
    assert supply.to_count_on(0.0) == share
