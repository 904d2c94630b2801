"""Rows, regimes, groups and gaps of a comparison, by hand-made figures."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.simulate.compare import ALL, Group, best_single, compare, rows_of
from scaler.simulate.jobs import OPTIMUM
from tests.builders.comparisons import a_place, an_optimum, some_figures, some_rows

costs = st.lists(st.floats(1, 100), min_size=6, max_size=6)


def test_a_row_is_the_mean_over_the_seeds_and_the_optimum_has_its_own() -> None:
    ours, optimum = rows_of(a_place(), an_optimum(2.0), {"ours": [some_figures(3.0), some_figures(5.0, wait=0.1)]})

    assert (ours.policy, ours.seeds, ours.cost_usd_per_1k_samples, ours.ratio) == ("ours", 2, 4.0, 2.0)
    assert ours.trainer_wait_ratio == pytest.approx(0.05)
    assert ours.figures["interruptions"] == 3
    assert (optimum.policy, optimum.ratio) == (OPTIMUM, 1.0)


def test_the_ratio_before_refunds_is_of_what_both_would_pay_without_any() -> None:
    refunded = some_figures(3.0, refunds_usd=500.0)
    ours, optimum = rows_of(a_place(), an_optimum(2.0, before_refunds=4.0), {"ours": [refunded]})

    assert ours.before_refunds_usd_per_1k_samples == pytest.approx(4.5)
    assert ours.ratio_before_refunds == pytest.approx(4.5 / 4.0)
    assert optimum.ratio_before_refunds == 1.0


def test_the_baseline_is_the_best_single_policy_but_never_the_default_one() -> None:
    rows = some_rows([1.0, 1.0], marginal_value=[1.1, 1.1], a=[1.5, 1.1], b=[1.2, 1.2])

    assert best_single(rows, {"marginal_value"}) == "b"
    assert best_single(rows, {"marginal_value", "a", "b"}) == "marginal_value"
    assert compare(rows).baseline == "b"
    assert compare(rows, "a").baseline == "a"
    with pytest.raises(ValueError, match="'c' is none of the policies marginal_value, a, b"):
        compare(rows, "c")


def test_the_gap_share_is_sum_over_sum() -> None:
    groups = _overall(compare(some_rows([1.0, 2.0], base=[2.0, 6.0], ours=[1.5, 3.0]), "base").groups)

    assert groups["base"].gap_share is not None
    assert groups["base"].gap_share.value == 0.0
    assert groups["ours"].gap_share is not None
    assert groups["ours"].gap_share.value == pytest.approx((0.5 + 3.0) / (1.0 + 4.0))
    assert groups["ours"].gap_share_before_refunds == groups["ours"].gap_share
    assert groups[OPTIMUM].gap_share is None
    assert groups["ours"].ratio.value == pytest.approx((1.5 + 1.5) / 2)


@settings(max_examples=50)
@given(bound=costs, base=costs, ours=costs, scale=st.floats(0.1, 10))
def test_a_gap_share_does_not_hang_on_the_unit_of_money(
    bound: list[float], base: list[float], ours: list[float], scale: float
) -> None:
    def share(unit: float) -> float | None:
        scaled = ([value * unit for value in values] for values in (bound, base, ours))
        bounds, bases, mine = scaled
        found = _overall(compare(some_rows(bounds, base=bases, ours=mine), "base").groups)["ours"].gap_share
        return None if found is None else found.value

    if abs(sum(base) - sum(bound)) > 1e-3:
        one, other = share(1.0), share(scale)
        assert (one is None) is (other is None)
        assert (one or 0.0) == pytest.approx(other or 0.0, rel=1e-6, abs=1e-9)


def test_groups_are_by_scenario_and_regime_and_over_all() -> None:
    plenty = some_rows([1.0, 1.0], ours=[1.1, 1.2])
    scarce = rows_of(a_place(2), an_optimum(2.0, regime="scarce"), {"ours": [some_figures(4.0)]})
    groups = compare([*scarce, *plenty]).groups

    assert [(group.regime, group.policy, group.windows) for group in groups] == [
        ("plenty", "ours", 2),
        ("plenty", OPTIMUM, 2),
        ("scarce", "ours", 1),
        ("scarce", OPTIMUM, 1),
        (ALL, "ours", 3),
        (ALL, OPTIMUM, 3),
    ]


def test_rows_come_in_time_order_trace_by_trace() -> None:
    rows = [*some_rows([1.0, 1.0], trace="b", ours=[1.0, 1.0]), *some_rows([1.0, 1.0], trace="a", ours=[1.0, 1.0])]
    found = compare(reversed(rows)).rows

    ours = [(row.place.trace, row.place.start_h) for row in found if row.policy == "ours"]
    assert ours == [("a", 0.0), ("a", 12.0), ("b", 0.0), ("b", 12.0)]


def test_a_policy_that_trains_nothing_has_an_infinite_mean_and_no_number_in_json() -> None:
    comparison = compare(some_rows([1.0] * 5, base=[2.0] * 5, ours=[1.0, math.inf, 1.0, 1.0, 1.0]), "base")
    ours = _overall(comparison.groups)["ours"]

    assert ours.cost_usd_per_1k_samples.value == math.inf
    assert ours.gap_share is None
    shown = ours.to_json()
    assert shown["cost_usd_per_1k_samples"] is None
    assert shown["ratio_low"] is None
    assert [row["ratio"] for row in comparison.to_json()["rows"] if row["policy"] == "ours"].count(None) == 1


def test_a_window_where_not_even_the_optimum_trains_has_rows_and_counts_for_no_group() -> None:
    comparison = compare(some_rows([1.0, math.inf, 1.0], base=[2.0, math.inf, 2.0]))

    assert len(comparison.rows) == 6
    assert {group.windows for group in comparison.groups} == {2}
    with pytest.raises(ValueError, match="no window has a bound to hold costs against"):
        compare(some_rows([math.inf], base=[math.inf]))


@settings(max_examples=50)
@given(bound=costs, base=costs, ours=costs)
def test_an_interval_holds_its_value(bound: list[float], base: list[float], ours: list[float]) -> None:
    for group in compare(some_rows(bound, base=base, ours=ours), "base").groups:
        found = group.cost_usd_per_1k_samples
        assert found.interval is not None
        assert found.interval.low <= found.value + 1e-9
        assert found.value <= found.interval.high + 1e-9


def test_windows_that_go_up_and_down_in_turn_have_a_spread_in_every_interval() -> None:
    """Every block of two has the same mean."""
    base, ours = [2.0, 4.0] * 4, [1.2, 3.8] * 4
    found = _overall(compare(some_rows([1.0] * 8, base=base, ours=ours), "base").groups)["ours"]

    for estimate in (found.cost_usd_per_1k_samples, found.ratio, found.ratio_before_refunds, found.gap_share):
        assert estimate is not None
        assert estimate.interval is not None
        assert estimate.interval.high - estimate.interval.low > 0.1


def _overall(groups: tuple[Group, ...]) -> dict[str, Group]:
    return {group.policy: group for group in groups if group.regime == ALL}
