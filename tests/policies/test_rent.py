"""Expected rent for an hour of use: by hand where that can be done, and what must hold for any hazards."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.rent import Rent

NEVER = (0.0,) * 5
EVEN = (1.0,) * 5
hazards = st.lists(st.floats(0, 3), min_size=5, max_size=5).map(tuple)
hours = st.floats(0.05, 20)


def cost(usd: float = 10.0, per_h: tuple[float, ...] = NEVER, refund_h: float = 0.0, **facts: Any) -> float:
    more = {name: facts.pop(name, 0.0) for name in ("loss_usd", "minimum_h")}
    rent = Rent(usd_per_h=usd, hazards_per_h=per_h, refund_h=refund_h, **more)
    return rent.per_hour_of_use(**({"age_h": 0.0, "wait_h": 0.0, "use_h": 1.0} | facts))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, 10.0, id="never taken, no wait: the rent"),
        pytest.param({"wait_h": 0.5}, 15.0, id="half an hour of launch for an hour of use"),
        pytest.param({"per_h": EVEN}, 10.0, id="taken or not, rent is paid while it is there"),
        pytest.param({"per_h": EVEN, "loss_usd": 2.0}, 12.0, id="and one interruption an hour costs its loss"),
        pytest.param(
            {"per_h": EVEN, "refund_h": 1.0},
            10 * math.exp(-1) / (1 - math.exp(-1)),
            id="only what lasts the hour is paid",
        ),
        pytest.param({"per_h": EVEN, "refund_h": 1.0, "age_h": 1.0}, 10.0, id="beyond the refund's hour: the rent"),
        pytest.param({"minimum_h": 4.0}, 40.0, id="four hours are charged for the one"),
        pytest.param({"minimum_h": 0.5}, 10.0, id="a minimum that is used up is none"),
        pytest.param({"minimum_h": 4.0, "launched": True}, 0.0, id="what is paid for already costs nothing"),
        pytest.param({"minimum_h": 4.0, "launched": True, "age_h": 3.5}, 5.0, id="half an hour of this one is"),
        pytest.param({"minimum_h": 4.0, "launched": True, "age_h": 4.0}, 10.0, id="beyond the minimum: the rent"),
        pytest.param(
            {"minimum_h": 2.0, "per_h": EVEN},
            20 / (1 - math.exp(-1)),
            id="charged however soon it is taken: not once an hour",
        ),
    ],
)
def test_by_hand(facts: dict[str, Any], expected: float) -> None:
    assert cost(**facts) == pytest.approx(expected)


def test_a_hazard_that_falls_with_age_makes_the_old_cheaper_than_the_new() -> None:
    falling = (2.0, 1.0, 0.3, 0.1, 0.01)

    assert cost(per_h=falling, loss_usd=5.0, age_h=20.0) < cost(per_h=falling, loss_usd=5.0)


@given(per_h=hazards, wait_h=st.floats(0, 2), use_h=hours, refund_h=st.floats(0, 2), usd=st.floats(0, 100))
def test_it_is_never_below_nothing_and_rises_with_the_rent(
    per_h: tuple[float, ...], wait_h: float, use_h: float, refund_h: float, usd: float
) -> None:
    facts: dict[str, Any] = {"per_h": per_h, "wait_h": wait_h, "use_h": use_h, "refund_h": refund_h, "loss_usd": 1.0}
    less, more = cost(usd, **facts), cost(usd + 1, **facts)

    assert 0 <= less <= more * (1 + 1e-9)


@given(
    per_h=hazards, use_h=hours, refund_h=st.floats(0, 2), waits=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
)
def test_what_is_nearer_to_ready_costs_no_more(
    per_h: tuple[float, ...], use_h: float, refund_h: float, waits: list[float]
) -> None:
    """A replica on its way, against a new one like it: or it would be bought twice."""
    near, far = waits
    facts: dict[str, Any] = {"per_h": (per_h[0],) * 5, "use_h": use_h, "refund_h": refund_h}

    on_its_way = cost(age_h=far - near, wait_h=near, **facts)

    assert on_its_way <= cost(age_h=0.0, wait_h=far, **facts) * (1 + 1e-6) + 1e-9


@given(per_h=hazards, wait_h=st.floats(0, 1), use_h=hours, minimum_h=st.floats(0, 20), age_h=st.floats(0, 20))
def test_a_minimum_makes_the_new_no_cheaper_and_the_launched_no_dearer(
    per_h: tuple[float, ...], wait_h: float, use_h: float, minimum_h: float, age_h: float
) -> None:
    facts: dict[str, Any] = {"per_h": per_h, "wait_h": wait_h, "use_h": use_h}
    new = cost(**facts, minimum_h=minimum_h)
    there = cost(**facts, age_h=age_h, minimum_h=minimum_h, launched=True)

    assert cost(**facts) <= new * (1 + 1e-9)
    assert 0 <= there <= cost(**facts, age_h=age_h) * (1 + 1e-9)
