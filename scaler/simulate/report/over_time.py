"""Pictures of one run over time, all on the same time axis: fleet, ready replicas, buffer, waiting, tokens wasted.

Policy: each is a caption of one sentence with the numbers of this run, then the picture. What the timeline does not hold
is not drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from xml.etree.ElementTree import Element

from scaler.model.capacity import CapacityType
from scaler.simulate.report.amounts import count, duration, next_to_nothing, number, percent, plural
from scaler.simulate.report.axes import ticks, time_unit
from scaler.simulate.report.bins import Bins, bins_of
from scaler.simulate.report.chart import Chart
from scaler.simulate.report.content import Case, Optimum, SetPoint
from scaler.simulate.report.figures import figure, key
from scaler.simulate.report.layers import Layer, spot_capacity
from scaler.simulate.report.style import BUFFER, INK, MUTED, READY, SHORT, WAITING, WASTED
from scaler.simulate.result import Timeline

_HOVER_BINS = 4
"""Steps of a picture that say their values together: a stretch wide enough to rest a pointer on."""
_HIGHER = 1.8
"""A bound that is higher than so many times the rest is not worth the room that it would take."""
_WAITING_TOPS = (0.1, 0.25, 0.5, 1.0)
"""Axes that waiting may have: the least that holds it."""
_INTERRUPTED = "#c0182b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What pictures over time need to know: a timeline in its case, in as many stretches as the page has room for."""

    case: Case
    name: str
    timeline: Timeline
    layers: tuple[Layer, ...]
    most_bins: int
    set_points: tuple[SetPoint, ...] = ()
    interruptions: int | None = None
    tokens: Mapping[str, int] | None = None
    """Generated, salvaged, wasted and stale, of the whole run."""
    optimum: Optimum | None = None
    """Where the timeline is its plan, in which nothing is whole: what is made is worked off as it flows."""

    def bins(self, values: Sequence[float]) -> Bins:
        """The stretches of a sequence of the timeline."""
        return bins_of(len(values), self.timeline.step_s, self.most_bins)

    @property
    def hours(self) -> float:
        """Length of the time axis."""
        return self.case.facts.hours


def pictures(shown: Shown) -> Iterator[Element]:
    """All pictures that the timeline has the values for."""
    for draw in (_fleet, _ready, _buffer if shown.optimum is None else _stock, _waiting, _wasted):
        picture = draw(shown)
        if picture is not None:
            yield picture


def share_of_time(values: Sequence[float], holds: Sequence[bool]) -> float:
    """The share of the steps in which something holds."""
    return sum(holds) / len(values) if values else 0.0


def _below(values: Sequence[float], level: float) -> list[bool]:
    """Step by step; a solver's rounding is not below."""
    return [not next_to_nothing(level - value) and value < level for value in values]


def _fleet(shown: Shown) -> Element | None:
    layers = [(layer, values) for layer in shown.layers if (values := layer.sum_of(shown.timeline.held))]
    if not layers:
        return None
    capacity = spot_capacity(shown.case, shown.timeline)
    bins = shown.bins(layers[0][1])
    stacks = list(accumulate((bins.mean(values) for _, values in layers), _stacked))
    chart = _replica_chart(shown, f"Fleet of {shown.name} by offering", max(stacks[-1]), 230)
    for (layer, values), top in reversed(list(zip(layers, stacks, strict=True))):
        mean = sum(values) / len(values)
        chart.area(bins.hours, top, layer.colour, f"{layer.label}: {plural(mean, 'replica')} on average")
    _demand(chart, shown)
    if capacity:
        chart.line(bins.hours, bins.mean(capacity), INK, width=1.4)
        chart.label(bins.mean(capacity)[-1], "spot capacity there", INK)
    _warm_start(chart, shown)
    _interruption_marks(chart, shown)
    held = {layer.label: values for layer, values in reversed(layers)}
    there = {"spot capacity there": capacity} if capacity else {}
    _hover(chart, bins, held | there, {"interruptions": shown.timeline.interruptions})
    keys = [(layer.colour, layer.label) for layer, values in reversed(layers) if any(values)]
    return figure(_say_fleet(shown, layers, capacity, chart.y.high), chart.finish(), key(keys))


def _stacked(below: Sequence[float], layer: Sequence[float]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip(below, layer, strict=True))


def _replica_chart(shown: Shown, name: str, highest: float, height: float) -> Chart:
    facts = shown.case.facts
    top = max(highest, facts.balance_replicas, 1.0) * 1.12
    if facts.ceiling <= _HIGHER * top:
        top = max(top, facts.ceiling * 1.06)
    chart = Chart(name, (0.0, shown.hours), (0.0, top), height)
    chart.y_axis(ticks(0.0, top), number, "replicas")
    chart.hours_axis()
    return chart


