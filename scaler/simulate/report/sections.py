"""The sections of a case: its policies side by side, each over time, the optimum, and the scenario itself.

Non-goals: what is above all cases (see `page`), and drawing (see `costs`, `side_by_side`, `over_time`, `tables`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaler.simulate.report.amounts import plural
from scaler.simulate.report.content import Case, Optimum, PolicyRun
from scaler.simulate.report.costs import comparison_pictures, cost_split, rows_of
from scaler.simulate.report.figures import swatch
from scaler.simulate.report.layers import Layer, layers_of
from scaler.simulate.report.nodes import Child, node
from scaler.simulate.report.over_time import Shown, pictures
from scaler.simulate.report.side_by_side import token_fates, waiting_so_far
from scaler.simulate.report.tables import facts_table, figures_table, offerings_table
from scaler.simulate.result import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page that can be linked to; `place` names its case where the page has several."""

    anchor: str
    name: str
    children: tuple[Child, ...]
    place: str = ""

    @property
    def heading(self) -> str:
        """Its name, with its place."""
        return f"{self.name}: {self.place}" if self.place else self.name


def sections_of(case: Case, anchor: str, order: Sequence[str], bins: int, place: str) -> Iterator[Section]:
    """All sections of a case. `order`: all policies of the page; `bins`: stretches of a picture at most."""
    layers = layers_of(case)
    together = "Policies side by side" if len(case.runs) > 1 else "Cost and tokens"
    yield Section(anchor=f"{anchor}-together", name=together, place=place, children=tuple(_together(case, order, bins)))
    for j, each in enumerate(case.runs):
        name, drawn = f"{each.run.summary.policy} over time", tuple(pictures(_shown(case, each, layers, bins)))
        yield Section(anchor=f"{anchor}-run{j}", name=name, place=place, children=drawn)
    if case.optimum is not None and case.optimum.timeline is not None:
        drawn = tuple(pictures(_shown_optimum(case, case.optimum.timeline, layers, bins)))
        yield Section(anchor=f"{anchor}-optimum", name="The optimum over time", place=place, children=drawn)
    yield Section(anchor=f"{anchor}-scenario", name="Scenario", place=place, children=tuple(_scenario(case, layers)))


def _together(case: Case, order: Sequence[str], bins: int) -> Iterator[Child]:
    if len(case.runs) > 1 or case.optimum is not None:
        yield from comparison_pictures(rows_of(case), order)
    yield cost_split(case)
    yield waiting_so_far(case, order, bins)
    yield token_fates(case)
    yield node("h3", "Figures")
    if case.optimum is not None:
        yield node("p", _about(case.optimum), class_="muted")
    yield figures_table(case)


def _about(optimum: Optimum) -> str:
    words = "Below a figure: its difference to the optimum's."
    if optimum.status:
        words += f" The solver says: {optimum.status}."
    if optimum.figures.get("refunds_unlimited"):
        words += (
            " Instances are taken at times of their own here, and the bound lets every first hour be free: it is loose."
        )
    return words


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
            "stale": summary.tokens_stale,
        },
    )


def _shown_optimum(case: Case, timeline: Timeline, layers: tuple[Layer, ...], bins: int) -> Shown:
    return Shown(case=case, name="the optimum", timeline=timeline, layers=layers, most_bins=bins, optimum=case.optimum)


def _scenario(case: Case, layers: Sequence[Layer]) -> Iterator[Child]:
    yield facts_table(case.facts)
    yield node("h3", f"{plural(len(case.facts.offerings), 'offering')}, and replicas held on average")
    swatches = {name: swatch(layer.colour) for layer in layers for name in layer.offerings}
    yield offerings_table(case, swatches)
