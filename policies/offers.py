"""The offerings of a stage as a sizing policy weighs them: what a whole replica costs, what is held there, what may be asked.

Invariants: the answer depends on no order of the input; an offering without a usable price is left out.
Non-goals: judgement about them.
"""

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from policies.base import Place, SizingInput
from scaler.model.capacity import Billing, CapacityType, ReplicaPhase
from scaler.model.once import for_same
from scaler.model.snapshot import OfferingView, ReplicaView

Key: TypeAlias = tuple[str, str]
"""(pool, offering id)."""


class Offer(NamedTuple):
    """An offering, and the replicas of it that count, in order of id. A named tuple: all are made anew in every judgement."""

    key: Key
    name: str
    """For memories: unique among offers."""
    view: OfferingView
    spot: bool
    """Whether the cloud may take it back."""
    usd_per_h: float
    """Rent of a whole replica."""
    usable: bool
    """May be asked for now."""
    held: tuple[ReplicaView, ...]

    @property
    def billing(self) -> Billing:
        """How it charges."""
        return self.view.offering.billing

    @property
    def ready(self) -> int:
        """Replicas that work."""
        return [replica.phase for replica in self.held].count(ReplicaPhase.READY)

    def place(self, replicas: int = 1) -> Place:
        """A wish for so many of it."""
        return Place(pool=self.key[0], offering_id=self.key[1], replicas=replicas)


def offers(view: SizingInput) -> tuple[Offer, ...]:
    """Every offering with a price, cheapest first, then by name."""
    usable = {(pool, seen.offering.offering_id): seen for pool, seen in view.usable}
    held: dict[Key, list[ReplicaView]] = {}
    for replica in view.counting:
        held.setdefault((replica.pool, replica.offering_id), []).append(replica)
    nodes, found = view.nodes_per_replica, []
    for key, seen in (_known(view) | usable).items():
        offering = seen.offering
        if 0 <= offering.price_usd_per_h < math.inf:
            usd_per_h = offering.price_usd_per_h * nodes.get(key[0], 1)
            spot = offering.capacity_type is CapacityType.SPOT
            there = tuple(sorted(held[key], key=attrgetter("replica_id"))) if key in held else ()
            found.append(Offer(key, "/".join(key), seen, spot, usd_per_h, key in usable, there))
    return tuple(sorted(found, key=attrgetter("usd_per_h", "key")))


def _known(view: SizingInput) -> dict[Key, OfferingView]:
    """What the pools show; of two that contradict each other always the same one."""
    found: dict[Key, OfferingView] = {}
    for pool in view.stage.pools:
        for key, seen in _listed(pool.name, pool.offerings).items():
            found[key] = seen if key not in found else min(found[key], seen, key=repr)
    return found


@for_same
def _listed(pool: str, offerings: tuple[OfferingView, ...]) -> Mapping[Key, OfferingView]:
    found: dict[Key, OfferingView] = {}
    for seen in offerings:
        key = pool, seen.offering.offering_id
        found[key] = seen if key not in found else min(found[key], seen, key=repr)
    return found


def replicas_of(chosen: Iterable[Offer]) -> list[ReplicaView]:
    """All replicas held in these."""
    return [replica for offer in chosen for replica in offer.held]


def latest(*moments_s: float | None) -> float:
    """The latest of moments of which some are unknown or no number; minus infinity where all are."""
    return max((at_s for at_s in moments_s if at_s is not None and math.isfinite(at_s)), default=-math.inf)
