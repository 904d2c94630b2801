"""What an offering is expected to cost over the hours that a replica is used: what it has cost of late, on average.

A price that swings comes back before a replacement has paid for its launch, and one that has changed for good is followed
within the time constant. Taken as it stands at the moment, each swing would replace the fleet. Where prices stand still the
average is the price.

Memory: one number for each offering with a price. Non-goals: what is charged (spend caps go by the price of the moment).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policies.ewma import remembered, smooth
from policies.offers import Offer, cheapest_first

PRICE = "price:"


class Expected(NamedTuple):
    """Offers at their expected price, cheapest first, then by name; and what is to be remembered."""

    offers: tuple[Offer, ...]
    memory: Mapping[str, float]


def expected_prices(
    known: Sequence[Offer], memory: Mapping[str, float], elapsed_s: float, time_constant_s: float
) -> Expected:
    """The offers, cheapest first, at their averages over `time_constant_s`, after prices that held for `elapsed_s`."""
    prices = {PRICE + offer.name: offer.usd_per_h for offer in known}
    if prices.items() <= memory.items():  # most prices stand still
        return Expected(tuple(known), prices)
    averaged = []
    for offer, (name, usd_per_h) in zip(known, prices.items(), strict=True):
        before = remembered(memory, name)
        prices[name] = usd_per_h if before is None else smooth(before, usd_per_h, elapsed_s, time_constant_s)
        averaged.append(offer._replace(usd_per_h=prices[name]))
    return Expected(tuple(sorted(averaged, key=cheapest_first)), prices)
