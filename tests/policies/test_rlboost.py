"""RLBoost: any spot up to the number that balances, reckoned once a step; neither prices nor on-demand."""

import pytest

from scaler.model.reading import MISSING
from tests.builders.sizing import ALL, EAST, NORTH, ON_DEMAND, WEST, a_question, ask, held, places
from tests.builders.snapshots import fresh


def test_launches_go_to_all_zones_in_turn_whatever_they_cost() -> None:
    assert places(ask("rlboost", a_question())) == {"east": 2, "north": 1, "west": 1}


def test_it_never_buys_on_demand() -> None:
    wish = ask("rlboost", a_question(unusable=(EAST, WEST, NORTH)))

    assert (wish.replicas, places(wish)) == (0, {})


@pytest.mark.parametrize(("count", "wanted"), [(3, 4), (4, 4), (6, 4)])
def test_it_holds_the_balance(count: int, wanted: int) -> None:
    assert ask("rlboost", a_question(held(EAST, count))).replicas == wanted


def test_the_cap_changes_once_a_step() -> None:
    memory = ask("rlboost", a_question(held(EAST, 4), policy_version=fresh(7))).memory
    twice = {**memory, "rate_per_s": 2.0}

    same = ask(
        "rlboost", a_question(held(EAST, 4), policy_version=fresh(7), memory=twice, unblocked_rate_per_s=fresh(2))
    )
    next_one = ask(
        "rlboost", a_question(held(EAST, 4), policy_version=fresh(8), memory=twice, unblocked_rate_per_s=fresh(2))
    )

    assert (same.replicas, next_one.replicas) == (4, 8)


def test_before_any_goodput_it_takes_its_initial_number() -> None:
    assert ask("rlboost", a_question(goodput_per_replica_per_s=MISSING), initial_replicas=3).replicas == 3


def test_what_is_held_elsewhere_counts() -> None:
    assert ask("rlboost", a_question(held(ON_DEMAND, 4), ALL)).replicas == 4
