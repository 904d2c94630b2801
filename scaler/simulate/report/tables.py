"""Tables: figures of every run beside the optimum, the comparison, the scenario's facts and offerings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from scaler.simulate.report.amounts import (
    count,
    difference,
    interval,
    number,
    percent,
    plural,
    points,
    significant,
    usd,
)
from scaler.simulate.report.content import Case, ComparisonRow, ScenarioFacts, Spread
from scaler.simulate.report.nodes import node
from scaler.simulate.report.rows import OPTIMUM


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A figure: its key, its words with the unit, and how it is written."""

    name: str
    words: str
    text: Callable[[float], str]


def _plain(value: float) -> str:
    return number(value, 4)


def _money(value: float) -> str:
    return significant(value) if abs(value) < 1000 else number(value, 4)


_LINES = (
    _Line(name="cost_usd_per_1k_samples", words="cost per 1,000 samples credited (USD)", text=_money),
    _Line(name="cost_usd", words="cost, trainers included, refunds off (USD)", text=_money),
    _Line(name="cost_trainer_usd", words="trainers (USD)", text=_money),
    _Line(name="cost_by_capacity_usd.spot", words="spot, net of refunds (USD)", text=_money),
    _Line(name="cost_by_capacity_usd.capacity-block", words="capacity blocks (USD)", text=_money),
    _Line(name="cost_by_capacity_usd.on-demand", words="on-demand (USD)", text=_money),
    _Line(name="refunds_usd", words="refunds (USD)", text=_money),
    _Line(name="samples_trained", words="samples trained", text=_plain),
    _Line(name="samples_credited", words="samples credited (stock evened out)", text=_plain),
    _Line(name="policy_updates", words="policy updates", text=_plain),
    _Line(name="trainer_wait_ratio", words="trainer waits (share of time)", text=percent),
    _Line(name="replicas_mean", words="ready replicas, mean", text=_plain),
    _Line(name="interruptions", words="interruptions", text=_plain),
    _Line(name="interruptions_unnoticed", words="of them without notice", text=_plain),
    _Line(name="launches", words="launches asked for", text=_plain),
    _Line(name="refusals", words="of them refused", text=_plain),
    _Line(name="tokens_generated", words="tokens generated", text=count),
    _Line(name="tokens_salvaged", words="tokens salvaged", text=count),
    _Line(name="tokens_wasted", words="tokens wasted, never in a finished sample", text=count),
    _Line(name="tokens_lost", words="of them lost with a worker", text=count),
    _Line(name="tokens_stale", words="tokens of samples dropped, too stale", text=count),
    _Line(name="samples_filtered", words="samples filtered", text=_plain),
    _Line(name="samples_dropped", words="samples dropped, too stale", text=_plain),
    _Line(name="start_stock_samples", words="stock at the start (samples)", text=_plain),
    _Line(name="end_stock_samples", words="stock at the end (samples)", text=_plain),
    _Line(name="hours", words="simulated (hours)", text=_plain),
    _Line(name="seed", words="seed", text=_plain),
    _Line(name="wall_s", words="computed in (seconds)", text=_plain),
)
_COMPARED = {
    "cost_usd_per_1k_samples", "cost_usd", "cost_by_capacity_usd.spot", "cost_by_capacity_usd.capacity-block",
    "cost_by_capacity_usd.on-demand", "samples_trained", "samples_credited", "replicas_mean",
}  # fmt: skip
"""Figures whose difference to the optimum is a share of it."""


def figures_table(case: Case) -> Element:
    """A column a run, and the optimum's; below a value its difference to the optimum."""
    columns = [_flat(shown.run.summary.to_json()) for shown in case.runs]
    optimum = _flat(case.optimum.figures) if case.optimum else None
    names = ([OPTIMUM] if optimum is not None else []) + [shown.run.summary.policy for shown in case.runs]
    head = node("tr", node("th", "figure"), *(node("th", name, class_="name") for name in names))
    body = (_figure_row(line, columns, optimum) for line in _LINES)
    return _table(head, [row for row in body if row is not None])


