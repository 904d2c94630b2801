"""Where launches go and who leaves: offerings, room, spend, victims."""

from dataclasses import replace
from typing import Any

import pytest

from scaler.model.capacity import CapacityType, ReplicaPhase
from scaler.model.plan import LaunchReplica
from scaler.model.snapshot import OfferingView
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
    remembering,
    some_replicas,
)

CHEAP, MIDDLE, DEAR = an_offering("a", price=1.0), an_offering("b", price=2.0), an_offering("c", price=3.0)


def launched(plan: Any) -> list[str]:
    return [
        f"{command.pool}/{command.offering_id[2]}" for command in plan.commands if isinstance(command, LaunchReplica)
    ]


def refused(offering: Any, ago_s: float, refusals: int = 1) -> OfferingView:
    return OfferingView(offering=offering, refused_at_s=NOW_S - ago_s, refusals=refusals)


def reclaiming(offering: Any, ago_s: float) -> OfferingView:
    return OfferingView(offering=offering, reclaiming_at_s=NOW_S - ago_s)


def test_the_end_of_a_back_off_waits_for_the_next_turn() -> None:
    """Each turn has every pool listed, and offerings that refuse would have it do so all the time."""
    offerings = [refused(CHEAP, 29)]

    plan = planned(a_world_of(pools=[a_pool_view("pool", *offerings)]), a_fleet_spec(1, pools=[_spec_of(offerings)]))

    assert plan.look_again_in_s == 10.0


@pytest.mark.parametrize(("others", "expected"), [(5, ["pool/a"]), (6, ["pool/d"])])
def test_of_many_offerings_all_are_asked_before_the_first_is_asked_again(others: int, expected: list[str]) -> None:
    """Else the first ones would take turns for ever, and nobody came to what is dearer."""
    spot = [an_offering(f"s{place}", price=2.0) for place in range(others)]
    on_demand = an_offering("d", price=9.0, capacity_type=CapacityType.ON_DEMAND)
    asked: list[Any] = [refused(CHEAP, 130, refusals=9), *(refused(each, 1) for each in spot), on_demand]

    plan = planned(a_world_of(pools=[a_pool_view("pool", *asked)]), a_fleet_spec(1, pools=[_spec_of(asked)]))

    assert launched(plan) == expected


@pytest.mark.parametrize(("initial_s", "expected"), [(2.0, ["pool/a"]), (30.0, ["pool/d"])])
def test_who_asks_again_soon_after_a_first_refusal_is_held_to_the_longest_wait_of_his_own(
    initial_s: float, expected: list[str]
) -> None:
    """Twenty seconds an offering would make ten times as much of his four seconds."""
    on_demand = an_offering("d", price=9.0, capacity_type=CapacityType.ON_DEMAND)
    asked: list[Any] = [refused(CHEAP, 5, refusals=9), refused(MIDDLE, 1), on_demand]
    pool = replace(_spec_of(asked), refusal_backoff_initial_s=initial_s, refusal_backoff_max_s=4.0)

    assert launched(planned(a_world_of(pools=[a_pool_view("pool", *asked)]), a_fleet_spec(1, pools=[pool]))) == expected


@pytest.mark.parametrize(
    ("offerings", "expected"),
    [
        pytest.param([DEAR, CHEAP, MIDDLE], ["pool/a"], id="the cheapest"),
        pytest.param([refused(CHEAP, 29), MIDDLE], ["pool/b"], id="bug 70: not where we were refused just now"),
        pytest.param([refused(CHEAP, 31), MIDDLE], ["pool/a"], id="again after the back-off"),
        pytest.param([refused(CHEAP, 119, refusals=3), MIDDLE], ["pool/b"], id="bug 69: back-off doubles"),
        pytest.param([refused(CHEAP, 901, refusals=999), MIDDLE], ["pool/a"], id="back-off has a maximum"),
        pytest.param([reclaiming(CHEAP, 599), MIDDLE], ["pool/b"], id="not where capacity is being taken"),
        pytest.param([reclaiming(CHEAP, 601), MIDDLE], ["pool/a"], id="again when that is over"),
        pytest.param([reclaiming(CHEAP, 1), reclaiming(MIDDLE, 1)], ["pool/a"], id="there, if there is nothing else"),
        pytest.param([refused(CHEAP, 1)], [], id="nowhere"),
        pytest.param([an_offering(price=float("nan")), DEAR], ["pool/c"], id="not at a price that is none"),
    ],
)
def test_a_launch_goes_where_it_should(offerings: list[Any], expected: list[str]) -> None:
    plan = planned(a_world_of(pools=[a_pool_view("pool", *offerings)]), a_fleet_spec(1, pools=[_spec_of(offerings)]))

    assert launched(plan) == expected
    assert clamped(plan) == ([] if expected else ["no_offering 1 -> 0"])


def test_a_decision_without_an_offering_says_in_whose_words_they_were_refused() -> None:
    words = "3 replicas in a row went before they were ready"
    offerings: list[Any] = [
        replace(refused(CHEAP, 1), refused_because=words),
        replace(refused(DEAR, 901), refused_because="old"),
    ]

    def told(*there: Any) -> str:
        spec = a_fleet_spec(2, pools=[_spec_of(list(there))])
        return planned(a_world_of(pools=[a_pool_view("pool", *there)]), spec).stages[0].reason.message

    assert told(offerings[0]).endswith(f"; {CHEAP.offering_id}: {words}")
    assert words not in told(*offerings), "the other one may be asked again"


def _spec_of(offerings: list[Any]) -> Any:
    return a_pool_spec("pool", *(getattr(view, "offering", view) for view in offerings))


