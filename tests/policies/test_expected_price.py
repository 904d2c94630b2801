"""What an offering is expected to cost."""

import math

import pytest

from policies.expected_price import PRICE, expected_prices
from policies.offers import Offer, offers
from tests.builders.sizing import EAST, WEST, a_question

KNOWN = offers(a_question((), (EAST, WEST)))


def price_of(known: tuple[Offer, ...]) -> dict[str, float]:
    return {offer.view.offering.zone: offer.usd_per_h for offer in known}


def test_at_first_sight_it_is_the_price_there_is() -> None:
    assert price_of(expected_prices(KNOWN, {}, 10.0, 7200.0).offers) == {"east": 10.0, "west": 12.0}


def test_a_price_that_stands_still_is_its_own_average() -> None:
    memory = expected_prices(KNOWN, {}, 0.0, 7200.0).memory
    for _ in range(1000):
        memory = expected_prices(KNOWN, memory, 10.0, 7200.0).memory
    assert sorted(memory.values()) == [10.0, 12.0]


def test_what_was_cheaper_of_late_comes_first_though_it_is_dearer_now() -> None:
    memory = {PRICE + KNOWN[0].name: 20.0, PRICE + KNOWN[1].name: 8.0}
    expected = expected_prices(KNOWN, memory, 60.0, 7200.0)
    assert list(price_of(expected.offers)) == ["west", "east"]
    assert price_of(expected.offers)["east"] == pytest.approx(20 - 10 * (1 - math.exp(-60 / 7200)))


def test_a_time_constant_of_zero_follows_at_once() -> None:
    memory = {PRICE + offer.name: 99.0 for offer in KNOWN}
    assert price_of(expected_prices(KNOWN, memory, 10.0, 0.0).offers) == {"east": 10.0, "west": 12.0}


def test_the_memory_is_that_of_the_offerings_there_are() -> None:
    strangers = {f"{PRICE}gone/{number}": 1.0 for number in range(100)}
    assert expected_prices(KNOWN, strangers, 10.0, 7200.0).memory.keys() == {PRICE + offer.name for offer in KNOWN}
