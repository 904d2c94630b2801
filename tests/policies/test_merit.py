"""The row from cheap to dear."""

import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policies.merit import Lot, Market, in_merit_order


def option(name: str, usd: float, weight: float = 1.0) -> Lot[str]:
    return Lot([name], usd, weight)


def names(lots: list[Lot[str]]) -> list[str]:
    return [name for lot in lots for name in lot.items]


def row(level: float, *options: Lot[str], worth: float = 20.0) -> tuple[list[str], list[str]]:
    market = Market(worth_usd_per_h=worth, level=lambda _usd: level)
    taken, left = in_merit_order(options, market, str)
    return names(taken), names(left)


def taken(level: float, *options: Lot[str], worth: float = 20.0) -> list[str]:
    return row(level, *options, worth=worth)[0]


def test_the_cheapest_serve_first_and_the_order_given_does_not_matter() -> None:
    row = (option("c", 12), option("a", 8), option("b", 10))

    assert taken(2.0, *row) == taken(2.0, *reversed(row)) == ["a", "b"]


def test_the_last_one_is_bought_only_if_its_useful_part_pays_for_all_of_it() -> None:
    assert taken(1.49, option("a", 10), option("b", 10)) == ["a"]
    assert taken(1.51, option("a", 10), option("b", 10)) == ["a", "b"]


def test_what_costs_more_than_it_earns_is_never_bought() -> None:
    assert taken(5.0, option("a", 20), worth=20.0) == []


def test_one_that_is_likely_refused_leaves_room_for_another() -> None:
    assert taken(1.0, option("a", 8, weight=0.5), option("b", 9)) == ["a", "b"]
    assert taken(1.0, option("a", 8), option("b", 9)) == ["a"]


def test_half_a_replica_need_only_pay_for_its_half() -> None:
    assert taken(0.3, option("a", 10, weight=0.5)) == ["a"]
    assert taken(0.3, option("a", 10)) == []


def test_a_lot_is_taken_as_far_as_it_is_worth_it() -> None:
    assert row(2.6, Lot(["a", "b", "c", "d"], 10, 1.0)) == (["a", "b", "c"], ["d"])


def test_of_a_lot_that_grows_dearer_others_may_come_before_the_next() -> None:
    assert taken(3.0, Lot(["a1", "a2", "a3"], 10, 1.0, step_usd_per_h=1.0), Lot(["b1", "b2"], 10.5, 1.0)) == [
        "a1",
        "b1",
        "b2",
    ]


def test_of_lots_that_cost_the_same_the_names_say_who_comes_first() -> None:
    assert row(2.6, Lot(["a", "c"], 10, 1.0), Lot(["b", "d"], 10, 0.9)) == (["a", "b", "c"], ["d"])


def test_what_can_never_be_used_costs_no_end_and_is_left() -> None:
    never = [Lot([f"{i}", f"{i}+"], math.inf, 1.0, step_usd_per_h=step) for i, step in enumerate((0.0, 0.0, 1.0))]

    assert row(9.0, *never, option("a", 10)) == (["a"], ["0", "0+", "1", "1+", "2", "2+"])


lots = st.lists(
    st.tuples(st.sampled_from([5.0, 8.0, 8.25, 12.0]), st.sampled_from([0.5, 0.75, 1.0]), st.integers(1, 4)),
    max_size=25,
)


@given(shapes=lots, level=st.integers(0, 40).map(lambda quarters: quarters / 4), seed=st.integers(0, 99))
def test_how_the_alike_are_parted_into_lots_does_not_matter(
    shapes: list[tuple[float, float, int]], level: float, seed: int
) -> None:
    numbers = iter(Random(seed).sample(range(100), 100))
    whole = [Lot(sorted(f"{next(numbers):02}" for _ in range(n)), usd, weight) for usd, weight, n in shapes]
    single = [Lot([name], lot.usd_per_h, lot.weight) for lot in whole for name in lot.items]

    assert row(level, *whole) == row(level, *single)
