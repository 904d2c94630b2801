"""What pictures are made of: numbers in words, axes, stretches of time, labels, layers, set-points, captions."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies import buffer_band, rate_match, static
from scaler.model.capacity import CapacityType
from scaler.model.spec import PolicySpec
from scaler.simulate.report import Report, SetPoint, Spread, facts_of, set_points
from scaler.simulate.report.amounts import (
    comparison,
    count,
    difference,
    duration,
    interval,
    marks,
    number,
    percent,
    plural,
    points,
    significant,
    usd,
)
from scaler.simulate.report.axes import Scale, hour_ticks, ticks, time_unit
from scaler.simulate.report.bins import bins_of
from scaler.simulate.report.chart import Chart
from scaler.simulate.report.layers import layers_of, type_of
from scaler.simulate.report.nodes import node, render
from scaler.simulate.report.page import page
from scaler.simulate.result import Timeline
from tests.builders.report import some_case, some_facts, some_rows
from tests.builders.scenarios import a_scenario

SPOT = some_facts().offerings[0].offering_id
IN_WORDS = [
    (number, 0.0, "0"),
    (number, 14.34, "14.3"),
    (number, 1234567.0, "1,234,567"),
    (number, 0.000123456, "0.000123"),
    (number, math.inf, "infinite"),
    (count, 9_999, "9,999"),
    (count, 12_345, "12.3 k"),
    (count, 1_999_999, "2 M"),
    (usd, 0.5234, "0.5234 USD"),
    (usd, 84.9, "84.90 USD"),
    (usd, 12345.6, "12,346 USD"),
    (usd, math.inf, "infinite"),
    (percent, 0.0, "0.0 %"),
    (percent, 0.0001, "< 0.1 %"),
    (percent, 1.0, "100 %"),
    (duration, 0.25, "15 minutes"),
    (duration, 1.0, "1 hour"),
    (duration, 168.0, "7 days"),
    (number, 999.96, "1,000"),
    (number, 4.6e-16, "0"),
    (number, 2.5e17, "2.50\u00d710^17"),
    (count, 380.1, "380"),
    (count, 999_960_000.0, "1 G"),
    (usd, 0.0, "0 USD"),
    (usd, 3e-12, "0 USD"),
    (usd, math.nan, "unknown"),
    (percent, 1e-15, "0.0 %"),
    (percent, -0.0001, "> -0.1 %"),
    (percent, -0.0, "0.0 %"),
    (percent, 123.4, "12,340 %"),
    (points, -0.0004, "0.0 points"),
    (points, 0.0243, "+2.4 points"),
    (duration, 4.6e-16, "0 hours"),
    (duration, 1e-3 / 3600, "0.001 seconds"),
    (duration, 0.0068, "24.5 seconds"),
    (duration, 0.99999, "1 hour"),
]


@pytest.mark.parametrize(("say", "value", "words"), IN_WORDS)
def test_numbers_are_written_as_a_person_reads_them(say: object, value: float, words: str) -> None:
    assert callable(say)
    assert say(value).replace("\u00a0", " ") == words


def test_a_difference_has_its_sign_and_says_nothing_where_it_means_nothing() -> None:
    assert difference(104.1, 100.0) == "+4.1\u00a0%"
    assert difference(100.0001, 100.0) == "0.0\u00a0%"
    assert difference(1.0, 0.0) == ""
    assert difference(16_100.0, 1e-14) == "", "what is written as 0 is nothing to measure by"
    assert difference(1e300, 1e-300) == ""
    assert difference(3.0, 1.0) == "+200\u00a0%"
    assert comparison(96.0, 100.0) == "4.0\u00a0% below"
    assert comparison(100.0, 100.0) == "level with"
    assert plural(1, "replica") == "1\u00a0replica"


def read(text: str) -> float:
    """The number that a person takes from the words."""
    first, _, unit = text.partition("\u00a0")
    mantissa, _, exponent = first.replace(",", "").partition("\u00d710^")
    times = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(unit, 1.0)
    return float(mantissa) * 10.0 ** int(exponent or 0) * times


@pytest.mark.parametrize("say", [number, significant, count, usd])
@given(value=st.floats(-1e300, 1e300, allow_nan=False))
def test_any_number_is_short_and_within_one_in_a_hundred(say: Callable[[float], str], value: float) -> None:
    text = say(value)
    assert len(text) <= len("-999,999,999,999,999\u00a0USD")
    assert "e" not in text
    assert re.search(r"\.\d*[1-9]\d*[1-9]\d*[1-9]\d*[1-9]\d*[1-9]", text) is None, (
        "five digits that matter after the point"
    )
    assert read(text) == pytest.approx(value, rel=0.01, abs=1e-6)


@given(hours=st.floats(0.0, 1e9))
def test_any_length_of_time_is_short_and_within_one_in_a_hundred(hours: float) -> None:
    amount, unit = duration(hours).split("\u00a0")
    seconds = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}[unit.removesuffix("s")]
    assert len(amount) <= len("0.00999") or hours > 1e4
    assert read(amount) * seconds == pytest.approx(3600 * hours, rel=0.01, abs=0.0036)


@given(ratio=st.floats(-1e300, 1e300, allow_nan=False))
def test_any_share_is_short(ratio: float) -> None:
    assert re.fullmatch(
        "<\u00a00.1|>\u00a0-0.1|-?[0-9,]{1,19}(\\.[0-9])?|-?[0-9.]+\u00d710\\^[0-9]+", percent(ratio)[:-2]
    )


@given(
    first=st.integers(-50, 5000),
    nice=st.sampled_from([1.0, 2.0, 2.5, 5.0]),
    power=st.integers(-4, 6),
    many=st.integers(2, 9),
)
def test_marks_of_an_axis_are_told_apart_and_true(first: int, nice: float, power: int, many: int) -> None:
    step = nice * 10.0**power
    values = [(first + i) * step for i in range(many)]
    assert [read(text) for text in marks(values)] == pytest.approx(values, rel=1e-9, abs=1e-9)


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6), most=st.integers(3, 12))
def test_marks_of_an_axis_are_few_and_inside_it(low: float, span: float, most: int) -> None:
    marks = ticks(low, low + span, most)
    slack = 1e-6 * max(1.0, abs(low), span)
    assert len(marks) <= most + 1
    assert all(low - slack <= mark <= low + span + slack for mark in marks)


@given(hours=st.floats(1e-9, 2000.0))
@example(hours=0.02)
def test_a_time_axis_has_a_mark_at_the_start_and_no_more_than_a_person_reads(hours: float) -> None:
    marks = hour_ticks(hours)
    assert marks[0] == 0.0
    assert marks[-1] <= hours
    assert len(marks) <= 75
    assert len(marks) >= 2


@pytest.mark.parametrize(
    ("hours", "word", "first"),
    [
        (168.0, "days", 1.0),
        (12.0, "hours", 1.0),
        (0.5, "minutes", 5.0),
        (1 / 360, "seconds", 2.0),
        (1e-3 / 3600, "seconds", 2e-4),
    ],
)
def test_a_time_axis_counts_in_the_unit_that_fits_its_length(hours: float, word: str, first: float) -> None:
    unit_h, told = time_unit(hours)
    assert told == word
    assert hour_ticks(hours)[1] / unit_h == pytest.approx(first)


def test_one_of_a_thing_is_told_in_the_singular_and_no_cost_is_infinite_a_thousand() -> None:
    case = some_case(1)
    run = case.runs[0].run
    idle = replace(
        run.summary, samples_trained=1, samples_credited=0.0, cost_usd_per_1k_samples=math.inf, interruptions=1
    )
    timeline = replace(run.timeline, held={SPOT: (1.0,) * 144}, capacity={})
    shown = replace(case.runs[0], run=replace(run, summary=idle, timeline=timeline))
    text = page(Report(title="one", cases=(replace(case, runs=(shown,)),))).replace("\u00a0", " ")
    assert "trains 1 sample for" in text
    assert "none of them credited; the trainer waits" in text
    assert "<span>interruption</span>" in text
    assert f"{SPOT}: 1 replica on average" in text
    assert "on average, 1 replica held, the largest part" in text
    assert "<b></b>" not in text


def test_what_lies_outside_of_a_scale_is_drawn_at_its_edge() -> None:
    scale = Scale(low=0.0, high=10.0, start_px=100.0, end_px=0.0)
    assert [scale(value) for value in (-5.0, 0.0, 5.0, 20.0)] == [100.0, 100.0, 50.0, 0.0]


@given(values=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=400), most=st.integers(1, 80))
def test_stretches_lose_no_sum_and_keep_the_least_and_the_greatest(values: list[float], most: int) -> None:
    bins = bins_of(len(values), 60.0, most)
    assert len(bins.edges) - 1 == min(len(values), most)
    assert sum(bins.total(values)) == pytest.approx(sum(values))
    assert (min(bins.least(values)), max(bins.most(values))) == (min(values), max(values))
    assert bins.coarser(7).edges[-1] == len(values)


def label_heights(chart: Chart) -> list[float]:
    return sorted(float(text.get("y") or 0) for text in chart.finish().iter("text") if text.get("class") == "halo")


@given(values=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=9))
def test_labels_at_the_right_never_cover_each_other_or_leave_the_picture(values: list[float]) -> None:
    chart = Chart("any", (0.0, 1.0), (0.0, 10.0), 150)
    for value in values:
        chart.label(value, "words", "#000000")
    heights = label_heights(chart)
    assert all(after - before >= 14.5 for before, after in pairwise(heights))
    assert chart.top <= heights[0]
    assert heights[-1] <= chart.bottom + 8


def test_a_stack_is_drawn_to_scale() -> None:
    chart = Chart("any", (0.0, 2.0), (0.0, 10.0), 100)
    chart.area((0.0, 1.0, 2.0), (5.0, 10.0), "#000000", "words")
    path = next(chart.svg.iter("path")).get("d")
    assert path is not None
    middle, x = (chart.top + chart.bottom) / 2, (chart.left + chart.right) / 2
    assert path.startswith(
        f"M{chart.left:g} {chart.bottom:g}L{chart.left:g} {middle:g}H{x:g}V{chart.top:g}H{chart.right:g}"
    )


def test_text_that_xml_cannot_hold_is_replaced() -> None:
    text = render(node("p", "a\x00b\x1b\ud800", "<&>", title='"<>"'))
    assert "".join(ET.fromstring(text).itertext()) == "a\ufffdb\ufffd\ufffd<&>"


def test_an_element_without_content_is_closed_by_an_end_tag() -> None:
    assert render(node("td")) == "<td></td>"


def test_layers_go_from_steady_to_dear_and_those_without_a_colour_are_one() -> None:
    layers = layers_of(some_case(1, spot=13))
    assert [layer.capacity_type for layer in layers] == [CapacityType.SPOT] * (len(layers) - 1) + [
        CapacityType.ON_DEMAND
    ]
    assert len({layer.colour for layer in layers}) == len(layers)
    assert layers[-2].label == "4 other spot offerings"
    assert sum(len(layer.offerings) for layer in layers) == len({o for layer in layers for o in layer.offerings})


def test_all_policies_of_a_case_share_the_colours_of_offerings() -> None:
    one, many = some_case(1), some_case(3)
    assert {layer.label: layer.colour for layer in layers_of(one)}.keys() == {each.label for each in layers_of(many)}


def test_an_offering_that_the_scenario_does_not_name_is_told_by_its_id() -> None:
    case = some_case(1)
    assert type_of(case, "g6/zone/capacity-block") is CapacityType.CAPACITY_BLOCK
    assert type_of(case, "whatever") is CapacityType.SPOT


SET_POINTS = [
    pytest.param("rate_match", rate_match.Params(), [("target", 64.0), ("max", 128.0)], id="steps are batches"),
    pytest.param("buffer_band", buffer_band.Params(), [("low", 32.0), ("high", 96.0)], id="marks in steps"),
    pytest.param(
        "buffer_band",
        buffer_band.Params(low_mark=10, high_mark=20, marks_in=buffer_band.MarkUnit.SAMPLES),
        [("low", 10.0), ("high", 20.0)],
        id="marks in samples",
    ),
    pytest.param("static", static.Params(replicas=3), [], id="a policy without any"),
]


@pytest.mark.parametrize(("name", "params", "expected"), SET_POINTS)
def test_set_points_are_known_by_the_units_in_their_names(
    name: str, params: object, expected: list[tuple[str, float]]
) -> None:
    found = set_points(PolicySpec(name=name, params=params), 64)
    assert found == tuple(SetPoint(name=each, samples=samples) for each, samples in expected)


def test_facts_are_those_of_the_scenario() -> None:
    scenario = a_scenario()
    facts = facts_of(scenario)
    assert facts.balance_replicas == scenario.balance_replicas
    assert facts.ceiling == scenario.fleet.stages[0].guard_rails.max_replicas
    assert {each.offering_id for each in facts.offerings} == {m.offering.offering_id for m in scenario.offerings}


def captioned(report: Report, head: str) -> str:
    words = re.search(rf"<b>{head}:</b>(.*?)</figcaption>", page(report))
    assert words is not None
    return words[1].replace("\u00a0", " ")


def flat_case(ready: float, depth: float, waiting: float) -> Report:
    """Twelve hours in which nothing changes."""
    facts, steps = some_facts(1), 144
    held = {facts.offerings[0].offering_id: (ready,) * steps}
    timeline = Timeline(
        step_s=300.0,
        held=held,
        ready=(ready,) * steps,
        capacity=dict.fromkeys(held, (20.0,) * steps),
        buffered_samples=(depth,) * steps,
        waiting_ratio=(waiting,) * steps,
    )
    case = some_case(1, spot=1)
    shown = replace(case.runs[0], run=replace(case.runs[0].run, timeline=timeline))
    return Report(title="flat", cases=(replace(case, facts=facts, runs=(shown,), optimum=None),))


def test_captions_say_the_numbers_of_the_run() -> None:
    report = flat_case(ready=10.0, depth=400.0, waiting=0.25)
    assert "3 hours of 12 hours, 25.0 % in all" in captioned(report, "Trainer waiting for a batch")
    assert "10 are ready on average; for 100 % of the time they are fewer than the n* of 14.3" in captioned(
        report, "Ready replicas against demand"
    )
    buffer = captioned(report, "Buffer depth against its band")
    assert "400 samples wait on average and 400 in the fullest 5 minutes" in buffer
    assert "admission lets 2,048 into buffer and flight together; the policy steers by target 512, max 1,024;" in buffer
    assert "is below the n* of 14.3 at no time" in captioned(report, "Fleet by offering")


def test_a_trainer_that_never_waits_is_said_to() -> None:
    for next_to_nothing in (0.0, 3e-16):
        report = flat_case(16.0, 1000.0, next_to_nothing)
        assert captioned(report, "Trainer waiting for a batch") == " of 12 hours it never waits."


def test_what_a_solver_rounds_off_is_not_below_demand() -> None:
    words = captioned(flat_case(14.3 - 1e-12, 1000.0, 0.0), "Ready replicas against demand")
    assert "for 0.0 % of the time they are fewer than the n* of 14.3" in words


def stocked(most: float | None) -> Report:
    """An optimum whose stock is 2,052 samples throughout, 4 more than admission lets in."""
    case = some_case(1, spot=1)
    assert case.optimum is not None
    timeline = Timeline(step_s=300.0, buffered_samples=(2052.0,) * 144)
    optimum = replace(case.optimum, timeline=timeline, stock_most_samples=most)
    return Report(title="stocked", cases=(replace(case, optimum=optimum),))


def test_the_optimum_s_stock_is_held_against_what_its_bound_allows() -> None:
    words = captioned(stocked(2052.0), "Stock against its bound")
    assert "2,052 samples are made and not used up on average and 2,052 in the fullest 5 minutes" in words
    assert "2,048 that admission lets into buffer and flight, and 4 more, as the plan knows no whole groups" in words
    assert ">at most, 2,052</text>" in page(stocked(2052.0))
    assert "into buffer and flight." in captioned(stocked(None), "Stock against its bound")


def test_a_comparison_says_how_far_the_cheapest_is_above_the_bound_window_by_window() -> None:
    row = replace(some_rows()[0], ratio=Spread(value=1.037, low=1.03, high=1.05))
    caption = captioned(Report(title="one", comparison=(row,)), "Cost per 1,000 trained samples, case-a, plenty")
    assert "3.7 % above the bound of 80.00 USD" in caption


def test_all_regimes_together_are_shown_only_beside_several_and_win_nothing() -> None:
    plenty, scarce = (
        row for row in some_rows(("marginal_value",)) if row.scenario == "small" and row.regime != "mixed"
    )
    every = replace(plenty, regime="all")
    alone = page(Report(title="one regime", comparison=(plenty, every)))
    assert "all regimes" not in alone
    assert "Over all windows, marginal_value has the lowest mean cost" in alone
    both = page(Report(title="two regimes", comparison=(plenty, scarce, every)))
    assert "<b>Cost per 1,000 trained samples, small, all regimes:</b>" in both
    assert "In all 2 combinations of scenario and regime, marginal_value has the lowest mean cost" in both


def test_a_page_of_several_worlds_names_the_world_in_every_heading() -> None:
    text = page(Report(title="two", cases=(some_case(1, name="here"), some_case(1, name="there"))))
    assert "<h2>Scenario: here</h2>" in text
    assert "<h2>Scenario: there</h2>" in text


def bars(report: Report, head: str) -> list[tuple[float, float, str]]:
    """(left, width, title) of the bars of a picture."""
    text = page(report)
    figure = next(f for f in ET.fromstring(text[text.index("<body>") : text.index("</html>")]).iter("figure")
                  if head in "".join(next(f.iter("figcaption")).itertext()))  # fmt: skip
    boxes = [box for box in figure.iter("rect") if box.find("title") is not None]
    return [(float(b.get("x", 0)), float(b.get("width", 0)), b.findtext("title", "")) for b in boxes]


def test_the_parts_of_a_cost_add_up_to_it_with_refunds_left_of_zero() -> None:
    case = some_case(1)
    summary = case.runs[0].run.summary
    found = bars(Report(title="costs", cases=(replace(case, optimum=None),)), "Where the money goes")
    values = {title.split(":")[0]: float(title.split(" ")[1].replace(",", "")) for _, _, title in found}
    assert sum(values.values()) == pytest.approx(summary.cost_usd_per_1k_samples, rel=5e-3)
    assert values["refunds"] < 0
    left, width, _ = found[0]
    refunds = next(bar for bar in found if bar[2].startswith("refunds"))
    assert refunds[0] + refunds[1] == pytest.approx(left, abs=0.2)
    assert width / refunds[1] == pytest.approx(-values["trainer"] / values["refunds"], rel=0.1)


def test_the_table_says_how_far_a_run_is_above_the_optimum() -> None:
    case = some_case(1)
    assert case.optimum is not None
    figures = {**case.optimum.figures, "cost_usd": case.runs[0].run.summary.cost_usd / 1.25}
    text = page(Report(title="table", cases=(replace(case, optimum=replace(case.optimum, figures=figures)),)))
    assert "<small>+25.0\u00a0%</small>" in text


def test_where_no_token_is_wasted_it_says_so_and_who_salvages_most() -> None:
    case = some_case(2)
    runs = tuple(
        replace(
            each, run=replace(each.run, summary=replace(each.run.summary, tokens_wasted=0, tokens_salvaged=salvaged))
        )
        for each, salvaged in zip(case.runs, (10, 70_000), strict=True)
    )
    caption = captioned(
        Report(title="none", cases=(replace(case, runs=runs),)), "Tokens salvaged, wasted and too stale"
    )
    assert "none is wasted; rate_match salvages most, 70 k of" in caption


def test_an_interval_says_its_unit_once() -> None:
    assert interval(lambda end: difference(end, 1.0), 1.189, 1.346) == "+18.9 to +34.6\u00a0%"
    assert interval(percent, -0.0001, 0.25) == ">\u00a0-0.1 to 25.0\u00a0%"
    assert interval(significant, 49.26, 56.6) == "49.26 to 56.60"


def test_hours_waited_are_added_up() -> None:
    case = some_case(2)
    steps = 144
    runs = tuple(
        replace(each, run=replace(each.run, timeline=Timeline(step_s=300.0, waiting_ratio=(share,) * steps)))
        for each, share in zip(case.runs, (0.25, 0.5), strict=True)
    )
    report = Report(title="waits", cases=(replace(case, runs=runs, optimum=None),))
    caption = captioned(report, "Trainer waiting, added up")
    assert "marginal_value waits least with 3 hours and rate_match most with 6 hours" in caption


def test_what_is_dropped_as_too_stale_is_told_beside_what_is_wasted() -> None:
    case = some_case(1)
    run = case.runs[0].run
    summary = replace(
        run.summary, tokens_generated=1000, tokens_wasted=20, tokens_stale=186, tokens_salvaged=0, samples_dropped=9
    )
    report = Report(
        title="stale", cases=(replace(case, runs=(replace(case.runs[0], run=replace(run, summary=summary)),)),)
    )
    text = page(report).replace("\u00a0", " ")
    assert "<b>2.0 %</b><span>of tokens wasted before a sample was finished</span>" in text
    assert "<b>18.6 %</b><span>of tokens in samples dropped as too stale</span>" in text
    fates = captioned(report, "Tokens salvaged, wasted and too stale")
    assert "marginal_value drops 9 samples as too stale, with 186 of 1,000 generated (18.6 %)" in fates
    assert "186 (18.6 %) are in finished samples that were dropped as too stale" in captioned(report, "Tokens wasted")
    found = bars(report, "Tokens salvaged, wasted and too stale")
    widths = {title.rpartition("tokens ")[2]: width for _, width, title in found}
    assert widths["too stale"] / widths["wasted"] == pytest.approx(9.3, rel=0.02)
    assert "dropped unused" not in text
