"""What each replica costs for an hour of use, the held ones from now on and those that could be had from their launch on.

Spot is reckoned to be used for `use_h`; capacity that is not taken back stands in for a shortage, and is used as long as that
lasts (`stand_in_h`). Hysteresis: what stands in counts as cheaper by `keep_ratio` once it is held, since it would have to be
launched again; a new spot replica must be cheaper than a held one by `margin_ratio`. It counts as dearer the more its offering
holds already, up to `crowding_ratio` of its rent for the whole fleet: what is together goes together.

How many may be asked for at once. Refusals in a row make the engine wait long, so an offering that refused is asked for one,
any other for two and twice what it granted within the first age bucket, a quarter of an hour. A request weighs the share of
requests that was granted there of late: where refusals are likely, several offerings are asked at once.

Replicas of one offering, phase and age (`about`) are priced at once; those that cost and weigh the same stand in the row as one
lot.

Non-goals: how many replicas are wanted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from policies.merit import Lot
from policies.offer_history import HOUR_S, History, age_h, bucket_of
from policies.offers import Offer
from policies.rent import Rent
from scaler.model.capacity import ReplicaPhase
from scaler.model.snapshot import ReplicaView

LEAST_WEIGHT = 0.5
FINE_H = 1.25
MOST_H = 24.0


Option: TypeAlias = Lot[ReplicaView | Offer]
"""Replicas held, or as many that could be had as an offer stands there."""
_Terms: TypeAlias = tuple[float, float, ReplicaPhase]
_REQUESTED = ReplicaPhase.REQUESTED


def name_of(item: ReplicaView | Offer) -> str:
    """Where the replica held goes first, of two that cost the same; what could be had comes after it."""
    return f"~{item.name}" if isinstance(item, Offer) else item.replica_id


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
    """Kept: each offering is asked for its terms more than once, and for what a new replica costs."""
    fresh: dict[str, float] = field(default_factory=dict)

    def options(self, known: Sequence[Offer]) -> list[Option]:
        """The replicas held, at what they cost from now on, and those that may be asked for."""
        held: dict[_Terms, list[Sequence[ReplicaView]]] = {}
        possible: list[Option] = []
        for offer in known:
            if not (offer.held or offer.usable):
                continue
            granted = self.history.grant_ratio(offer) if self.refusals_count else 1.0
            if offer.held:
                self._price_held(offer, granted, held)
            if offer.usable and (most := self._askable(offer)):
                possible.append(self._possible(offer, granted, most))
        return possible + [
            Lot(parts[0] if len(parts) == 1 else _together(parts), cost, weight)
            for (cost, weight, _), parts in held.items()
        ]

    def _price_held(self, offer: Offer, granted: float, held: dict[_Terms, list[Sequence[ReplicaView]]]) -> None:
        """Add those held there of each age, as far as that is told apart, and phase, by their cost and weight."""
        rent, use_h, kept = self._rent(offer), self._used_h(offer), 1.0 if offer.spot else 1 - self.keep_ratio
        for (hours, wait_h, phase), replicas in self._alike(offer).items():
            cost = rent.per_hour_of_use(hours, wait_h, use_h, launched=phase is not _REQUESTED) * kept
            # How likely one of this age is there still, once a replacement could be.
            stays = max(LEAST_WEIGHT, 1 - rent.hazards_per_h[bucket_of(hours)] * self.launch_h)
            terms = cost, granted if phase is _REQUESTED else stays, phase
            if terms in held:
                held[terms].append(replicas)
            else:
                held[terms] = [replicas]

    def _alike(self, offer: Offer) -> Mapping[_Terms, Sequence[ReplicaView]]:
        """By age and time to wait (hours), rounded, and phase."""
        ready, ages_h = ReplicaPhase.READY, self.history.ages_h[offer.name]
        alike: dict[_Terms, list[ReplicaView]] = {}
        for replica, exact_h, hours in zip(offer.held, ages_h, map(about, ages_h), strict=True):
            phase = replica.phase
            terms = hours, 0.0 if phase is ready else about(max(0.0, self.launch_h - exact_h)), phase
            if terms in alike:
                alike[terms].append(replica)
            else:
                alike[terms] = [replica]
        return alike

    def _possible(self, offer: Offer, granted: float, most: int) -> Option:
        fresh, items = self.fresh_usd_per_h(offer), [offer] * most
        if not offer.spot:
            return Lot(items, fresh, granted)
        crowding = self.crowding_ratio * offer.usd_per_h / max(1.0, self.fleet_replicas)
        return Lot(items, fresh * (1 + self.margin_ratio), granted, crowding, len(offer.held))

    def fresh_usd_per_h(self, offer: Offer) -> float:
        """What an hour of use costs of a replica launched now."""
        cost = self.fresh.get(offer.name)
        if cost is None:
            rent, used_h = self._rent(offer), self._used_h(offer)
            cost = self.fresh[offer.name] = rent.per_hour_of_use(0.0, self.launch_h, used_h)
        return cost

    def to_wait_h(self, replica: ReplicaView) -> float:
        """Until it is ready."""
        if replica.phase is ReplicaPhase.READY:
            return 0.0
        return max(0.0, self.launch_h - age_h(replica, self.now_s))

    def _rent(self, offer: Offer) -> Rent:
        rent = self.rents.get(offer.name)
        if rent is None:
            refund_s = offer.billing.refund_if_interrupted_within_s if self.refunds_count and offer.spot else 0.0
            usd_per_h, hazards_per_h = offer.usd_per_h, self.history.hazards_per_h(offer)
            rent = Rent(usd_per_h, hazards_per_h, refund_s / HOUR_S, usd_per_h * self.launch_h, self._minimum_h(offer))
            self.rents[offer.name] = rent
        return rent

    def _minimum_h(self, offer: Offer) -> float:
        """Nothing where it is over before a launch could be of use."""
        minimum_h = offer.billing.minimum_s / HOUR_S
        return minimum_h if minimum_h > self.launch_h else 0.0

    def _used_h(self, offer: Offer) -> float:
        return self.use_h if offer.spot else self.stand_in_h

    def _askable(self, offer: Offer) -> int:
        if not self.refusals_count:
            return math.ceil(min(self.fleet_replicas, 1e4)) + 1
        requested = [replica.phase for replica in offer.held].count(_REQUESTED)
        if offer.view.refusals:
            return max(0, 1 - requested)
        return max(0, 2 + 2 * self.history.young[offer.name] - requested)


def _together(parts: Sequence[Sequence[ReplicaView]]) -> Sequence[ReplicaView]:
    """In order of id."""
    return sorted(chain.from_iterable(parts), key=attrgetter("replica_id"))


def about(hours: float) -> float:
    """Rounded, so that most replicas share their sums: to a minute as long as refunds may hang on it, then to a quarter.

    Beyond a day age makes no difference.
    """
    parts = 60 if hours < FINE_H else 4
    return round(hours * parts) / parts if hours < MOST_H else MOST_H
