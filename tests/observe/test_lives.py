"""Which instances went: a list may leave one out for a moment, and lists may be far apart."""

from scaler.model.pool import PoolObservation
from scaler.observe.lives import Lives
from scaler.observe.offerings import OfferingMemory
from tests.builders.fleet import an_instance


def a_list(at_s: float, *instance_ids: str) -> dict[str, PoolObservation]:
    instances = tuple(an_instance(each) for each in instance_ids)
    return {"pool": PoolObservation(listed_at_s=at_s, instances=instances)}


def looked(lives: Lives, at_s: float, pools: dict[str, PoolObservation]) -> list[str]:
    """Who is surely gone, as of a turn at that time on these lists."""
    lives.listed(pools, at_s, frozenset())
    return sorted(lives.surely_gone())


def test_one_that_a_later_list_misses_too_is_surely_gone() -> None:
    lives = Lives(OfferingMemory())
    assert looked(lives, 0.0, a_list(0.0, "i-1", "i-2")) == []
    assert looked(lives, 5.0, a_list(5.0, "i-1")) == []
    assert looked(lives, 14.0, a_list(14.0, "i-1")) == []
    assert looked(lives, 16.0, a_list(15.5, "i-1")) == ["i-2"]


def test_time_alone_makes_nothing_gone_while_lists_are_slow() -> None:
    lives = Lives(OfferingMemory())
    looked(lives, 0.0, a_list(0.0, "i-1"))
    missing = a_list(4.0)
    assert looked(lives, 5.0, missing) == looked(lives, 25.0, missing) == []
    assert looked(lives, 27.0, a_list(25.0, "i-1")) == []
    assert lives.gone() == {"pool": ()}
