"""`/status`: what a person compares sizes with stands beside them."""

from dataclasses import replace
from typing import Any

from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import ReasonCode
from scaler.runtime.status import status_json
from scaler.telemetry.readout import Readout
from tests.builders.fleet_status import a_readout
from tests.builders.snapshots import (
    NOW_S,
    a_fleet_spec,
    a_pool_view,
    a_replica,
    a_world_of,
    planned,
    some_replicas,
)


def told(readout: Readout) -> dict[str, Any]:
    return status_json(readout, now_s=NOW_S, address="", config={}, decisions=[])


def test_drains_of_our_own_choice_are_told_beside_what_is_allowed_and_noticed_ones_are_not() -> None:
    leaving = a_replica("by-us", ReplicaPhase.DRAINING, drain_reason=ReasonCode.SIZE_DOWN)
    noticed = a_replica("by-cloud", ReplicaPhase.DRAINING, drain_reason=ReasonCode.NOTICE)
    world = a_world_of((*some_replicas(18), leaving, noticed))
    spec = a_fleet_spec(18, disruption_budget_ratio=0.1, min_replicas=2, max_replicas=30)
    limits = told(a_readout(world, spec))["stages"][0]["limits"]
    assert (limits["drains_under_way"], limits["drains_allowed"]) == (1, 2)
    assert (limits["floor"], limits["ceiling"]) == (2, 30)


def test_the_providers_words_for_a_refusal_are_told() -> None:
    pool = a_pool_view()
    refused = replace(pool.offerings[0], refusals=2, refused_at_s=NOW_S, refused_because="no capacity in z1")
    world = a_world_of(some_replicas(1), pools=(replace(pool, offerings=(refused,)),))
    offering = told(a_readout(world))["stages"][0]["pools"][0]["offerings"][0]
    assert (offering["refusals"], offering["refused_because"]) == (2, "no capacity in z1")


def test_a_stage_that_the_specification_does_not_name_any_more_has_no_limits() -> None:
    world = a_world_of(some_replicas(1))
    spec = a_fleet_spec(1)
    gone = replace(spec, stages=())
    readout = Readout(spec=gone, snapshot=world, plan=planned(world, spec))
    assert "limits" not in told(readout)["stages"][0]
