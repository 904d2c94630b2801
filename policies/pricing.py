"""What each replica costs for an hour of use, the held ones from now on and those that could be had from their launch on.

Spot is reckoned to be used for `use_h`; capacity that is not taken back stands in for a shortage, and is used as long as that
lasts (`stand_in_h`). Hysteresis: what stands in counts as cheaper by `keep_ratio` once it is held, since it would have to be
launched again; a new spot replica must be cheaper than a held one by `margin_ratio`. It counts as dearer the more its offering
holds already, up to `crowding_ratio` of its rent for the whole fleet: what is together goes together.

How many may be asked for at once. Refusals in a row make the engine wait long, so an offering that refused is asked for one,
any other for two and twice what it granted within a quarter of an hour. A request weighs the share of requests that was
granted there of late: where refusals are likely, several offerings are asked at once.

Non-goals: how many replicas are wanted.
"""

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from policies.merit import Candidate
from policies.offer_history import HOUR_S, History, age_h, bucket_of
from policies.offers import Offer
from policies.rent import Rent
from scaler.model.capacity import ReplicaPhase
from scaler.model.snapshot import ReplicaView

LEAST_WEIGHT = 0.5
FINE_H = 1.25
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
    keep_ratio: float
    refunds_count: bool
    refusals_count: bool
    rents: dict[str, Rent] = field(default_factory=dict)
    """Kept: each offering is asked for its terms more than once."""

    def options(self, offer: Offer) -> list[Option]:
        """The replicas held there, at what they cost from now on, and those that may be asked for."""
        rent, used_h = self._rent(offer), self._used_h(offer)
        granted = self.history.grant_ratio(offer) if self.refusals_count else 1.0
        kept = 1.0 if offer.spot else 1 - self.keep_ratio
        costs: dict[tuple[float, float], float] = {}
        found: list[Option] = []
        for replica in offer.held:
            age, wait_h = _about(age_h(replica, self.now_s)), _about(self.to_wait_h(replica))
            if (age, wait_h) not in costs:
                costs[age, wait_h] = rent.per_hour_of_use(age_h=age, wait_h=wait_h, use_h=used_h) * kept
            at_risk = rent.hazards_per_h[bucket_of(age)] * self.launch_h
            asked = replica.phase is ReplicaPhase.REQUESTED
            weight = granted if asked else max(LEAST_WEIGHT, 1 - at_risk)
            found.append(Candidate(item=replica, usd_per_h=costs[age, wait_h], weight=weight, name=replica.replica_id))
        return found + self._possible(offer, rent, used_h, granted)

    def _possible(self, offer: Offer, rent: Rent, used_h: float, granted: float) -> list[Option]:
        most = self._askable(offer) if offer.usable else 0
        if not most:
            return []
        fresh = rent.per_hour_of_use(age_h=0.0, wait_h=self.launch_h, use_h=used_h)
        fresh *= 1 + self.margin_ratio if offer.spot else 1.0
        crowding = self.crowding_ratio * offer.usd_per_h / max(1.0, self.fleet_replicas) if offer.spot else 0.0
        return [
            Candidate(
                item=Asked(offer=offer),
                usd_per_h=fresh + crowding * (len(offer.held) + i),
                weight=granted,
                name=f"~{offer.name}",
            )
            for i in range(most)
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
        if offer.name not in self.rents:
            refund_s = offer.billing.refund_if_interrupted_within_s if self.refunds_count and offer.spot else 0.0
            self.rents[offer.name] = Rent(
                usd_per_h=offer.usd_per_h,
                hazards_per_h=self.history.hazards_per_h(offer),
                refund_h=refund_s / HOUR_S,
                loss_usd=offer.usd_per_h * self.launch_h,
            )
        return self.rents[offer.name]

    def _used_h(self, offer: Offer) -> float:
        return self.use_h if offer.spot else self.stand_in_h

    def _askable(self, offer: Offer) -> int:
        if not self.refusals_count:
            return math.ceil(min(self.fleet_replicas, 1e4)) + 1
        requested = sum(replica.phase is ReplicaPhase.REQUESTED for replica in offer.held)
        young = sum(bool(r.instance_ids) and age_h(r, self.now_s) < YOUNG_H for r in offer.held)
        return max(0, (1 if offer.view.refusals else 2 + 2 * young) - requested)


def _about(hours: float) -> float:
    """Rounded, so that most replicas share their sums: to a minute as long as refunds may hang on it, then to a quarter.

    Beyond a day age makes no difference.
    """
    parts = 60 if hours < FINE_H else 4
    return round(min(hours, 24.0) * parts) / parts