def _flat(figures: Mapping[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{part}": float(amount) for part, amount in value.items()})
        elif isinstance(value, int | float):
            flat[name] = float(value)
    return flat


def _figure_row(line: _Line, columns: Sequence[dict[str, float]], optimum: dict[str, float] | None) -> Element | None:
    reference = optimum.get(line.name) if optimum is not None else None
    values = [column.get(line.name) for column in columns]
    if all(value is None for value in (*values, reference)):
        return None
    cells = [_cell(line, value, reference) for value in values]
    if optimum is not None:
        cells.insert(0, node("td", "\u2013" if reference is None else line.text(reference)))
    return node("tr", node("td", line.words), *cells)


def _cell(line: _Line, value: float | None, reference: float | None) -> Element:
    if value is None:
        return node("td", "\u2013")
    cell = node("td", line.text(value))
    if reference is not None and (words := _beside(line, value, reference)):
        cell.append(node("small", words))
    return cell


def _beside(line: _Line, value: float, reference: float) -> str:
    if line.name == "trainer_wait_ratio":
        return points(value - reference)
    return difference(value, reference) if line.name in _COMPARED else ""


def comparison_table(rows: Sequence[ComparisonRow]) -> Element:
    """A row a policy, scenario and regime; the cheapest of each scenario and regime stands out."""
    words = ("scenario", "regime", "policy", "windows", "USD per 1k samples", "bound", "over the bound", "gap closed",
             "trainer waits")  # fmt: skip
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        place = (row.scenario, row.regime)
        best[place] = min(best.get(place, math.inf), row.cost)
    head = node("tr", *(node("th", word, class_="left" if word in words[:3] else "") for word in words))
    return _table(head, [_comparison_row(row, best[row.scenario, row.regime]) for row in rows])


def _comparison_row(row: ComparisonRow, best: float) -> Element:
    bound, ratio = row.bound_usd_per_1k_samples, row.ratio
    over = ratio or (Spread(value=row.cost / bound) if bound else None)
    return node(
        "tr",
        node("td", row.scenario, class_="name"),
        node("td", row.regime, class_="left name"),
        node("td", row.policy, class_="left name"),
        node("td", number(row.windows)),
        _spread_cell(row.cost_usd_per_1k_samples, significant, class_="best" if row.cost == best else ""),
        node("td", "" if bound is None else significant(bound)),
        _spread_cell(over, lambda value: difference(value, 1.0)),
        _spread_cell(row.gap_share, percent),
        _wait_cell(row),
    )


def _spread_cell(spread: Spread | None, text: Callable[[float], str], class_: str = "") -> Element:
    """A value, and its interval below."""
    if spread is None:
        return node("td")
    cell = node("td", text(spread.value), class_=class_)
    if spread.low is not None and spread.high is not None:
        cell.append(node("small", interval(text, spread.low, spread.high)))
    return cell


def _wait_cell(row: ComparisonRow) -> Element:
    if row.trainer_wait_ratio is None:
        return node("td")
    beside = None if row.bound_wait_ratio is None else node("small", f"optimum {percent(row.bound_wait_ratio)}")
    return node("td", percent(row.trainer_wait_ratio.value), beside)


_HOUR_OF_TRACE = "starts at hour of the trace"


def facts_table(facts: ScenarioFacts) -> Element:
    """The scenario's numbers, with units."""
    entries = {
        "simulated": plural(facts.hours, "hour"),
        "n*: ready replicas that meet the trainer": number(facts.balance_replicas, 4),
        "floor and ceiling": f"{number(facts.floor)} and {number(facts.ceiling)} replicas",
        "trainer, never blocked, takes": f"{plural(facts.unblocked_samples_per_s, 'sample')}/s",
        "a ready replica makes": f"{plural(facts.goodput_per_replica_per_s, 'accepted sample')}/s",
        "batch": f"{count(facts.batch_samples)} samples",
        "admitted to buffer and flight": f"{count(facts.stock_bound_samples)} samples",
        "trainers cost": f"{usd(facts.trainer_usd_per_h)} an hour",
        "starts warm with": plural(facts.warm_replicas, "replica"),
        "grant to ready, at least": f"{number(facts.least_ready_s)} s",
        **{_HOUR_OF_TRACE if name == "start_h" else name: text for name, text in facts.metadata.items()},
    }
    rows = [
        node("tr", node("td", name, class_="name"), node("td", text, class_="left prose"))
        for name, text in entries.items()
    ]
    return _table(None, rows)


def offerings_table(case: Case, swatches: Mapping[str, Element]) -> Element:
    """Rent, and what each run held of every offering on average."""
    names = [shown.run.summary.policy for shown in case.runs]
    words = ("offering", "USD/h a replica", "nodes", "refund within", *(f"held by {name}" for name in names))
    head = node("tr", *(node("th", word, class_="name") for word in words))
    rows = []
    for offering in case.facts.offerings:
        refund = offering.refund_if_interrupted_within_s
        held = [shown.run.timeline.held.get(offering.offering_id, ()) for shown in case.runs]
        rows.append(
            node(
                "tr",
                node("td", swatches.get(offering.offering_id), offering.offering_id, class_="name"),
                node("td", number(offering.usd_per_h, 4)),
                node("td", str(offering.nodes_per_replica)),
                node("td", f"{number(refund / 60)} min" if refund else "\u2013"),
                *(node("td", number(sum(values) / len(values)) if values else "\u2013") for values in held),
            )
        )
    return _table(head, rows)


def _table(head: Element | None, rows: Sequence[Element]) -> Element:
    parts = [] if head is None else [node("thead", head)]
    return node("div", node("table", *parts, node("tbody", *rows)), class_="wide")
