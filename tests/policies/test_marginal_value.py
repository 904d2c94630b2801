"""Marginal value, in worlds that can be reckoned by hand.

The trainer costs 60 USD/h and n* is 4, so that with spot at 10 a needed replica earns 60 / 4 + 10 = 25 USD/h, about.
"""

from dataclasses import replace
from typing import Any

import pytest

from policies.base import Sizing
from policies.long_run_cost import LearnFrom
from policies.marginal_value import WorthBy
from scaler.model.capacity import Billing, ReplicaPhase
from scaler.model.reading import MISSING
from tests.builders.sizing import ALL, EAST, NORTH, ON_DEMAND, WEST, a_question, ask, held, leaving, places, seen
from tests.builders.snapshots import NOW_S, fresh

KNOWN: dict[str, Any] = {
    "trainer_usd_per_h": 60.0,
    "buffer_counts": False,
    "crowding_ratio": 0.0,
    "availability_lasts_s": 0.0,
}
SCARCE = {"at_s": NOW_S - 10, "spot_share": 0.2, "share_averaged_s": 20_000.0, "short_since_s": NOW_S - 20_000}
PLENTY = {"at_s": NOW_S - 10, "spot_share": 1.0, "share_averaged_s": 20_000.0}


def valued(*args: Any, params: dict[str, Any] | None = None, **facts: Any) -> Sizing:
    return ask("marginal_value", a_question(*args, **facts), **(KNOWN | (params or {})))


def test_it_starts_with_two_a_zone_and_leaves_on_demand_alone() -> None:
    """What was refused would keep the engine from asking again for long: so it feels its way."""
    assert places(valued(memory=PLENTY)) == {"east": 2, "west": 2}


def test_it_asks_for_twice_what_was_granted_of_late() -> None:
    young = held(EAST, 2, ReplicaPhase.LAUNCHING, launched_at_s=NOW_S - 20)

    assert places(valued(young, memory=PLENTY)) == {"east": 2}


def test_an_offering_that_refused_is_asked_for_one() -> None:
    offerings = (seen(EAST, refused_at_s=NOW_S - 60, refusals=2), WEST)

    assert places(valued(held(WEST, 1), offerings, memory=PLENTY))["east"] == 1


def test_what_is_in_balance_stays() -> None:
    wish = valued(held(EAST, 4), memory=PLENTY)

    assert (wish.replicas, places(wish), leaving(wish)) == (4, {}, {})


@pytest.mark.parametrize(
    ("memory", "bought"),
    [
        pytest.param(SCARCE, {"any": 2}, id="spot has been scarce for long: a replica earns more than on-demand costs"),
        pytest.param(PLENTY, {}, id="spot has been plentiful: this shortage is waited out"),
    ],
)
def test_on_demand_is_bought_by_the_long_run_not_by_the_moment(
    memory: dict[str, float], bought: dict[str, int]
) -> None:
    wish = valued(held(EAST, 1), memory=memory, unusable=(EAST, WEST, NORTH))

    assert places(wish) == bought


def test_on_demand_goes_once_spot_is_ready_and_not_before() -> None:
    on_demand = held(ON_DEMAND, 2)
    ready, launching = held(EAST, 4), [*held(EAST, 2), *held(WEST, 2, ReplicaPhase.LAUNCHING, launched_at_s=NOW_S - 60)]

    assert leaving(valued([*ready, *on_demand], memory=SCARCE)) == {"any": 2}
    assert leaving(valued([*launching, *on_demand], memory=SCARCE)) == {}


@pytest.mark.parametrize(("age_s", "goes"), [(1800, {"east": 2}), (7260, {"any": 2})], ids=["within it", "after it"])
def test_what_a_billing_minimum_has_paid_for_is_used_before_what_costs_more(age_s: float, goes: dict[str, int]) -> None:
    by_the_hour = replace(ON_DEMAND, billing=Billing(minimum_s=7200.0))
    on_demand = held(by_the_hour, 2, launched_at_s=NOW_S - age_s)

    wish = valued([*held(EAST, 4), *on_demand], (EAST, WEST, by_the_hour), memory=SCARCE)

    assert leaving(wish) == goes


def test_on_demand_goes_already_for_what_was_granted_if_the_buffer_covers_the_wait() -> None:
    fleet = [*held(EAST, 2), *held(EAST, 2, ReplicaPhase.LAUNCHING, launched_at_s=NOW_S - 60), *held(ON_DEMAND, 2)]
    params = {"buffer_counts": True, "band_s": 0.0}

    def going(depth: float) -> dict[str, int]:
        question = {"memory": SCARCE, "buffered_samples": fresh(depth), "max_staleness": 100}
        return leaving(valued(fleet, params=params, **question))

    assert (going(1500), going(0)) == ({"any": 2}, {})


def test_a_dear_replica_is_replaced_by_a_much_cheaper_one_before_it_goes() -> None:
    dear = [*held(NORTH, 4)]

    assert places(valued(dear, (EAST, NORTH), memory=PLENTY)) == {"east": 2}
    assert places(valued(dear, (EAST, NORTH), memory=PLENTY, params={"swap_margin_ratio": 0.9})) == {}


def test_surplus_goes_dearest_first() -> None:
    assert leaving(valued([*held(EAST, 4), *held(NORTH, 1)], memory=PLENTY)) == {"north": 1}