def test_a_full_pool_hands_over_to_the_next() -> None:
    pools = [a_pool_view("one", CHEAP), a_pool_view("two", MIDDLE)]
    specs = [a_pool_spec("one", CHEAP, max_replicas=2), a_pool_spec("two", MIDDLE, max_replicas=2)]
    there = [a_replica(pool="one", offering=CHEAP)]

    plan = planned(a_world_of(there, pools=pools), a_fleet_spec(9, pools=specs))

    assert launched(plan) == ["one/a", "two/b", "two/b"]
    assert clamped(plan) == ["no_offering 9 -> 4"]
    assert plan.stages[0].desired == 9


def test_money_that_does_not_buy_the_calm_offering_buys_another() -> None:
    offerings: list[Any] = [reclaiming(CHEAP, 1), DEAR]
    spec = a_fleet_spec(3, pools=[_spec_of(offerings)], max_spend_usd_per_h=5.0)

    plan = planned(a_world_of(pools=[a_pool_view("pool", *offerings)]), spec)

    assert launched(plan) == ["pool/c", "pool/a", "pool/a"]


def test_every_node_of_a_replica_is_paid_for() -> None:
    spec = a_fleet_spec(9, pools=[a_pool_spec(nodes_per_replica=4)], max_spend_usd_per_h=9.0)

    plan = planned(a_world_of(), spec)

    assert (plan.stages[0].requested, plan.stages[0].spend_usd_per_h) == (2, 8.0)


def test_what_we_drain_is_paid_until_it_ends_and_what_the_cloud_takes_is_not() -> None:
    leaving = a_victim("r1", drain_reason="sigterm")
    taken = a_replica("r2", ReplicaPhase.DRAINING, drain_reason="notice", drain_deadline_s=NOW_S + 60)
    spec = a_fleet_spec(9, max_spend_usd_per_h=3.0)

    plan = planned(a_world_of([a_replica("r0"), leaving, taken]), spec)

    assert launched(plan) == ["pool/a"]
    assert (plan.stages[0].requested, plan.stages[0].spend_usd_per_h) == (2, 3.0)


def test_a_size_that_spend_forbids_is_not_bought_later_without_its_cool_down() -> None:
    memory = remembering(desired=2, last_up_at_s=NOW_S - 1)
    poor = planned(a_world_of(some_replicas(2)), a_fleet_spec(5, max_spend_usd_per_h=3.0), memory)

    rich = planned(a_world_of(some_replicas(3)), a_fleet_spec(5, cooldown_up_s=60.0), poor.memory)

    assert (poor.stages[0].desired, rich.stages[0].desired) == (3, 3)


ON_DEMAND = an_offering("a", capacity_type=CapacityType.ON_DEMAND)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"unpublished_tokens": 1, "running_units": 9}, {"unpublished_tokens": 2}, id="fewest tokens"),
        pytest.param({"running_units": 1}, {"running_units": 2}, id="fewest units"),
        pytest.param({"offering": CHEAP}, {"offering": ON_DEMAND}, id="spot before on-demand"),
        pytest.param({"offering": MIDDLE}, {"offering": CHEAP}, id="where capacity is being taken"),
        pytest.param({"launched_at_s": NOW_S - 10}, {"launched_at_s": NOW_S - 20}, id="the youngest"),
    ],
)
@pytest.mark.parametrize("names", [("r0", "r1"), ("r1", "r0")], ids=["first", "last"])
def test_victims_are_those_that_cost_least(first: Any, second: Any, names: tuple[str, str]) -> None:
    offerings: list[Any] = [CHEAP, reclaiming(MIDDLE, 5), ON_DEMAND]
    replicas = (a_replica(names[0], **first), a_replica(names[1], **second))
    snapshot = a_world_of(replicas, pools=[a_pool_view("pool", *offerings)])

    plan = planned(snapshot, a_fleet_spec(1, pools=[_spec_of(offerings)]))

    assert briefly(plan.commands) == [f"drain {names[0]} (size_down)"]


def test_a_replica_without_a_worker_is_ended_at_once_and_costs_no_disruption_budget() -> None:
    replicas = (
        a_replica("r0", ReplicaPhase.LAUNCHING),
        a_replica("r1", ReplicaPhase.REQUESTED),
        a_replica("r2"),
        a_replica("r3"),
    )

    plan = planned(a_world_of(replicas), a_fleet_spec(1, disruption_budget_ratio=0.0))

    assert briefly(plan.commands) == ["terminate r0 (size_down)", "terminate r1 (size_down)"]


def test_drains_under_way_use_up_the_disruption_budget() -> None:
    replicas = (*some_replicas(8), a_victim("r8"), a_victim("r9"))

    plan = planned(a_world_of(replicas), a_fleet_spec(1, disruption_budget_ratio=0.3))

    assert (len(plan.commands), clamped(plan)) == (1, ["disruption_budget 1 -> 7"])


def test_a_refused_pool_loses_nothing_and_gets_nothing_while_others_go_on() -> None:
    pools = [a_pool_view("one", CHEAP, refused="another owner"), a_pool_view("two", MIDDLE)]
    specs = [a_pool_spec("one", CHEAP), a_pool_spec("two", MIDDLE)]
    there = [a_replica("r0", pool="one", offering=CHEAP), a_replica("r1", pool="two", offering=MIDDLE)]

    more = planned(a_world_of(there, pools=pools), a_fleet_spec(3, pools=specs))
    fewer = planned(a_world_of(there, pools=pools), a_fleet_spec(0, pools=specs))

    assert launched(more) == ["two/b"]
    assert briefly(fewer.commands) == ["drain r1 (size_down)"]
