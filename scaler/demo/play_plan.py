"""Make a demo out of any capacity trace: which series, which part, how much faster, how many instances.

Chosen so that a few minutes show something: the two series that fall most often, the earliest part of the trace in which
they fall at least `LOSSES` instances between them, compressed to `LENGTH_S`, counts brought down to what the demo's
fleet can use. A trace that falls less is played whole. The shipped trace is played as it is.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from scaler.traces.registry import load_trace
from scaler.traces.trace import CapacityTrace, TraceError

SHIPPED_TRACE = Path(__file__).parent / "traces" / "synthetic.csv"
LENGTH_S = 110.0
LOSSES = 18
MOST_PER_SERIES = 3
SERIES = 2


class DemoError(Exception):
    """Wrong input, in one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayPlan:
    """What the player is started with. `losses` is what a fleet that always holds everything would lose."""

    trace: CapacityTrace
    compression_ratio: float
    losses: int


def play_plan(file: Path | None) -> PlayPlan:
    """The plan for a trace file, or for the shipped trace.

    Raises:
        DemoError: the file is no usable trace.
    """
    try:
        trace = load_trace(SHIPPED_TRACE if file is None else file)
    except TraceError as error:
        raise DemoError(str(error)) from error
    return _as_it_is(trace) if file is None else fit(trace)


def _as_it_is(trace: CapacityTrace) -> PlayPlan:
    return PlayPlan(trace=trace, compression_ratio=1.0, losses=_losses(trace))


def fit(trace: CapacityTrace) -> PlayPlan:
    """Series, part, speed and size of a demo, as the module's docstring says."""
    busiest = sorted(trace.series, key=lambda series: (-series.losses(), series.name))[:SERIES]
    chosen = _sized(trace.select([series.name for series in busiest]))
    part = _eventful_part(chosen)
    ratio = part.end_s / LENGTH_S
    played = part.faster(ratio)
    return PlayPlan(trace=played, compression_ratio=ratio, losses=_losses(played))


def _sized(trace: CapacityTrace) -> CapacityTrace:
    most = max(max(series.counts) for series in trace.series)
    return trace.scaled(MOST_PER_SERIES / most) if most > MOST_PER_SERIES else trace


def _eventful_part(trace: CapacityTrace) -> CapacityTrace:
    """From the first change on, until enough was lost; the whole trace where that never happens."""
    falls = sorted(_falls(trace))
    lost = 0
    for index, (at_s, size) in enumerate(falls):
        lost += size
        if lost >= LOSSES:
            start_s = max(0.0, falls[0][0] - (at_s - falls[0][0]) * 0.1)
            end_s = falls[index + 1][0] if index + 1 < len(falls) else trace.end_s
            return trace.window(start_s / 3600, (end_s - start_s) / 3600)
    return trace


def _falls(trace: CapacityTrace) -> list[tuple[float, int]]:
    falls = []
    for series in trace.series:
        steps = pairwise(series.changes())
        falls += [(at_s, before - after) for (_, before), (at_s, after) in steps if after < before]
    return falls


def _losses(trace: CapacityTrace) -> int:
    return sum(series.losses() for series in trace.series)
