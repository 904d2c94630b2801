"""Headrace's own format: what is available of an offering from a time on.

    # Comments start with a hash; empty lines are skipped.
    time_s,offering,available
    0,zone-a,4
    0,zone-b,2
    12.5,zone-a,1
    90,zone-a,4

The header is as above. Rows are in order of time, in seconds from the start of the trace; `offering` is any name without
a comma; `available` is a whole number, not negative. Every offering has a row at time 0. A value holds until the offering's
next row, so there are no gaps. The trace ends at its last row's time: repeat a value there to make it last.
"""

import math
from itertools import pairwise

from scaler.traces.text import TraceText
from scaler.traces.trace import CapacityTrace, Series

HEADER = "time_s,offering,available"


def recognises(text: TraceText) -> bool:
    """Whether the first column is the header's."""
    return text.first_line().split(",")[0].strip() == "time_s"


def read(text: TraceText) -> CapacityTrace:
    """The trace; `TraceError` where the table is wrong."""
    lines = text.lines()
    number, header = next(lines)
    if header != HEADER:
        raise text.fault(number, f"the header is {header[:80]!r}; it must be {HEADER!r}")
    steps: dict[str, dict[float, int]] = {}
    last_s = 0.0
    for number, line in lines:
        last_s = _add_row(text, number, line, last_s, steps)
    if not steps or last_s == 0:
        raise text.fault(None, "no rows after time 0; a trace needs at least two times")
    series = tuple(Series(name=n, times_s=tuple(s), counts=tuple(s.values())) for n, s in steps.items())
    return CapacityTrace(
        source=text.source, format="offering events", series=series, end_s=last_s, tick_s=_tick_s(series)
    )


def dump(trace: CapacityTrace) -> str:
    """The trace in this format: what `read` makes the same trace of."""
    steps = sorted(
        (time_s, order, series.name, count)
        for order, series in enumerate(trace.series)
        for time_s, count in zip(series.times_s, series.counts, strict=True)
    )
    ends = [
        (trace.end_s, order, series.name, series.counts[-1])
        for order, series in enumerate(trace.series)
        if series.times_s[-1] < trace.end_s
    ]
    rows = (f"{time_s!r},{name},{count}\n" for time_s, _, name, count in [*steps, *ends])
    return f"{HEADER}\n" + "".join(rows)


def _add_row(text: TraceText, number: int, line: str, last_s: float, steps: dict[str, dict[float, int]]) -> float:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 3 or not cells[1]:
        raise text.fault(number, f"{line[:80]!r} is no row; they are {HEADER}")
    at_s = _seconds(text, number, cells[0])
    if at_s < last_s:
        raise text.fault(number, f"{at_s:g} s comes after {last_s:g} s; rows must be in order of time, from 0 on")
    series = steps.setdefault(cells[1], {})
    if at_s in series:
        raise text.fault(number, f"a second value of {cells[1]} at {at_s:g} s")
    if not series and at_s > 0:
        raise text.fault(number, f"{cells[1]} starts at {at_s:g} s; say what it has at 0")
    series[at_s] = text.count(number, cells[2], cells[1])
    return at_s


def _seconds(text: TraceText, number: int, cell: str) -> float:
    try:
        seconds = float(cell) if cell.isascii() else math.nan
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise text.fault(number, f"{cell!r} is no time in seconds")
    return seconds


def _tick_s(series: tuple[Series, ...]) -> float:
    """The shortest time that any value is said to last: the resolution of who wrote the file."""
    return min(b - a for s in series for a, b in pairwise(s.times_s))
