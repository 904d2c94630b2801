"""SpotHedge, rule by rule: over-provisioning, fallback, and the sets of zones."""

from typing import Any

import pytest

from scaler.model.capacity import ReplicaPhase
from tests.builders.sizing import ALL, EAST, NORTH, ON_DEMAND, WEST, a_question, ask, held, leaving, places, seen
from tests.builders.snapshots import NOW_S, fresh

LAUNCHING = ReplicaPhase.LAUNCHING


def hedged(*args: Any, extra: int = 1, **facts: Any) -> Any:
    return ask("spot_hedge", a_question(*args, **facts), extra_replicas=extra)


def test_a_new_fleet_asks_for_target_and_extra_on_spot_and_the_target_on_demand() -> None:
    wish = hedged(goodput_per_replica_per_s=fresh(0.25))

    assert (wish.replicas, places(wish)) == (9, {"east": 3, "west": 1, "north": 1, "any": 4})


@pytest.mark.parametrize(
    ("replicas", "wanted", "where", "going"),
    [
        pytest.param(held(EAST, 5), 5, {}, {}, id="all of spot is ready: nothing on demand"),
        pytest.param(held(EAST, 4), 6, {"west": 1, "any": 1}, {}, id="one of spot is missing: one of each"),
        pytest.param(
            [*held(EAST, 4), *held(WEST, 1, LAUNCHING)], 6, {"any": 1}, {}, id="launching does not count as ready"
        ),
        pytest.param([*held(EAST, 5), *held(ON_DEMAND, 2)], 5, {}, {"any": 2}, id="spot is ready: on demand goes"),
        pytest.param(
            [*held(EAST, 4), *held(WEST, 1, LAUNCHING), *held(ON_DEMAND, 2)], 6, {}, {"any": 1}, id="only what is spare"
        ),
    ],
)
def test_on_demand_stands_in_until_spot_is_ready(
    replicas: Any, wanted: int, where: dict[str, int], going: dict[str, int]
) -> None:
    wish = hedged(replicas)

    assert (wish.replicas, places(wish), leaving(wish)) == (wanted, where, going)


def test_fallback_never_exceeds_the_target() -> None:
    assert places(hedged(extra=3))["any"] == 4


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        pytest.param({}, {"east": 1}, id="the cheapest that holds none"),
        pytest.param({"reclaiming_at_s": NOW_S - 5}, {"west": 1}, id="not where capacity was taken"),
        pytest.param({"refused_at_s": NOW_S - 5, "refusals": 1}, {"west": 1}, id="not where it was refused"),
    ],
)
def test_the_next_zone(trouble: dict[str, Any], expected: dict[str, int]) -> None:
    wish = hedged(held(NORTH, 4), (seen(EAST, **trouble), WEST, NORTH), extra=1)

    assert places(wish) == expected


def test_with_fewer_than_two_active_zones_all_become_active_again() -> None:
    bad = {"reclaiming_at_s": NOW_S - 5}

    assert places(hedged(held(NORTH, 4), (seen(EAST, **bad), seen(WEST, **bad), NORTH))) == {"east": 1}


def test_a_preempting_zone_is_remembered_and_comes_back_with_a_launch_that_succeeds() -> None:
    trouble = (seen(EAST, reclaiming_at_s=NOW_S - 5), WEST, NORTH)
    memory = hedged(held(NORTH, 4), trouble).memory
    calm = (EAST, WEST, NORTH)

    assert places(hedged(held(NORTH, 4), calm, memory=memory)) == {"west": 1}
    young = held(EAST, 1, LAUNCHING, launched_at_s=NOW_S - 1)
    after = hedged([*held(NORTH, 3), *young], calm, memory=memory).memory
    assert places(hedged(held(NORTH, 4), calm, memory=after)) == {"east": 1}


def test_the_target_falls_only_after_its_delay() -> None:
    memory = hedged(held(EAST, 5)).memory
    less: dict[str, Any] = {"unblocked_rate_per_s": fresh(0.5), "memory": {**memory, "rate_per_s": 0.5}}
    first = hedged(held(EAST, 5), **less)
    later = ask(
        "spot_hedge", a_question(held(EAST, 5), **{**less, "memory": {**first.memory, "lower_since_s": NOW_S - 1200}})
    )

    assert (first.replicas, later.replicas) == (5, 3)


def test_memory_is_bounded_by_the_offerings() -> None:
    views = [seen(offering, reclaiming_at_s=NOW_S - 5) for offering in ALL]

    assert len(hedged(held(EAST, 2), views).memory) <= 8 + 2 * len(ALL)
