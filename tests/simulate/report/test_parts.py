"""What pictures are made of: numbers in words, axes, stretches of time, labels, layers, set-points, captions."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import buffer_band, rate_match, static
from scaler.model.capacity import CapacityType
from scaler.model.spec import PolicySpec
from scaler.simulate.report import Report, SetPoint, Spread, facts_of, set_points
from scaler.simulate.report.amounts import comparison, count, difference, duration, number, percent, plural, usd
from scaler.simulate.report.axes import Scale, hour_ticks, ticks
from scaler.simulate.report.bins import bins_of
from scaler.simulate.report.chart import Chart
from scaler.simulate.report.layers import layers_of, type_of
from scaler.simulate.report.nodes import node, render
from scaler.simulate.report.page import page
from scaler.simulate.result import Timeline
from tests.builders.report import some_case, some_facts, some_rows
from tests.builders.scenarios import a_scenario

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
]


@pytest.mark.parametrize(("say", "value", "words"), IN_WORDS)
def test_numbers_are_written_as_a_person_reads_them(say: object, value: float, words: str) -> None:
    assert callable(say)
    assert say(value).replace("\u00a0", " ") == words


def test_a_difference_has_its_sign_and_says_nothing_where_it_means_nothing() -> None:
    assert difference(104.1, 100.0) == "+4.1\u00a0%"
    assert difference(100.0001, 100.0) == "0.0\u00a0%"
    assert difference(1.0, 0.0) == ""
    assert comparison(96.0, 100.0) == "4.0\u00a0% below"
    assert plural(1, "replica") == "1\u00a0replica"


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6), most=st.integers(3, 12))
def test_marks_of_an_axis_are_few_and_inside_it(low: float, span: float, most: int) -> None:
    marks = ticks(low, low + span, most)
    slack = 1e-6 * max(1.0, abs(low), span)
    assert len(marks) <= most + 1
    assert all(low - slack <= mark <= low + span + slack for mark in marks)


@given(hours=st.floats(0.3, 2000.0))
def test_a_time_axis_has_a_mark_at_the_start_and_no_more_than_a_person_reads(hours: float) -> None:
    marks = hour_ticks(hours)
    assert marks[0] == 0.0
    assert marks[-1] <= hours
    assert len(marks) <= 75


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
    assert "400 samples wait on average" in captioned(report, "Buffer depth against its band")
    assert "is below the n* of 14.3 at no time" in captioned(report, "Fleet by offering")


def test_a_trainer_that_never_waits_is_said_to() -> None:
    assert captioned(flat_case(16.0, 1000.0, 0.0), "Trainer waiting for a batch").endswith("it never waits.")


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
    assert "of 2 combinations of scenario and regime: marginal_value in 2." in both


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
