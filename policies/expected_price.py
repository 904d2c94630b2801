"""What an offering is expected to cost over the hours that a replica is used: what it has cost of late, on average.

A price that swings comes back before a replacement has paid for its launch, and one that has changed for good is followed
within the time constant. Taken as it stands at the moment, each swing would replace the fleet. Where prices stand still the
average is the price.

Memory: one number for each offering with a price. Non-goals: what is charged (spend caps go by the price of the moment).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from policies.ewma import remembered, smooth
from policies.offers import Offer

PRICE = "price:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Offers at their expected price, cheapest first, then by name; and what is to be remembered."""

    offers: tuple[Offer, ...]
    memory: Mapping[str, float]


def expected_prices(
    known: Sequence[Offer], memory: Mapping[str, float], elapsed_s: float, time_constant_s: float
) -> Expected:
    """The offers at their averages over `time_constant_s`, after prices that held for `elapsed_s`."""
    averaged = [_at(offer, remembered(memory, PRICE + offer.name), elapsed_s, time_constant_s) for offer in known]
    return Expected(
        offers=tuple(sorted(averaged, key=attrgetter("usd_per_h", "key"))),
        memory={PRICE + offer.name: offer.usd_per_h for offer in averaged},
    )


def _at(offer: Offer, before: float | None, elapsed_s: float, time_constant_s: float) -> Offer:
    if before is None or before == offer.usd_per_h:
        return offer
    return offer._replace(usd_per_h=smooth(before, offer.usd_per_h, elapsed_s, time_constant_s))
