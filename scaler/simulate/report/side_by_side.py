"""Pictures of all policies of one case together: trainer waiting so far, and tokens that were interrupted or in vain."""

from collections.abc import Sequence
from itertools import accumulate
from xml.etree.ElementTree import Element

from scaler.simulate.report.amounts import count, duration, number, percent, plural
from scaler.simulate.report.axes import ticks
from scaler.simulate.report.bins import bins_of
from scaler.simulate.report.chart import Chart
from scaler.simulate.report.content import Case
from scaler.simulate.report.figures import figure, key
from scaler.simulate.report.rows import OPTIMUM, Rows, short
from scaler.simulate.report.style import INK, SALVAGED, STALE, WASTED, policy_colour, policy_dash
from scaler.simulate.result import Summary, Timeline

_LEAST_SHARE = 1e-4
"""Of tokens, that fills an axis: less is next to nothing, and shall look like it."""


def waiting_so_far(case: Case, order: Sequence[str], most_bins: int) -> Element | None:
    """Hours waited since the start, a line a policy."""
    waited = {
        shown.run.summary.policy: _waited_h(shown.run.timeline)
        for shown in case.runs
        if shown.run.timeline.waiting_ratio
    }
    if len(waited) < 2:
        return None
    if case.optimum is not None and case.optimum.timeline is not None and case.optimum.timeline.waiting_ratio:
        waited[OPTIMUM] = _waited_h(case.optimum.timeline)
    top = max(hours[-1] for hours in waited.values()) * 1.08 or 1.0
    chart = Chart(f"Hours waited: {case.facts.name}", (0.0, case.facts.hours), (0.0, top), 190)
    chart.y_axis(ticks(0.0, top, 5), number, "hours waited")
    chart.hours_axis()
    for name, hours in waited.items():
        _waiting_line(chart, case, name, hours, order, most_bins)
    return figure(_say_waiting(case, waited), chart.finish())


def _waited_h(timeline: Timeline) -> list[float]:
    return [0.0, *accumulate(share * timeline.step_s / 3600 for share in timeline.waiting_ratio)]


def _waiting_line(
    chart: Chart, case: Case, name: str, hours: Sequence[float], order: Sequence[str], most_bins: int
) -> None:
    steps = len(hours) - 1
    bins = bins_of(steps, case.facts.hours * 3600 / steps, most_bins)
    points = [(at, hours[edge]) for at, edge in zip(bins.hours, bins.edges, strict=True)]
    place = order.index(name) if name in order else None
    colour, dash = (INK, "6 4") if place is None else (policy_colour(place), policy_dash(place))
    chart.curve(points, colour, dash)
    chart.label(hours[-1], f"{short(name, 16)} {number(hours[-1], 2)} h", colour, f"{name}: {duration(hours[-1])}")


def _say_waiting(case: Case, waited: dict[str, list[float]]) -> str:
    ends = {name: hours[-1] for name, hours in waited.items() if name != OPTIMUM}
    least, most = min(ends, key=lambda name: ends[name]), max(ends, key=lambda name: ends[name])
    return (
        f"Trainer waiting, added up: of {duration(case.facts.hours)} {least} waits least with {duration(ends[least])} and "
        f"{most} most with {duration(ends[most])}; a steep stretch is one in which the trainer stands still."
    )


def token_fates(case: Case) -> Element | None:
    """Salvaged, wasted and stale tokens, three bars a policy, as shares of what was generated."""
    found = [shown.run.summary for shown in case.runs if shown.run.summary.tokens_generated]
    if not found:
        return None
    most = 1.05 * max(_LEAST_SHARE, *(_share(s, tokens) for s in found for tokens in _fates(s).values()))
    rows = Rows(
        f"Tokens salvaged, wasted and too stale: {case.facts.name}",
        [s.policy for s in found],
        (0.0, most),
        "% of tokens generated",
        100.0,
    )
    for i, summary in enumerate(found):
        _token_bars(rows, i, summary)
    return figure(
        _say_tokens(found), rows.chart.finish(), key([(_FATES[word], f"{word}: {_MEANT[word]}") for word in _FATES])
    )


_FATES = {"salvaged": SALVAGED, "wasted": WASTED, "too stale": STALE}
_MEANT = {
    "salvaged": "handed over and continued",
    "wasted": "never in a finished sample, as it was lost with a worker or given up",
    "too stale": "in a finished sample that was dropped",
}
_BAR = 8.0
"""Height of one of the three, in pixels."""


def _fates(summary: Summary) -> dict[str, int]:
    tokens = (summary.tokens_salvaged, summary.tokens_wasted, summary.tokens_stale)
    return dict(zip(_FATES, tokens, strict=True))


def _share(summary: Summary, tokens: int) -> float:
    return tokens / summary.tokens_generated


def _token_bars(rows: Rows, i: int, summary: Summary) -> None:
    chart, top = rows.chart, rows.middle(i) - 1.5 * _BAR
    for j, (word, tokens) in enumerate(_fates(summary).items()):
        width = chart.x(_share(summary, tokens)) - chart.left
        title = f"{summary.policy}: {count(tokens)} tokens {word}"
        chart.box(chart.left, top + j * _BAR, width, _BAR - 1, _FATES[word], title)
    rows.words(i, " / ".join(map(count, _fates(summary).values())))


def _say_tokens(found: Sequence[Summary]) -> str:
    most = max(
        found, key=lambda summary: (_share(summary, summary.tokens_wasted), _share(summary, summary.tokens_salvaged))
    )
    of_many = "most, " if len(found) > 1 else ""
    if most.tokens_wasted:
        wastes = f"{most.policy} wastes {of_many}{_of_generated(most, most.tokens_wasted)}"
        words = f"{wastes}, and salvages {count(most.tokens_salvaged)}"
    else:
        words = f"none is wasted; {most.policy} salvages {of_many}{_of_generated(most, most.tokens_salvaged)}"
    stale = max(found, key=lambda summary: _share(summary, summary.tokens_stale))
    return (
        f"Tokens salvaged, wasted and too stale: {words}; {_say_stale(stale, of_many)}; the numbers at the right are salvaged, "
        "wasted, too stale."
    )


def _say_stale(most: Summary, of_many: str) -> str:
    if not most.samples_dropped:
        return "no sample was dropped as too stale"
    samples = plural(most.samples_dropped, "sample")
    return f"{most.policy} drops {of_many}{samples} as too stale, with {_of_generated(most, most.tokens_stale)}"


def _of_generated(summary: Summary, tokens: int) -> str:
    return f"{count(tokens)} of {count(summary.tokens_generated)} generated ({percent(_share(summary, tokens))})"
