"""The page: one HTML file that needs nothing else.

Policy: pictures are inline SVG with text as text and no script; every name is escaped on the way in (see `nodes`). How many
steps a picture shows is chosen so that a page stays well below 2 MB whatever it shows.
Invariants: the same report gives the same bytes. No address of anything outside is in it.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element

from scaler.simulate.report.amounts import comparison, count, difference, duration, number, percent, plural, usd
from scaler.simulate.report.content import Case, Optimum, PolicyRun, Report
from scaler.simulate.report.costs import comparison_pictures, cost_split, rows_of, say_comparison
from scaler.simulate.report.figures import swatch
from scaler.simulate.report.layers import Layer, layers_of
from scaler.simulate.report.nodes import Child, clean, node, render
from scaler.simulate.report.over_time import Shown, pictures
from scaler.simulate.report.side_by_side import token_fates, waiting_so_far
from scaler.simulate.report.tables import comparison_table, facts_table, figures_table, offerings_table

_MOST_BINS, _LEAST_BINS = 280, 24
_BUDGET = 40_000
"""Steps times lines that a page may draw: about 25 bytes each, with what they say on hover."""

_WORDS = (
    ("n*", "the ready replicas whose goodput meets the rate at which the trainer would consume if it never waited"),
    ("optimum (bound)", "a lower bound of the cost in the same world with the future known: no policy can be below it"),
    ("samples credited", "samples trained, less what was eaten of the stock there was at the start"),
    ("warm start", "replicas that exist and are ready at the start, with a buffer; the same for every policy"),
    ("salvaged, wasted", "tokens that an interrupted worker handed over; tokens generated that nobody could use"),
    ("refund", "the charge that falls away where the cloud itself interrupts an instance in its first hour"),
)


def write_report(path: Path, report: Report) -> None:
    """Write the page; folders are made.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
    order = policies_of(report)
    bins = _bins_for(report)
    sections: list[tuple[str, str, list[Child]]] = []
    if report.comparison:
        sections.append(("comparison", "Policies over all windows", list(_comparison(report, order))))
    for i, case in enumerate(report.cases):
        sections.extend(_case(i, case, order, bins, several=len(report.cases) > 1))
    sections.append(("words", "Words", [node("dl", *_glossary())]))
    return node(
        "body",
        node("h1", report.title),
        *_opening(report),
        node("nav", *(node("a", name, href=f"#{anchor}") for anchor, name, _ in sections)),
        *(node("section", node("h2", name), *children, id=anchor) for anchor, name, children in sections),
    )


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
        yield node("p", _headline(case), class_="lead")
        if len(case.runs) == 1:
            yield _tiles(case.runs[0], case.optimum)
    for note in report.notes:
        yield node("p", note, class_="muted")


def _headline(case: Case) -> str:
    where = f"In {duration(case.facts.hours)} of {case.facts.name}"
    runs = sorted((shown.run.summary for shown in case.runs), key=lambda each: each.cost_usd_per_1k_samples)
    if not runs:
        return f"{where}."
    best = runs[0]
    words = (
        f"{where}, {best.policy} {'is cheapest of ' + str(len(runs)) + ' policies: it ' if len(runs) > 1 else ''}"
        f"trains {count(best.samples_trained)} samples for {usd(best.cost_usd)}, "
        f"{usd(best.cost_usd_per_1k_samples)} per 1,000"
    )
    bound = case.optimum.figure("cost_usd_per_1k_samples") if case.optimum else None
    above = comparison(best.cost_usd_per_1k_samples, bound) if bound is not None else ""
    beside = f" ({above} the clairvoyant bound)" if above else ""
    return f"{words}{beside}; the trainer waits {percent(best.trainer_wait_ratio)} of the time."


def _tiles(shown: PolicyRun, optimum: Optimum | None) -> Element:
    summary = shown.run.summary
    tiles = [
        (usd(summary.cost_usd_per_1k_samples), "per 1,000 samples"),
        (percent(summary.trainer_wait_ratio), "of the time the trainer waits"),
        (number(summary.replicas_mean), "replicas ready on average"),
        (number(summary.interruptions, 4), "interruptions"),
        (percent(summary.tokens_wasted / max(1, summary.tokens_generated)), "of tokens wasted"),
    ]
    bound = optimum.figure("cost_usd_per_1k_samples") if optimum else None
    if bound is not None and math.isfinite(bound):
        tiles.insert(1, (difference(summary.cost_usd_per_1k_samples, bound), f"to the bound, {usd(bound)}"))
    return node(
        "div",
        *(node("div", node("b", big), node("span", small), class_="tile") for big, small in tiles),
        class_="tiles",
    )


def _comparison(report: Report, order: Sequence[str]) -> Iterator[Child]:
    yield from comparison_pictures(report.comparison, order)
    yield comparison_table(report.comparison)


def _case(
    i: int, case: Case, order: Sequence[str], bins: int, *, several: bool
) -> Iterator[tuple[str, str, list[Child]]]:
    layers = layers_of(case)
    suffix = f": {case.facts.name}" if several else ""
    together = "Policies side by side" if len(case.runs) > 1 else "Cost and tokens"
    yield f"c{i}-together", together + suffix, list(_together(case, order, bins))
    for j, each in enumerate(case.runs):
        shown = _shown(case, each, layers, bins)
        yield f"c{i}-run{j}", f"{each.run.summary.policy} over time{suffix}", list(pictures(shown))
    if case.optimum is not None and case.optimum.timeline is not None:
        shown = Shown(case=case, name="the optimum", timeline=case.optimum.timeline, layers=layers, most_bins=bins)
        yield f"c{i}-optimum", f"The optimum over time{suffix}", list(pictures(shown))
    yield f"c{i}-scenario", f"Scenario{suffix}", list(_scenario(case, layers))


def _together(case: Case, order: Sequence[str], bins: int) -> Iterator[Child]:
    if len(case.runs) > 1 or case.optimum is not None:
        yield from comparison_pictures(rows_of(case), order)
    yield cost_split(case)
    yield waiting_so_far(case, order, bins)
    yield token_fates(case)
    yield node("h3", "Figures")
    if case.optimum is not None and case.optimum.status:
        yield node(
            "p",
            f"Below a figure: its difference to the optimum's. The solver says: {case.optimum.status}.",
            class_="muted",
        )
    yield figures_table(case)


def _shown(case: Case, each: PolicyRun, layers: tuple[Layer, ...], bins: int) -> Shown:
    summary = each.run.summary
    return Shown(
        case=case,
        name=summary.policy,
        timeline=each.run.timeline,
        layers=layers,
        most_bins=bins,
        set_points=each.set_points,
        interruptions=summary.interruptions,
        tokens={
            "generated": summary.tokens_generated,
            "salvaged": summary.tokens_salvaged,
            "wasted": summary.tokens_wasted,
        },
    )


def _scenario(case: Case, layers: Sequence[Layer]) -> Iterator[Child]:
    yield facts_table(case.facts)
    yield node("h3", f"Offerings ({plural(len(case.facts.offerings), 'offering')}), and replicas held on average")
    swatches = {name: swatch(layer.colour) for layer in layers for name in layer.offerings}
    yield offerings_table(case, swatches)


def _glossary() -> Iterator[Element]:
    for word, meaning in _WORDS:
        yield node("dt", word)
        yield node("dd", meaning)