def _demand(chart: Chart, shown: Shown) -> None:
    balance = shown.case.facts.balance_replicas
    chart.level(balance, f"n* = {number(balance)}", INK)


def _warm_start(chart: Chart, shown: Shown) -> None:
    warm = shown.case.facts.warm_replicas
    if warm <= 0:
        return
    x, y = chart.x(0.0), chart.y(warm)
    chart.dot(x, y, INK, f"ready at the start: {plural(warm, 'replica')}")
    chart.text(x + 9, y - 8, f"starts warm with {number(warm)}", class_="halo")


def _interruption_marks(chart: Chart, shown: Shown) -> None:
    """A mark hangs from the top for every stretch with interruptions, the longer the more there were."""
    if not any(shown.timeline.interruptions):
        return
    bins = shown.bins(shown.timeline.interruptions)
    totals = bins.total(shown.timeline.interruptions)
    marks = [(hour, total / max(totals)) for hour, total in zip(bins.hours, totals, strict=False) if total]
    chart.hanging_marks(marks, _INTERRUPTED)
    chart.label(chart.y.high, "interruptions (red)", _INTERRUPTED)


def _hover(
    chart: Chart,
    bins: Bins,
    means: Mapping[str, Sequence[float]],
    totals: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Each stretch says its means and its sums, as far as they are not nothing."""
    coarse = bins.coarser(max(1, (len(bins.edges) - 1) // _HOVER_BINS))
    lines = {name: coarse.mean(series) for name, series in means.items()}
    lines |= {name: coarse.total(series) for name, series in (totals or {}).items() if series}
    chart.hover(coarse.hours, [_said(coarse, i, lines) for i in range(len(coarse.edges) - 1)])


def _said(bins: Bins, i: int, lines: Mapping[str, Sequence[float]]) -> str:
    there = {name: values for name, values in lines.items() if not next_to_nothing(values[i])}
    unit_h, word = min(time_unit(bins.hours[-1]), (1.0, "hours"))
    stretch = f"{word} {number(bins.hours[i] / unit_h)} to {number(bins.hours[i + 1] / unit_h)}"
    return "\n".join((stretch, *(f"{name}: {number(series[i])}" for name, series in there.items())))


def _say_fleet(
    shown: Shown, layers: Sequence[tuple[Layer, Sequence[float]]], capacity: Sequence[float], top: float
) -> str:
    held = {name: sum(values) / len(values) for name, values in shown.timeline.held.items() if values}
    total, most = sum(held.values()), max(held, key=lambda name: held[name])
    on_demand = sum(sum(v) for layer, v in layers if layer.capacity_type is CapacityType.ON_DEMAND)
    share = percent(held[most] / total if total else 0.0)
    parts = [f"on average, {plural(total, 'replica')} held, the largest part ({share}) from {most}"]
    if on_demand:
        parts.append(f"on-demand makes up {number(on_demand * shown.timeline.step_s / 3600)} replica-hours")
    if capacity:
        short = share_of_time(capacity, _below(capacity, shown.case.facts.balance_replicas))
        balance = number(shown.case.facts.balance_replicas)
        line = "line, cut off at the top" if max(capacity) > top else "line"
        parts.append(f"spot capacity ({line}) alone is below the n* of {balance} {_how_long(short)}")
    if shown.interruptions is not None:
        parts.append(f"{plural(shown.interruptions, 'instance')} interrupted (red marks)")
    return f"Fleet by offering: {'; '.join(parts)}."


def _how_long(share: float) -> str:
    return f"for {percent(share)} of the time" if share else "at no time"


def _ready(shown: Shown) -> Element | None:
    ready = shown.timeline.ready
    if not ready:
        return None
    bins, facts = shown.bins(ready), shown.case.facts
    mean = bins.mean(ready)
    chart = _replica_chart(shown, f"Ready replicas of {shown.name}", max(bins.most(ready)), 150)
    below = tuple(min(value, facts.balance_replicas) for value in mean)
    chart.band(bins.hours, below, (facts.balance_replicas,) * len(mean), SHORT, 0.45)
    _demand(chart, shown)
    if facts.ceiling <= chart.y.high:
        chart.level(facts.ceiling, f"ceiling {number(facts.ceiling)}", MUTED, "2 3")
    if shown.timeline.desired:
        chart.line(bins.hours, bins.mean(shown.timeline.desired), MUTED, "3 2", 1.3)
        chart.label(bins.mean(shown.timeline.desired)[-1], "desired", MUTED)
    chart.line(bins.hours, mean, READY, width=2.0)
    chart.label(mean[-1], "ready", READY)
    series: dict[str, Sequence[float]] = {"ready": ready}
    _hover(chart, bins, series | {"desired": shown.timeline.desired} if shown.timeline.desired else series)
    return figure(_say_ready(shown, ready), chart.finish())


def _say_ready(shown: Shown, ready: Sequence[float]) -> str:
    facts = shown.case.facts
    short = _below(ready, facts.balance_replicas)
    missing = sum(max(0.0, facts.balance_replicas - value) for value in ready) / len(ready)
    return (
        f"Ready replicas against demand: {number(sum(ready) / len(ready))} are ready on average; for "
        f"{percent(share_of_time(ready, short))} of the time they are fewer than the n* of {number(facts.balance_replicas)} "
        f"that the trainer's unblocked rate takes (orange: {number(missing)} missing on average); "
        f"the ceiling is {number(facts.ceiling)}."
    )


def _buffer(shown: Shown) -> Element | None:
    depth, facts = shown.timeline.buffered_samples, shown.case.facts
    if not depth:
        return None
    bins = shown.bins(depth)
    band = (float(facts.batch_samples), *(point.samples for point in shown.set_points))
    top = max(*bins.most(depth), *band, 1.0) * 1.15
    if facts.stock_bound_samples <= _HIGHER * top:
        top = max(top, facts.stock_bound_samples * 1.08)
    chart = Chart(f"Buffer depth of {shown.name}", (0.0, shown.hours), (0.0, top), 150)
    chart.y_axis(ticks(0.0, top), count, "samples")
    chart.hours_axis()
    _band(chart, shown)
    chart.band(bins.hours, bins.least(depth), bins.most(depth), BUFFER, 0.3)
    chart.line(bins.hours, bins.mean(depth), BUFFER, width=2.0)
    _hover(chart, bins, {"buffered samples": depth})
    return figure(_say_buffer(shown, depth), chart.finish())


def _band(chart: Chart, shown: Shown) -> None:
    """One batch, the policy's set-points, and what is admitted: a line where the axis holds it, else a word."""
    batch, bound = shown.case.facts.batch_samples, shown.case.facts.stock_bound_samples
    chart.band((0.0, shown.hours), (0.0,), (float(batch),), SHORT, 0.12)
    chart.level(batch, f"one batch, {count(batch)}", SHORT)
    for point in shown.set_points:
        chart.level(point.samples, f"{point.name}, {count(point.samples)}", BUFFER, "2 3")
    if bound <= chart.y.high:
        chart.level(bound, f"admitted, {count(bound)}", INK)
    else:
        chart.label(chart.y.high, f"admitted, {count(bound)} \u2191", MUTED)


def _say_buffer(shown: Shown, depth: Sequence[float]) -> str:
    facts = shown.case.facts
    low = percent(share_of_time(depth, _below(depth, facts.batch_samples)))
    points = ", ".join(f"{point.name} {count(point.samples)}" for point in shown.set_points)
    aims = f"; the policy steers by {points}" if points else ""
    return (
        f"Buffer depth against its band: {_mean_and_most(shown, depth, 'wait')}; admission lets "
        f"{count(facts.stock_bound_samples)} into buffer and flight together{aims}; for {low} of the time there is less than "
        f"one batch of {count(facts.batch_samples)} (shaded)."
    )


def _mean_and_most(shown: Shown, depth: Sequence[float], verb: str) -> str:
    """The timeline holds means of its steps, so that the most for a moment is not known."""
    step = duration(shown.timeline.step_s / 3600)
    return f"{count(sum(depth) / len(depth))} samples {verb} on average and {count(max(depth))} in the fullest {step}"


def _stock(shown: Shown) -> Element | None:
    """The optimum has no buffer of its own: work in flight and the batch in training are in its stock."""
    depth, bound = shown.timeline.buffered_samples, shown.case.facts.stock_bound_samples
    if not depth:
        return None
    bins = shown.bins(depth)
    most = shown.optimum.stock_most_samples if shown.optimum else None
    top = max(*depth, most or bound, 1.0) * 1.08
    chart = Chart(f"Stock of {shown.name}", (0.0, shown.hours), (0.0, top), 150)
    chart.y_axis(ticks(0.0, top), count, "samples")
    chart.hours_axis()
    chart.level(most or bound, f"at most, {count(most or bound)}", INK)
    chart.line(bins.hours, bins.mean(depth), BUFFER, width=2.0)
    _hover(chart, bins, {"samples in stock": depth})
    return figure(_say_stock(shown, depth, most), chart.finish())


def _say_stock(shown: Shown, depth: Sequence[float], most: float | None) -> str:
    bound = shown.case.facts.stock_bound_samples
    more = (most or bound) - bound
    slack = "" if next_to_nothing(more) else f", and {count(more)} more, as the plan knows no whole groups and batches"
    return (
        f"Stock against its bound: {_mean_and_most(shown, depth, 'are made and not used up')}, the work in flight and in "
        f"training counted; it may hold the {count(bound)} that admission lets into buffer and flight{slack}."
    )


def _waiting(shown: Shown) -> Element | None:
    waiting = shown.timeline.waiting_ratio
    if not waiting:
        return None
    if next_to_nothing(_waited_h(shown, waiting)):
        return figure(f"Trainer waiting for a batch: of {duration(shown.hours)} it never waits.")
    bins = shown.bins(waiting)
    so_far = [total / (i + 1) for i, total in enumerate(accumulate(waiting))]
    points = [(bins.hours[i + 1], so_far[edge - 1]) for i, edge in enumerate(bins.edges[1:])]
    means = bins.mean(waiting)
    top = next(top for top in _WAITING_TOPS if max(means) <= top)
    chart = Chart(f"Trainer waiting in {shown.name}", (0.0, shown.hours), (0.0, top), 110)
    chart.y_axis(ticks(0.0, top, 4), lambda value: f"{number(100 * value)} %", "waiting")
    chart.hours_axis()
    chart.area(bins.hours, means, WAITING, "share of the time that the trainer waits", 0.55)
    chart.curve(points, INK)
    chart.label(so_far[-1], f"so far: {percent(so_far[-1])}", INK)
    _hover(chart, bins, {"waiting (%)": [100 * value for value in waiting]})
    return figure(_say_waiting(shown, waiting), chart.finish())


def _waited_h(shown: Shown, waiting: Sequence[float]) -> float:
    return sum(waiting) * shown.timeline.step_s / 3600


def _say_waiting(shown: Shown, waiting: Sequence[float]) -> str:
    step_h = shown.timeline.step_s / 3600
    in_an_hour = max(1, round(1 / step_h))
    sums = [0.0, *accumulate(waiting)]
    last = max(1, len(waiting) - in_an_hour + 1)
    worst = max(range(last), key=lambda i: sums[min(len(waiting), i + in_an_hour)] - sums[i])
    lost = (sums[min(len(waiting), worst + in_an_hour)] - sums[worst]) / min(in_an_hour, len(waiting))
    return (
        f"Trainer waiting for a batch: {duration(_waited_h(shown, waiting))} of {duration(shown.hours)}, "
        f"{percent(sum(waiting) / len(waiting))} in all (line: the share so far); the worst hour begins "
        f"{_when(worst * step_h)} with {percent(lost)}."
    )


def _when(hours: float) -> str:
    return "at the start" if next_to_nothing(hours) else f"after {duration(hours)}"


def _wasted(shown: Shown) -> Element | None:
    wasted, tokens = shown.timeline.wasted_tokens, shown.tokens
    if not wasted or not tokens:
        return None
    words = _say_wasted(tokens)
    if not any(wasted):
        return figure(f"{words}; no step wasted any.")
    bins = shown.bins(wasted)
    totals = bins.total(wasted)
    chart = Chart(f"Wasted tokens in {shown.name}", (0.0, shown.hours), (0.0, max(totals) * 1.1), 100)
    chart.y_axis(ticks(0.0, chart.y.high, 4), count, "tokens")
    chart.hours_axis()
    chart.area(bins.hours, totals, WASTED, "tokens wasted")
    _interruption_marks(chart, shown)
    _hover(chart, bins, {}, {"wasted tokens": wasted, "interruptions": shown.timeline.interruptions})
    worst = max(range(len(totals)), key=lambda i: totals[i])
    length = duration(bins.hours[1] - bins.hours[0])
    return figure(
        f"{words}; the worst {length}, {_when(bins.hours[worst])}, wastes {count(round(totals[worst]))}.",
        chart.finish(),
    )


def _say_wasted(tokens: Mapping[str, int]) -> str:
    """Dropped samples are not in the picture: their tokens were good until the policy had moved on."""
    generated = max(1, tokens["generated"])
    return (
        f"Tokens wasted: {count(tokens['wasted'])} of {count(tokens['generated'])} generated "
        f"({percent(tokens['wasted'] / generated)}) never got into a finished sample; besides, {count(tokens['stale'])} "
        f"({percent(tokens['stale'] / generated)}) are in finished samples that were dropped as too stale, and "
        f"{count(tokens['salvaged'])} were handed over and continued by another worker"
    )
