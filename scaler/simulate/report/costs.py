"""Pictures of what policies cost: a dot and an interval each beside the bound, and the split of the cost."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from scaler.model.capacity import CapacityType
from scaler.simulate.report.amounts import comparison, difference, interval, number, percent, usd
from scaler.simulate.report.content import ALL_REGIMES, Case, ComparisonRow, Spread
from scaler.simulate.report.figures import figure, key
from scaler.simulate.report.nodes import node
from scaler.simulate.report.rows import OPTIMUM, Rows
from scaler.simulate.report.style import BY_TYPE, INK, REFUNDS, TRAINER, policy_colour

_PER_1K = "USD per 1,000 samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """A run's cost in parts that add up to it, refunds negative; all in one unit."""

    name: str
    parts: Mapping[str, float]
    cost_usd: float
    samples_credited: float | None


def comparison_pictures(rows: Sequence[ComparisonRow], order: Sequence[str]) -> Iterator[Element]:
    """A dot plot for every scenario and regime. `order` are all policies, by which they get their colours."""
    for (scenario, regime), group in _groups(rows).items():
        named = "all regimes" if regime == ALL_REGIMES else regime
        title = ", ".join(filter(None, (scenario, named)))
        yield from _dots(title, sorted(group, key=lambda row: row.cost), order)
    if (words := _dot_key(rows)) is not None:
        yield words


def say_comparison(rows: Sequence[ComparisonRow]) -> str:
    """Who is cheapest in how many of the scenarios and regimes."""
    groups = _groups([row for row in rows if row.regime != ALL_REGIMES] or rows)
    best = [min(group, key=lambda row: row.cost).policy for group in groups.values()]
    wins = {name: best.count(name) for name in dict.fromkeys(best)}
    if len(groups) == 1:
        return f"Over all windows, {best[0]} has the lowest mean cost per trained sample."
    places = f"{len(groups)} combinations of scenario and regime"
    if len(wins) == 1:
        return f"In all {places}, {best[0]} has the lowest mean cost per trained sample."
    words = ", ".join(f"{name} in {wins[name]}" for name in sorted(wins, key=lambda name: -wins[name]))
    return f"Lowest mean cost per trained sample, of {places}: {words}."


def _groups(rows: Sequence[ComparisonRow]) -> dict[tuple[str, str], list[ComparisonRow]]:
    """Rows by scenario and regime; all regimes together only where a scenario has several."""
    groups: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in rows:
        groups.setdefault((row.scenario, row.regime), []).append(row)
    several = Counter(scenario for scenario, regime in groups if regime != ALL_REGIMES)
    return {place: group for place, group in groups.items() if place[1] != ALL_REGIMES or several[place[0]] != 1}


def rows_of(case: Case) -> tuple[ComparisonRow, ...]:
    """A case's runs as rows without intervals."""
    bound = case.optimum.figure("cost_usd_per_1k_samples") if case.optimum else None
    return tuple(
        ComparisonRow(
            policy=shown.run.summary.policy,
            scenario=case.facts.name,
            regime="",
            windows=1,
            cost_usd_per_1k_samples=Spread(value=shown.run.summary.cost_usd_per_1k_samples),
            bound_usd_per_1k_samples=bound,
        )
        for shown in case.runs
    )


def _dots(title: str, group: Sequence[ComparisonRow], order: Sequence[str]) -> Iterator[Element]:
    finite = [row for row in group if math.isfinite(row.cost)]
    if not finite:
        return
    bounds = (row.bound_usd_per_1k_samples for row in group)
    bound = next((each for each in bounds if each is not None and math.isfinite(each)), None)
    rows = Rows(f"Cost by policy: {title}", [row.policy for row in group], _extent(finite, bound), _PER_1K)
    if bound is not None:
        _bound_line(rows, bound)
    for i, row in enumerate(group):
        _dot(rows, i, row, bound, policy_colour(order.index(row.policy)))
    yield figure(_say_dots(title, finite, bound), rows.chart.finish())


def _extent(group: Sequence[ComparisonRow], bound: float | None) -> tuple[float, float]:
    spreads = [row.cost_usd_per_1k_samples for row in group]
    edges = [edge for spread in spreads for edge in (spread.value, spread.low, spread.high)]
    values = [edge for edge in (*edges, bound) if edge is not None and math.isfinite(edge)]
    room = 0.08 * (max(values) - min(values)) or 0.05 * max(values) or 1.0
    return max(0.0, min(values) - room), max(values) + room


def _bound_line(rows: Rows, bound: float) -> None:
    chart = rows.chart
    title = node("title", f"{OPTIMUM}: {usd(bound)} per 1,000 samples")
    style = f"stroke:{INK};stroke-width:2;stroke-dasharray:6 4"
    chart.text(chart.x(bound), chart.top - 6, f"bound {number(bound, 4)}", anchor="middle", class_="tick")
    d = f"M{chart.x(bound):.1f} {chart.top:.1f}V{chart.bottom:.1f}"
    chart.add(node("path", title, d=d, style=style))


def _dot(rows: Rows, i: int, row: ComparisonRow, bound: float | None, colour: str) -> None:
    if not math.isfinite(row.cost):
        rows.words(i, "no sample credited")
        return
    chart, y, spread = rows.chart, rows.middle(i), row.cost_usd_per_1k_samples
    title = f"{row.policy}: {usd(row.cost)} per 1,000 samples"
    if spread.low is not None and spread.high is not None:
        title += f", interval {interval(usd, spread.low, spread.high)}"
        left, right = chart.x(spread.low), chart.x(spread.high)
        chart.box(left, y - 2, right - left, 4, colour, title, fill_opacity="0.55")
    chart.dot(chart.x(row.cost), y, colour, title, radius=6)
    rows.words(i, ", ".join(filter(None, (usd(row.cost), _above(row, bound)))))


