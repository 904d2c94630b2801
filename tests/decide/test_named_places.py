"""A sizing policy that names places and who goes first is followed, within room, spend, back-off and the floor."""

from collections.abc import Iterable

import pytest

from policies.base import Place, Registered, Sizing, SizingInput
from scaler.decide import engine
from scaler.model.plan import Reason, ReasonCode
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView
from scaler.model.spec import FleetSpec, PolicySpec
from tests.builders.snapshots import (
    NOW_S,
    a_fleet_spec,
    a_pool_spec,
    a_pool_view,
    a_replica,
    a_victim,
    a_world_of,
    an_offering,
    briefly,
    clamped,
    planned,
    some_replicas,
)

CHEAP, DEAR = an_offering("a", price=1.0), an_offering("b", price=5.0)
REASON = Reason(code=ReasonCode.STEADY, message="as the test says")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that answers what its parameters say."""

    def answer(view: SizingInput, params: Sizing) -> Sizing:
        del view
        return params

    monkeypatch.setattr(engine, "SIZING", {"told": Registered(params=Sizing, function=answer)})


def fleet(
    replicas: int, *places: tuple[str, int], first: tuple[str, ...] = (), room: int = 100, **rails: float
) -> FleetSpec:
    named = tuple(Place(pool="pool", offering_id=offering, replicas=most) for offering, most in places)
    sizing = Sizing(replicas=replicas, reason=REASON, places=named, release_first=first)
    pool = a_pool_spec("pool", CHEAP, DEAR, max_replicas=room)
    return a_fleet_spec(PolicySpec(name="told", params=sizing), pools=(pool,), **rails)


def commands(spec: FleetSpec, replicas: Iterable[ReplicaView] = (), *, refused: bool = False) -> list[str]:
    return briefly(planned(a_world_of(replicas, pools=(a_pool(refused=refused),)), spec).commands)


def a_pool(*, refused: bool = False) -> PoolView:
    cheap = OfferingView(offering=CHEAP, refused_at_s=NOW_S - 1 if refused else None, refusals=int(refused))
    return a_pool_view("pool", cheap, OfferingView(offering=DEAR))


IN_CHEAP, IN_DEAR = f"launch {CHEAP.offering_id} (size_up)", f"launch {DEAR.offering_id} (size_up)"
BOTH = ((DEAR.offering_id, 1), (CHEAP.offering_id, 5))


def test_launches_follow_the_named_order_and_numbers() -> None:
    assert commands(fleet(3, *BOTH)) == [IN_DEAR, IN_CHEAP, IN_CHEAP]


def test_nothing_is_launched_where_the_policy_named_nothing() -> None:
    assert commands(fleet(3)) == []
    assert commands(fleet(3, (CHEAP.offering_id, 1))) == [IN_CHEAP]


def test_what_is_missing_is_said() -> None:
    plan = planned(a_world_of(pools=(a_pool(),)), fleet(3, (CHEAP.offering_id, 1)))
    assert clamped(plan) == ["no_offering 3 -> 1"]
    assert plan.stages[0].desired == 3


def test_a_named_place_that_refused_lately_is_left_alone() -> None:
    assert commands(fleet(3, *BOTH), refused=True) == [IN_DEAR]


def test_room_and_spend_bind_named_places_too() -> None:
    assert commands(fleet(5, *BOTH, room=2)) == [IN_DEAR, IN_CHEAP]
    assert commands(fleet(5, *BOTH, max_spend_usd_per_h=6.5)) == [IN_DEAR, IN_CHEAP]


def test_the_floor_is_filled_anywhere() -> None:
    assert commands(fleet(0, min_replicas=2)) == [IN_CHEAP, IN_CHEAP]
    assert commands(fleet(3, (DEAR.offering_id, 1), min_replicas=2)) == [IN_DEAR, IN_CHEAP]


def test_who_is_named_goes_first_though_it_has_most_to_lose() -> None:
    replicas = (*some_replicas(3, offering=CHEAP), a_replica("dear", offering=DEAR, unpublished_tokens=99))
    assert commands(fleet(2, first=("dear",)), replicas) == ["drain dear (size_down)", "drain r0 (size_down)"]


def test_who_is_named_and_not_there_changes_nothing() -> None:
    assert commands(fleet(1, first=("nobody",)), some_replicas(2, offering=CHEAP)) == ["drain r0 (size_down)"]


def test_a_drain_is_taken_back_only_where_launches_are_named() -> None:
    replicas = (a_victim("cheap", offering=CHEAP), a_victim("dear", offering=DEAR))
    assert commands(fleet(2, (CHEAP.offering_id, 2)), replicas) == ["undrain cheap (size_up)", IN_CHEAP]


def test_the_policy_is_told_where_there_is_room_and_whether_the_ceiling_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is leaving fills a pool's room still, and is none of the fleet's size."""
    asked: list[SizingInput] = []

    def answer(view: SizingInput, params: Sizing) -> Sizing:
        asked.append(view)
        return params

    monkeypatch.setattr(engine, "SIZING", {"told": Registered(params=Sizing, function=answer)})
    there = [*some_replicas(3), a_victim("spare")]
    commands(fleet(3, room=4, max_replicas=4), there)
    commands(fleet(3, room=5, max_replicas=3), there)

    assert [(len(view.usable), view.full) for view in asked] == [(0, False), (2, True)]