@pytest.mark.parametrize(
    ("depth", "wanted"),
    [
        pytest.param(0.0, 5, id="an empty buffer: more than the balance, to fill it"),
        pytest.param(900.0, 4, id="a buffer as deep as it is worth"),
        pytest.param(4000.0, 1, id="more than that: it may run down"),
    ],
)
def test_the_buffer_moves_the_level(depth: float, wanted: int) -> None:
    count = {5: 4, 4: 4, 1: 4}[wanted]
    params = {"buffer_counts": True, "shortage_depth_s": 1000.0, "horizon_s": 3600.0, "band_s": 0.0}
    wish = valued(held(EAST, count), memory=PLENTY, params=params, buffered_samples=fresh(depth), max_staleness=1000)

    assert wish.replicas is not None
    assert (wish.replicas > 4) is (wanted > 4)
    assert (wish.replicas < 4) is (wanted < 4)


def test_a_short_look_at_spot_is_not_enough_to_do_without_on_demand() -> None:
    """Half of four at 10 USD/h: a sample costs as much as if one earned some 27 USD/h, if half is what there will be."""

    def bought(seen_s: float) -> dict[str, int]:
        memory = {"at_s": NOW_S - 10, "spot_share": 0.5, "share_averaged_s": seen_s, "short_since_s": NOW_S - 40_000}
        cautious = {"availability_lasts_s": 1800.0, "trainer_usd_per_h": 30.0}
        return places(valued(held(EAST, 2), memory=memory, params=cautious, unusable=(EAST, WEST, NORTH)))

    assert (bought(7200.0), bought(1e6)) == ({"any": 2}, {})


def test_at_the_ceiling_dear_replicas_make_room_for_cheap_ones() -> None:
    """Else the cheap ones, which must work before the dear ones go, would never be asked for."""
    dear, both = held(ON_DEMAND, 4), (EAST, ON_DEMAND)
    refusing = (seen(EAST, refused_at_s=NOW_S - 600, refusals=1), ON_DEMAND)

    assert leaving(valued(dear, both, memory=SCARCE, full=True)) == {"any": 2}
    assert leaving(valued(dear, both, memory=SCARCE)) == {}
    assert leaving(valued(dear, refusing, memory=SCARCE, full=True)) == {}, "for what refused nothing goes"
    assert leaving(valued(held(WEST, 4), (EAST, WEST), memory=SCARCE, full=True)) == {}, "two dollars pay for no launch"


def test_before_any_goodput_was_measured_it_asks_for_the_cheapest_one() -> None:
    assert places(valued(goodput_per_replica_per_s=MISSING)) == {"east": 1}


def test_what_was_there_before_any_goodput_was_measured_stays() -> None:
    assert valued(held(EAST, 3), goodput_per_replica_per_s=MISSING).replicas == 3


def test_a_replica_of_several_nodes_costs_all_of_them() -> None:
    """At five nodes a replica spot costs 50 USD/h, more than the 15 + 50 that one earns only for on-demand at 150."""
    wish = valued(memory=SCARCE, nodes=5, unusable=(EAST, WEST, NORTH))

    assert places(wish) == {}


def test_where_the_trainer_s_cost_is_not_known_it_counts_as_much_as_the_fleet() -> None:
    wish = valued(memory=PLENTY, params={"trainer_usd_per_h": None})

    assert dict(wish.reason.inputs)["worth_usd_per_h"] == pytest.approx(20.0, rel=0.1)


def test_a_declared_lambda_is_used() -> None:
    wish = valued(memory=PLENTY, params={"lambda_usd_per_sample": 0.1})

    assert dict(wish.reason.inputs)["worth_usd_per_h"] == pytest.approx(0.1 * 0.25 * 3600)


@pytest.mark.parametrize(
    "switch",
    [
        {"worth_by": WorthBy.MOMENT},
        {"lambda_from": LearnFrom.SPENDING},
        {"refunds_count": False},
        {"refusals_count": False},
        {"hazard_by_age": False, "hazard_by_offering": False},
    ],
    ids=lambda switch: next(iter(switch)),
)
def test_every_part_can_be_switched(switch: dict[str, Any]) -> None:
    assert valued(held(EAST, 2), ALL, params=switch).replicas is not None


def test_by_the_moment_a_replica_earns_more_the_fewer_there_are() -> None:
    def worth(count: int) -> float:
        wish = valued(held(EAST, count), memory=PLENTY, params={"worth_by": WorthBy.MOMENT})
        return dict(wish.reason.inputs)["worth_usd_per_h"]

    assert (worth(4), worth(1)) == (25.0, 70.0)


def test_what_was_spent_and_trained_moves_lambda() -> None:
    """An hour at 60 + 4 * 10 USD/h and nothing trained, on top of ten hours at balance."""
    memory = {"at_s": NOW_S - 3600, "spent_usd": 1000.0, "trained_samples": 36_000.0, "version": 5.0}
    params = {"lambda_from": LearnFrom.SPENDING, "lambda_forget_s": 1e12}
    wish = valued(held(EAST, 4), memory=memory, params=params, policy_version=fresh(5))
    after = valued(held(EAST, 4), memory=memory, params=params, policy_version=fresh(5 + 3600 / 32))

    assert dict(wish.reason.inputs)["lambda_usd_per_sample"] == pytest.approx(1100 / 36_000)
    assert dict(after.reason.inputs)["lambda_usd_per_sample"] == pytest.approx(1100 / 39_600)


def test_memory_is_bounded_by_the_offerings() -> None:
    memory: dict[str, float] = {}
    for hour in range(30):
        replicas = held(EAST, 4, launched_at_s=NOW_S - 3600 * hour)
        memory = dict(valued(replicas, memory=memory, now_s=NOW_S + hour).memory)

    assert len(memory) <= 12 + 12 * len(ALL)