def _far(row: ComparisonRow, bound: float) -> str:
    return comparison(row.cost, bound) if row.ratio is None else comparison(row.ratio.value, 1.0)


def _above(row: ComparisonRow, bound: float | None) -> str:
    """How far above the bound: window by window where that is known."""
    if row.ratio is None:
        return difference(row.cost, bound) if bound is not None else ""
    ratio = row.ratio
    words = difference(ratio.value, 1.0)
    if ratio.low is None or ratio.high is None:
        return words
    ends = (difference(end, 1.0).removesuffix("%").strip().lstrip("+") for end in (ratio.low, ratio.high))
    return f"{words} ({' to '.join(ends)})"


def _dot_key(rows: Sequence[ComparisonRow]) -> Element | None:
    words = []
    if any(row.bound_usd_per_1k_samples is not None for row in rows):
        by_window = ", window by window" if any(row.ratio is not None for row in rows) else ""
        interval = " (with its interval)" if any(row.ratio and row.ratio.low is not None for row in rows) else ""
        words.append(
            f"dashed: the clairvoyant optimum's lower bound; at the right, how far each is above it{by_window}{interval}"
        )
    if any(row.cost_usd_per_1k_samples.low is not None for row in rows):
        words.append("bar: interval of the mean over windows, which also differ among themselves")
    return node("p", "; ".join(words), class_="muted small") if words else None


def _say_dots(title: str, group: Sequence[ComparisonRow], bound: float | None) -> str:
    best, worst = group[0], group[-1]
    costs = "costs" if len(group) == 1 else "is cheapest with"
    what = f"Cost per 1,000 trained samples, {title}: {best.policy} {costs} {usd(best.cost)}"
    if bound is not None:
        what += f", {_far(best, bound)} the bound of {usd(bound)} that no policy can beat"
    if worst is not best:
        what += f"; {worst.policy} costs most, {comparison(worst.cost, best.cost)} the cheapest"
    return f"{what}. Further left is better."


def cost_split(case: Case) -> Element | None:
    """Stacked bars of trainer and rent by capacity type, refunds to the left of zero."""
    found = list(_all_parts(case))
    if not found:
        return None
    per_1k = all(each.samples_credited for each in found)
    scaled = [_scaled(each, per_1k) for each in found]
    most = max(sum(max(0.0, value) for value in parts.values()) for parts in scaled) or 1.0
    least = min(sum(min(0.0, value) for value in parts.values()) for parts in scaled)
    unit = _PER_1K if per_1k else "USD"
    extent = (least * 1.05, most * 1.04)
    rows = Rows(f"Cost split: {case.facts.name}", [each.name for each in found], extent, unit)
    for i, parts in enumerate(scaled):
        _stack(rows, i, parts, unit)
        rows.words(i, f"{number(sum(parts.values()))} {'net' if least else ''}".rstrip())
    names = [name for name in _COLOURS if any(parts.get(name) for parts in scaled)]
    return figure(_say_split(found[0]), rows.chart.finish(), key([(_COLOURS[name], name) for name in names]))


_COLOURS: dict[str, str] = {
    "trainer": TRAINER,
    **{kind.value: BY_TYPE[kind] for kind in (CapacityType.SPOT, CapacityType.CAPACITY_BLOCK, CapacityType.ON_DEMAND)},
    "refunds": REFUNDS,
}


def _all_parts(case: Case) -> Iterator[CostParts]:
    for shown in case.runs:
        yield _parts(shown.run.summary.policy, shown.run.summary.to_json())
    if case.optimum and {"cost_trainer_usd", "cost_by_capacity_usd", "cost_usd"} <= case.optimum.figures.keys():
        yield _parts(OPTIMUM, case.optimum.figures)


def _parts(name: str, figures: Mapping[str, Any]) -> CostParts:
    """Rent comes net of refunds, which only spot gets: shown gross, with the refunds as a part of their own."""
    refunds = float(figures.get("refunds_usd") or 0.0)
    rent = {kind.value: float(figures["cost_by_capacity_usd"].get(kind.value, 0.0)) for kind in CapacityType}
    rent[CapacityType.SPOT.value] += refunds
    return CostParts(
        name=name,
        parts={
            "trainer": float(figures["cost_trainer_usd"]),
            **{part: rent[part] for part in _COLOURS if part in rent},
            "refunds": -refunds,
        },
        cost_usd=float(figures["cost_usd"]),
        samples_credited=figures.get("samples_credited"),
    )


def _scaled(each: CostParts, per_1k: bool) -> dict[str, float]:
    divisor = each.samples_credited / 1000.0 if per_1k and each.samples_credited else 1.0
    return {name: value / divisor for name, value in each.parts.items()}


def _stack(rows: Rows, row: int, parts: Mapping[str, float], unit: str) -> None:
    at = 0.0
    for name, value in parts.items():
        title = f"{name}: {number(value)} {unit}"
        if value > 0:
            rows.bar(row, at, at + value, _COLOURS[name], title)
            at += value
        elif value < 0:
            rows.bar(row, value, 0.0, _COLOURS[name], title)


def _say_split(each: CostParts) -> str:
    total = each.cost_usd or 1.0
    shares = ", ".join(f"{name} {percent(value / total)}" for name, value in each.parts.items() if value > 0)
    refunds = -each.parts["refunds"]
    words = f"; refunds for instances interrupted in their first hour take {usd(refunds)} off" if refunds else ""
    return f"Where the money goes: {each.name} costs {usd(each.cost_usd)}, of which {shares}{words}."
