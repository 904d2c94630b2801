"""What the readers share: lines with their numbers, numbers with their checks, gaps.

Gaps: of formats that are sampled, a distance of more than `GAP_TICKS` usual ones is a gap. Held (the default), the value
before it stands through it and the gap is listed in the trace; refused, it is a `TraceError`. Logs of events have none. A
cell that is empty is always an error: nobody can tell 0 from unknown.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from statistics import median

from scaler.traces.trace import CapacityTrace, Gap, Series, TraceError

GAP_TICKS = 3.0
_BEGINNING = 4096
_LONGEST = 240
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_DIGITS = re.compile(r"[0-9]+")


class GapPolicy(StrEnum):
    """What becomes of a stretch without measurement."""

    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceText:
    """A file's text under its name. `stem` names the series of formats that hold one and do not name it."""

    source: str
    stem: str
    text: str
    gaps: GapPolicy = GapPolicy.HOLD

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number from 1, line without its end) of every line that is neither empty nor a # comment."""
        for number, line in enumerate(self.text.split("\n"), 1):
            stripped = line.rstrip("\r").strip()
            if stripped and not stripped.startswith("#"):
                yield number, stripped

    def first_line(self) -> str:
        """The first line that says something; empty where none does."""
        return next((line for _, line in self.lines()), "")

    def beginning(self) -> str:
        """The first 4,096 characters from there on: enough for a reader to find keys of its own."""
        start = self.text.find(self.first_line())
        return self.text[start : start + _BEGINNING]

    def fault(self, line: int | None, sentence: str) -> TraceError:
        """The error to raise about a line; what the line brought may be long, and then the middle of the sentence is left out."""
        if len(sentence) > _LONGEST:
            sentence = f"{sentence[: _LONGEST // 2]} ... {sentence[-_LONGEST // 2 :]}"
        return TraceError(self.source, line, sentence)

    def count(self, line: int, cell: str, what: str) -> int:
        """A count that is a whole number, not negative."""
        if not cell:
            raise self.fault(line, f"no value for {what}; write 0 where nothing was available")
        if not _WHOLE.fullmatch(cell):
            if _DIGITS.fullmatch(cell):
                raise self.fault(line, f"{cell[:40]!r} for {what} is too large; 9 digits at most")
            raise self.fault(line, f"{cell[:40]!r} for {what} is no whole number")
        count = int(cell)
        if count < 0:
            raise self.fault(line, f"{count} for {what} is negative; a count cannot be")
        return count

    def utc_s(self, line: int, text: str) -> float:
        """UTC seconds of a date and time; without a zone it is UTC."""
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self.fault(line, f"{text!r} is no date and time; write it like 2025-10-04T00:10:00Z") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: its line, its time, and the count of every series."""

    line: int
    at_s: float
    counts: tuple[int, ...]


def sampled_trace(text: TraceText, name: str, names: Sequence[str], rows: Sequence[Row]) -> CapacityTrace:
    """The trace of rows that were measured one after another; the last holds for one usual distance more."""
    if len(rows) < 2:
        raise text.fault(None, f"{len(rows)} rows of data; a trace needs at least two")
    distances_s = [_distance(text, before, row) for before, row in pairwise(rows)]
    tick_s = median(distances_s)
    start_s = rows[0].at_s
    times_s = tuple(row.at_s - start_s for row in rows)
    series = tuple(
        Series(name=one, times_s=times_s, counts=tuple(row.counts[place] for row in rows))
        for place, one in enumerate(names)
    )
    gaps = tuple(
        Gap(start_s=before.at_s - start_s, end_s=row.at_s - start_s, line=row.line)
        for (before, row), distance_s in zip(pairwise(rows), distances_s, strict=True)
        if distance_s > GAP_TICKS * tick_s
    )
    if gaps and text.gaps is GapPolicy.REFUSE:
        gap = gaps[0]
        raise text.fault(gap.line, f"no rows for {gap.end_s - gap.start_s:g} s before it, usual are {tick_s:g} s")
    return CapacityTrace(
        source=text.source, format=name, series=series, end_s=times_s[-1] + tick_s, tick_s=tick_s, gaps=gaps
    )


def _distance(text: TraceText, before: Row, row: Row) -> float:
    if row.at_s <= before.at_s:
        raise text.fault(row.line, f"its time is not after that of line {before.line}; rows must be in order of time")
    return row.at_s - before.at_s


def logged_trace(text: TraceText, name: str, live: Sequence[tuple[float, int]], tick_s: float) -> CapacityTrace:
    """The trace of one series known by its events: (time in seconds, count from then on), in order.

    Of several at one time the last stands. Before the first event the count is 0; the last holds for a tick.
    """
    steps = dict([(0.0, 0), *live])
    series = Series(name=text.stem, times_s=tuple(steps), counts=tuple(steps.values()))
    return CapacityTrace(
        source=text.source, format=name, series=(series,), end_s=series.times_s[-1] + tick_s, tick_s=tick_s
    )
