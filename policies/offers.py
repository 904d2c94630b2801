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


_BY_ID = attrgetter("replica_id")


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


cheapest_first = attrgetter("usd_per_h", "key")
"""Sorts offers; by name where they cost the same."""


def offers(view: SizingInput) -> tuple[Offer, ...]:
    """Every offering with a price, cheapest first, then by name."""
    usable = {(pool, seen.offering.offering_id): seen for pool, seen in view.usable}
    held: dict[Key, list[ReplicaView]] = {}
    for replica in view.counting:
        key = replica.pool, replica.offering_id
        if key in held:
            held[key].append(replica)
        else:
            held[key] = [replica]
    nodes, found = view.nodes_per_replica, []
    for key, bare in _known(view, usable).items():
        _, name, seen, spot, usd_per_h, _, _ = bare
        if 0 <= usd_per_h < math.inf:
            mine = tuple(sorted(held[key], key=_BY_ID)) if key in held else ()
            found.append(Offer(key, name, seen, spot, usd_per_h * nodes.get(key[0], 1), key in usable, mine))
    return tuple(sorted(found, key=cheapest_first))


def _known(view: SizingInput, usable: Mapping[Key, OfferingView]) -> dict[Key, Offer]:
    """What may be asked for as it is there, the rest as the pools show it; of two that contradict each other always the same."""
    found: dict[Key, Offer] = {}
    for pool in view.stage.pools:
        listed = _listed(pool.name, pool.offerings)
        if found.keys().isdisjoint(listed):
            found |= listed
        else:
            found |= {key: min(found.get(key, bare), bare, key=repr) for key, bare in listed.items()}
    for key, seen in usable.items():
        if key not in found or found[key].view is not seen:
            found[key] = _bare(key, seen)
    return found


@for_same
def _listed(pool: str, offerings: tuple[OfferingView, ...]) -> Mapping[Key, Offer]:
    """Lists change rarely, and are looked at in every judgement."""
    found: dict[Key, Offer] = {}
    for seen in offerings:
        key = pool, seen.offering.offering_id
        bare = _bare(key, seen)
        found[key] = min(found[key], bare, key=repr) if key in found else bare
    return found


def _bare(key: Key, seen: OfferingView) -> Offer:
    """An offering by itself: what one node costs, and nothing held."""
    offering = seen.offering
    spot = offering.capacity_type is CapacityType.SPOT
    return Offer(key, "/".join(key), seen, spot, offering.price_usd_per_h, usable=False, held=())


def replicas_of(chosen: Iterable[Offer]) -> list[ReplicaView]:
    """All replicas held in these."""
    return [replica for offer in chosen for replica in offer.held]


def latest(*moments_s: float | None) -> float:
    """The latest of moments of which some are unknown or no number; minus infinity where all are."""
    return max((at_s for at_s in moments_s if at_s is not None and math.isfinite(at_s)), default=-math.inf)
