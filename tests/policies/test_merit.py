"""The row from cheap to dear."""

from policies.merit import Candidate, Market, in_merit_order


def option(name: str, usd: float, weight: float = 1.0) -> Candidate[str]:
    return Candidate(item=name, usd_per_h=usd, weight=weight, name=name)


def taken(level: float, *options: Candidate[str], worth: float = 20.0) -> list[str]:
    market = Market(worth_usd_per_h=worth, level=lambda _usd: level)
    return [candidate.name for candidate in in_merit_order(options, market)[0]]


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
