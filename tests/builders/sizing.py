"""What a sizing policy is asked, so that a test names only what matters to it.

The default: time is 10,000 s, one pool with the offerings given, all of them usable, a consumer that takes one sample a second
and replicas that make a quarter of one (n* = 4), everything ready, nothing remembered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from policies.base import Sizing, SizingInput
from policies.registry import SIZING
from scaler.model.capacity import Billing, CapacityType, Offering, ReplicaPhase
from scaler.model.snapshot import OfferingView, ReplicaView
from tests.builders.snapshots import NOW_S, a_pool_view, a_replica, a_stage, an_offering, some_signals

EAST = an_offering("east", price=10.0)
WEST = an_offering("west", price=12.0)
NORTH = an_offering("north", price=14.0)
ON_DEMAND = an_offering("any", price=30.0, capacity_type=CapacityType.ON_DEMAND)
ALL = (EAST, WEST, NORTH, ON_DEMAND)


def refundable(offering: Offering) -> Offering:
    return replace(offering, billing=Billing(refund_if_interrupted_within_s=3600.0))


def seen(offering: Offering, **facts: Any) -> OfferingView:
    return OfferingView(offering=offering, **facts)


def held(offering: Offering, count: int, phase: ReplicaPhase = ReplicaPhase.READY, **facts: Any) -> list[ReplicaView]:
    """So many replicas there, ten hours old."""
    implied: dict[str, Any] = {"running_units": 4, "launched_at_s": NOW_S - 36_000}
    return [
        a_replica(f"{offering.zone}-{phase}-{index}", phase, offering=offering, **(implied | facts))
        for index in range(count)
    ]


def a_question(
    replicas: Iterable[ReplicaView] = (),
    offerings: Iterable[OfferingView | Offering] = ALL,
    *,
    unusable: Iterable[Offering] = (),
    memory: Mapping[str, float] | None = None,
    now_s: float = NOW_S,
    desired: int | None = None,
    nodes: int = 1,
    full: bool = False,
    **signals: Any,
) -> SizingInput:
    counting = tuple(sorted(replicas, key=lambda replica: replica.replica_id))
    ready = sum(replica.phase is ReplicaPhase.READY for replica in counting)
    pool = a_pool_view("pool", *offerings)
    refusing = {offering.offering_id for offering in unusable}
    return SizingInput(
        now_s=now_s,
        stage=a_stage(counting, signals=some_signals(**signals), pools=(pool,)),
        signal_max_age_s=30.0,
        memory=memory or {},
        launching=len(counting) - ready,
        ready=ready,
        desired=len(counting) if desired is None else desired,
        counting=counting,
        usable=tuple(("pool", view) for view in pool.offerings if view.offering.offering_id not in refusing),
        nodes_per_replica={"pool": nodes},
        full=full,
    )


def ask(policy: str, question: SizingInput, **params: Any) -> Sizing:
    entry = SIZING[policy]
    answer: Sizing = entry.function(question, entry.params(**params))
    return answer


def places(sizing: Sizing) -> dict[str, int]:
    """Zone -> launches wished for there."""
    found: dict[str, int] = {}
    for place in sizing.places or ():
        zone = place.offering_id.split("/")[1]
        found[zone] = found.get(zone, 0) + place.replicas
    return found


def leaving(sizing: Sizing) -> dict[str, int]:
    """Zone -> replicas named to go first."""
    found: dict[str, int] = {}
    for replica_id in sizing.release_first:
        zone = replica_id.split("-")[0]
        found[zone] = found.get(zone, 0) + 1
    return found
