"""What each replica costs for an hour of use, the held ones from now on and those that could be had from their launch on.

Spot is reckoned to be used for `use_h`; capacity that is not taken back stands in for a shortage, and is used as long as that
lasts (`stand_in_h`). A new one must be cheaper than a held one by `margin_ratio`, and counts as dearer the more an offering
holds already, up to `crowding_ratio` of its rent for the whole fleet: what is together goes together.

How many may be asked for at once. Refusals in a row make the engine wait long, so an offering that refused is asked for one,
any other for two and twice what it granted within a quarter of an hour. A request weighs the share of requests that was
granted there of late: where refusals are likely, several offerings are asked at once.

Non-goals: how many replicas are wanted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from policies.merit import Candidate
from policies.offer_history import HOUR_S, History, age_h, bucket_of
from policies.offers import Offer
from policies.rent import Rent
from scaler.model.capacity import ReplicaPhase
from scaler.model.snapshot import ReplicaView

LEAST_WEIGHT = 0.5
YOUNG_H = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A replica that could be had."""

    offer: Offer


Option: TypeAlias = Candidate[ReplicaView | Asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """See the module's docstring. Times in hours."""

    now_s: float
    history: History
    launch_h: float
    use_h: float
    stand_in_h: float
    fleet_replicas: float
    margin_ratio: float
    crowding_ratio: float
    refunds_count: bool
    refusals_count: bool

    def held(self, offer: Offer) -> list[Option]:
        """The replicas held there, at what they cost from now on."""
        rent, used_h = self._rent(offer), self._used_h(offer)
        granted = self.history.grant_ratio(offer) if self.refusals_count else 1.0
        return [self._held(replica, rent, used_h, granted) for replica in offer.held]

    def _held(self, replica: ReplicaView, rent: Rent, used_h: float, granted: float) -> Option:
        age = age_h(replica, self.now_s)
        at_risk = rent.hazards_per_h[bucket_of(age)] * self.launch_h
        asked = replica.phase is ReplicaPhase.REQUESTED
        return Candidate(
            item=replica,
            usd_per_h=rent.per_hour_of_use(age_h=age, wait_h=self.to_wait_h(replica), use_h=used_h),
            weight=granted if asked else max(LEAST_WEIGHT, 1 - at_risk),
            name=replica.replica_id,
        )

    def possible(self, offer: Offer) -> list[Option]:
        """Those that may be asked for there now."""
        fresh = self.fresh_usd_per_h(offer) * (1 + self.margin_ratio if offer.spot else 1.0)
        crowding = self.crowding_ratio * offer.usd_per_h / max(1.0, self.fleet_replicas) if offer.spot else 0.0
        weight = self.history.grant_ratio(offer) if self.refusals_count else 1.0
        return [
            Candidate(
                item=Asked(offer=offer),
                usd_per_h=fresh + crowding * (len(offer.held) + i),
                weight=weight,
                name=f"~{offer.name}",
            )
            for i in range(self._askable(offer) if offer.usable else 0)
        ]

    def fresh_usd_per_h(self, offer: Offer) -> float:
        """What an hour of use costs of a replica launched now."""
        return self._rent(offer).per_hour_of_use(age_h=0.0, wait_h=self.launch_h, use_h=self._used_h(offer))

    def to_wait_h(self, replica: ReplicaView) -> float:
        """Until it is ready."""
        if replica.phase is ReplicaPhase.READY:
            return 0.0
        return max(0.0, self.launch_h - age_h(replica, self.now_s))

    def _rent(self, offer: Offer) -> Rent:
        refund_s = offer.billing.refund_if_interrupted_within_s if self.refunds_count and offer.spot else 0.0
        return Rent(
            usd_per_h=offer.usd_per_h,
            hazards_per_h=self.history.hazards_per_h(offer),
            refund_h=refund_s / HOUR_S,
            loss_usd=offer.usd_per_h * self.launch_h,
        )

    def _used_h(self, offer: Offer) -> float:
        return self.use_h if offer.spot else self.stand_in_h

    def _askable(self, offer: Offer) -> int:
        if not self.refusals_count:
            return math.ceil(min(self.fleet_replicas, 1e4)) + 1
        requested = sum(replica.phase is ReplicaPhase.REQUESTED for replica in offer.held)
        young = sum(bool(r.instance_ids) and age_h(r, self.now_s) < YOUNG_H for r in offer.held)
        return max(0, (1 if offer.view.refusals else 2 + 2 * young) - requested)


def options(pricing: Pricing, known: Sequence[Offer]) -> list[Option]:
    """All of them, held and possible."""
    return [option for offer in known for option in (*pricing.held(offer), *pricing.possible(offer))]
