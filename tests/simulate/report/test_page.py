"""The page as a reader and a browser get it: whole, well-formed, self-contained, and safe whatever names are in it."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scaler.simulate.report import Case, Report, write_report
from scaler.simulate.report.page import page
from scaler.simulate.result import Timeline
from tests.builders.report import some_case, some_facts, some_report, some_rows, some_run

HOSTILE = "<script>alert('1')</script>\"&amp;<b onload=x>\x00\x1b]]>"
CHARACTERS_OF_A_PAGE = 2_000_000


class Outline(HTMLParser):
    """What a browser would build: elements, text and attributes; fails on an end tag that closes nothing."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


def captions(text: str) -> list[str]:
    return re.findall(r"<figcaption><b>(.*?):?</b>", text)


def body_of(text: str) -> ET.Element:
    return ET.fromstring(text[text.index("<body>") : text.index("</body>") + len("</body>")])


ALL_SIZES = [
    pytest.param(lambda: some_report(1, spot=1), id="one policy, two offerings, 12 hours"),
    pytest.param(lambda: some_report(3, spot=4, compared=True), id="three policies compared"),
    pytest.param(
        lambda: some_report(8, spot=13, hours=168.0, compared=True), id="eight policies, 14 offerings, a week"
    ),
    pytest.param(
        lambda: Report(title="crowd", cases=tuple(some_case(8, spot=13, hours=48.0) for _ in range(6))),
        id="six scenarios of eight policies",
    ),
    pytest.param(lambda: Report(title="nothing but a comparison", comparison=some_rows()), id="a comparison alone"),
    pytest.param(lambda: Report(title="nothing at all"), id="nothing"),
]


@pytest.mark.parametrize("make", ALL_SIZES)
def test_every_page_is_well_formed_html_whose_body_is_xml_and_stays_small(make: Callable[[], Report]) -> None:
    text = page(make())
    outline = Outline(text)
    assert outline.open == []
    assert body_of(text).tag == "body"
    assert len(text.encode()) < CHARACTERS_OF_A_PAGE


def test_a_single_run_has_every_section_and_picture() -> None:
    text = page(some_report(1))
    assert headings(text) == [
        "Cost and tokens",
        "marginal_value over time",
        "The optimum over time",
        "Scenario",
        "Words",
    ]
    assert captions(text)[:8] == [
        "Cost per 1,000 trained samples, case-a",
        "Where the money goes",
        "Tokens salvaged, wasted and too stale",
        "Fleet by offering",
        "Ready replicas against demand",
        "Buffer depth against its band",
        "Trainer waiting for a batch",
        "Tokens wasted",
    ]


def test_a_comparison_has_a_dot_plot_for_every_scenario_and_regime_and_each_policy_a_section() -> None:
    text = page(some_report(3, compared=True))
    assert headings(text)[:2] == ["Policies over all windows", "Policies side by side"]
    dots = [caption for caption in captions(text) if caption.startswith("Cost per 1,000 trained samples")]
    assert len(dots) == 6 + 1
    assert "Trainer waiting, added up" in captions(text)
    assert {f"{name} over time" for name in ("marginal_value", "rate_match", "buffer_band")} <= set(headings(text))


def test_every_picture_has_a_caption_with_numbers_in_it() -> None:
    for figure in body_of(page(some_report(3, compared=True))).iter("figure"):
        caption = "".join(next(figure.iter("figcaption")).itertext())
        assert re.search(r"\d", caption), caption
        assert caption.endswith("."), caption


def hostile_report() -> Report:
    facts = some_facts(2)
    offerings = tuple(replace(each, offering_id=HOSTILE + each.offering_id) for each in facts.offerings)
    facts = replace(facts, name=HOSTILE, offerings=offerings, metadata={HOSTILE: HOSTILE})
    case = some_case(2)
    runs = tuple(replace(each, run=some_run(facts, f"{HOSTILE}{i}")) for i, each in enumerate(case.runs))
    assert case.optimum is not None
    row = replace(some_rows()[0], policy=HOSTILE, scenario=HOSTILE, regime=HOSTILE)
    return Report(
        title=HOSTILE,
        cases=(Case(facts=facts, runs=runs, optimum=replace(case.optimum, status=HOSTILE)),),
        comparison=(row,),
        notes=(HOSTILE,),
    )


def test_names_from_files_are_text_and_never_markup() -> None:
    text = page(hostile_report())
    plain, outline = Outline(page(some_report(2, compared=True))), Outline(text)
    assert set(outline.tags) <= set(plain.tags)
    assert {name for name, _ in outline.attributes} <= {name for name, _ in plain.attributes}
    assert body_of(text).tag == "body"
    assert any("<script>alert('1')</script>" in words for words in outline.words)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", text)


def test_a_page_needs_nothing_from_outside() -> None:
    text = page(some_report(3, compared=True))
    outline = Outline(text)
    links = [value for name, value in outline.attributes if name in {"href", "src", "xlink:href", "action", "data"}]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(outline.tags)
    assert not re.search(r"https?:|//\w|url\(|@import", text)


def test_every_link_leads_somewhere() -> None:
    outline = Outline(page(some_report(3, compared=True)))
    anchors = {value for name, value in outline.attributes if name == "id"}
    assert {value[1:] for name, value in outline.attributes if name == "href"} == anchors


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    write_report(first, some_report(3, compared=True))
    write_report(second, some_report(3, compared=True))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_text(encoding="utf-8") == page(some_report(3, compared=True))


def test_a_run_without_a_timeline_shows_its_figures_and_no_empty_picture() -> None:
    case = some_case(1)
    bare = replace(case.runs[0], run=replace(case.runs[0].run, timeline=Timeline(step_s=60.0)))
    text = page(Report(title="bare", cases=(replace(case, runs=(bare,), optimum=None),)))
    assert captions(text) == ["Where the money goes", "Tokens salvaged, wasted and too stale"]
    assert "nan" not in text


def test_a_run_that_trained_nothing_says_so_instead_of_a_cost() -> None:
    case = some_case(2)
    idle = replace(
        case.runs[1].run.summary,
        samples_trained=0,
        samples_credited=0.0,
        cost_usd_per_1k_samples=float("inf"),
        tokens_generated=0,
    )
    runs = (case.runs[0], replace(case.runs[1], run=replace(case.runs[1].run, summary=idle)))
    text = page(Report(title="idle", cases=(replace(case, runs=runs),)))
    assert "no sample credited" in text
    assert "infinite" in text
    assert "nan" not in text
