"""The page: one HTML file that needs nothing else.

Policy: pictures are inline SVG with text as text and no script; every name is escaped on the way in (see `nodes`). How many
steps a picture shows is chosen so that a page stays well below 2 MB whatever it shows.
Invariants: the same report gives the same bytes. No address of anything outside is in it.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from xml.etree.ElementTree import Element

from scaler.simulate.report.amounts import comparison, count, difference, duration, number, percent, plural, usd
from scaler.simulate.report.content import Case, Optimum, PolicyRun, Report
from scaler.simulate.report.costs import comparison_pictures, say_comparison
from scaler.simulate.report.nodes import clean, node, render
from scaler.simulate.report.sections import Section, sections_of
from scaler.simulate.report.tables import comparison_table
from scaler.simulate.report.too_stale import say_too_stale

_MOST_BINS, _LEAST_BINS = 280, 24
_BUDGET = 40_000
"""Steps times lines that a page may draw: about 25 bytes each, with what they say on hover."""

_WORDS = (
    ("n*", "the ready replicas whose goodput meets the rate at which the trainer would consume if it never waited"),
    ("optimum (bound)", "a lower bound of the cost in the same world with the future known: no policy can be below it"),
    ("samples credited", "samples trained, less what was eaten of the stock there was at the start"),
    ("warm start", "replicas that exist and are ready at the start, with a buffer; the same for every policy"),
    ("salvaged", "tokens that an interrupted worker handed over and another continued"),
    (
        "wasted",
        "tokens that never became part of a finished sample: lost with a worker, or given up unfinished as too stale",
    ),
    (
        "too stale",
        "finished samples, and their tokens, that were dropped since the policy had moved on too far to train on them",
    ),
    ("refund", "the charge that falls away where the cloud itself interrupts an instance in its first hour"),
)


def write_report(path: Path, report: Report) -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(page(report), encoding="utf-8", newline="\n")


def page(report: Report) -> str:
    """The page as text."""
    title = escape(clean(report.title))
    sheet = files(__package__).joinpath("sheet.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{title}</title>\n<style>\n{sheet}</style>\n</head>\n{render(_body(report))}\n</html>\n"
    )


def _body(report: Report) -> Element:
    sections = list(_sections(report))
    return node(
        "body",
        node("h1", report.title),
        *_opening(report),
        *_ways(sections),
        *(node("section", node("h2", each.heading), *each.children, id=each.anchor) for each in sections),
    )


def _sections(report: Report) -> Iterator[Section]:
    order, bins = policies_of(report), _bins_for(report)
    if report.comparison:
        children = [*comparison_pictures(report.comparison, order), comparison_table(report.comparison)]
        yield Section(anchor="comparison", name="Policies over all windows", children=tuple(children))
    for i, case in enumerate(report.cases):
        yield from sections_of(case, f"c{i}", order, bins, place=case.facts.name if len(report.cases) > 1 else "")
    yield Section(anchor="words", name="Words", children=(node("dl", *_glossary()),))


def _ways(sections: Sequence[Section]) -> Iterator[Element]:
    """Links to the sections, a line for every place."""
    for place, group in groupby(sections, key=lambda each: each.place):
        links = (node("a", each.name, href=f"#{each.anchor}") for each in group)
        yield node("nav", node("b", place) if place else None, *links)


def policies_of(report: Report) -> tuple[str, ...]:
    """All policies by name, in the order in which they appear: their colours go by it."""
    of_runs = (shown.run.summary.policy for case in report.cases for shown in case.runs)
    return tuple(dict.fromkeys((*of_runs, *(row.policy for row in report.comparison))))


def _bins_for(report: Report) -> int:
    lines = sum(len(shown.run.timeline.held) + 8 for case in report.cases for shown in case.runs)
    lines += sum(len(case.optimum.timeline.held) for case in report.cases if case.optimum and case.optimum.timeline)
    return max(_LEAST_BINS, min(_MOST_BINS, _BUDGET // max(1, lines)))


def _opening(report: Report) -> Iterator[Element]:
    if report.comparison:
        yield node("p", say_comparison(report.comparison), class_="lead")
    for case in report.cases[:1]:
        yield node("p", _headline(case, one_of_many=bool(report.comparison)), class_="lead")
        if len(case.runs) == 1:
            yield _tiles(case.runs[0], case.optimum)
    yield from _cautions(report)
    for note in report.notes:
        yield node("p", note, class_="muted")


def _cautions(report: Report) -> Iterator[Element]:
    for case in report.cases:
        for shown in case.runs:
            if words := say_too_stale(shown.run.summary, case.facts.balance_replicas):
                place = f"{case.facts.name}: " if len(report.cases) > 1 else ""
                yield node("p", node("b", "Too stale. "), place + words, class_="caution")


def _headline(case: Case, *, one_of_many: bool) -> str:
    shown = "the window shown, " if one_of_many else ""
    where = f"In {shown}{duration(case.facts.hours)} of {case.facts.name}"
    runs = sorted((shown.run.summary for shown in case.runs), key=lambda each: each.cost_usd_per_1k_samples)
    if not runs:
        return f"{where}."
    best = runs[0]
    words = (
        f"{where}, {best.policy} {'is cheapest of ' + str(len(runs)) + ' policies: it ' if len(runs) > 1 else ''}"
        f"trains {plural(best.samples_trained, 'sample', count)} for {usd(best.cost_usd)}, "
        f"{_per_1k(best.cost_usd_per_1k_samples)}"
    )
    bound = case.optimum.figure("cost_usd_per_1k_samples") if case.optimum else None
    cost = best.cost_usd_per_1k_samples
    above = comparison(cost, bound) if bound is not None and math.isfinite(cost) else ""
    beside = f" ({above} the clairvoyant bound)" if above else ""
    return f"{words}{beside}; the trainer waits {percent(best.trainer_wait_ratio)} of the time."


def _per_1k(cost: float) -> str:
    return f"{usd(cost)} per 1,000" if math.isfinite(cost) else "none of them credited"


def _tiles(shown: PolicyRun, optimum: Optimum | None) -> Element:
    summary = shown.run.summary
    tiles = [
        (usd(summary.cost_usd_per_1k_samples), "per 1,000 samples"),
        (percent(summary.trainer_wait_ratio), "of the time the trainer waits"),
        (number(summary.replicas_mean), "replicas ready on average"),
        (number(summary.interruptions, 4), "interruption" if summary.interruptions == 1 else "interruptions"),
        (
            percent(summary.tokens_wasted / max(1, summary.tokens_generated)),
            "of tokens wasted before a sample was finished",
        ),
        (percent(summary.tokens_stale / max(1, summary.tokens_generated)), "of tokens in samples dropped as too stale"),
    ]
    bound = optimum.figure("cost_usd_per_1k_samples") if optimum else None
    if bound is not None and math.isfinite(bound):
        beside = difference(summary.cost_usd_per_1k_samples, bound)
        tiles.insert(
            1, (beside, f"to the bound, {usd(bound)}") if beside else (usd(bound), "the bound, per 1,000 samples")
        )
    return node(
        "div",
        *(node("div", node("b", big), node("span", small), class_="tile") for big, small in tiles),
        class_="tiles",
    )


def _glossary() -> Iterator[Element]:
    for word, meaning in _WORDS:
        yield node("dt", word)
        yield node("dd", meaning)
