"""Uniform Progress, rule by rule."""

from typing import Any

import pytest

from scaler.model.plan import ReasonCode
from scaler.model.reading import MISSING
from tests.builders.sizing import EAST, NORTH, ON_DEMAND, WEST, a_question, ask, held, leaving, places
from tests.builders.snapshots import NOW_S, fresh

SPOT = (EAST, WEST, NORTH)


def progressing(
    made: float, expected: float, *args: Any, gang: bool = True, ago_s: float = 3600.0, **facts: Any
) -> Any:
    """Asked `ago_s` into a horizon of 12 h with a line of 0.9 samples a second, batches of 32."""
    memory = {
        "at_s": NOW_S,
        "began_s": NOW_S - ago_s,
        "began_at_samples": 0.0,
        "expected_samples": expected,
        **facts.pop("memory", {}),
    }
    question = a_question(*args, memory=memory, policy_version=fresh(made / 32), **facts)
    return ask("uniform_progress", question, gang=gang, progress_ratio=0.9, changeover_s=360.0)


def test_spot_is_taken_whenever_there_is_any_though_behind() -> None:
    assert places(progressing(0, 3200)) == {"east": 4}


def test_idle_and_behind_goes_on_demand_where_there_is_no_spot() -> None:
    assert places(progressing(0, 3200, unusable=SPOT)) == {"any": 4}


def test_idle_and_not_behind_waits() -> None:
    wish = progressing(3200, 3200, unusable=SPOT)

    assert (wish.replicas, places(wish)) == (0, {})


@pytest.mark.parametrize(
    ("made", "going"),
    [
        pytest.param(3200 + 640, {}, id="ahead, but not by two changeovers"),
        pytest.param(3200 + 672, {"any": 4}, id="ahead by two changeovers (648 samples)"),
    ],
)
def test_on_demand_is_kept_until_well_ahead(made: float, going: dict[str, int]) -> None:
    assert leaving(progressing(made, 3200, held(ON_DEMAND, 4), unusable=SPOT)) == going


def test_on_demand_is_not_left_for_spot_while_behind() -> None:
    wish = progressing(0, 3200, held(ON_DEMAND, 4))

    assert (wish.replicas, leaving(wish)) == (4, {})


@pytest.mark.parametrize(
    ("gang", "where", "going"),
    [
        pytest.param(True, {"any": 4}, {"east": 2}, id="a gang of less than all is none"),
        pytest.param(False, {"any": 2}, {}, id="replica by replica keeps what there is"),
    ],
)
def test_a_gang_is_all_or_nothing(gang: bool, where: dict[str, int], going: dict[str, int]) -> None:
    wish = progressing(0, 3200, held(EAST, 2), gang=gang, unusable=SPOT)

    assert (places(wish), leaving(wish)) == (where, going)


def test_the_safety_net_goes_on_demand_to_the_end() -> None:
    # 0.9 of 12 h are 38,880 samples; 3,200 s before the end 2,560 s of work and two changeovers fit no more.
    made, near_the_end_s = 38_880.0 - 2_592, 43_200.0 - 3_200
    caught = progressing(made, made, ago_s=near_the_end_s, unusable=SPOT)
    later = progressing(made + 3200, 0, held(ON_DEMAND, 4), ago_s=near_the_end_s, memory={"to_the_end": 1.0})

    assert places(caught) == {"any": 4}
    assert leaving(later) == {}


def test_a_new_horizon_begins_when_one_is_over_or_the_version_falls() -> None:
    over = progressing(3200, 0, ago_s=43_200.0).memory
    fallen = progressing(3200, 0, memory={"began_at_samples": 6400.0}).memory

    for memory in (over, fallen):
        assert (memory["began_s"], memory["began_at_samples"], memory["expected_samples"]) == (NOW_S, 3200.0, 0.0)


def test_without_a_policy_version_it_holds() -> None:
    wish = ask("uniform_progress", a_question(policy_version=MISSING))

    assert (wish.replicas, wish.reason.code) == (None, ReasonCode.HOLD_SIGNAL_MISSING)
