"""Tables with a row a time and a column a zone: the GCP H100 counts and the AWS V100 probes (0 or 1).

Header `time_utc,<zone>,...` with counts, or `time,<zone>,...` with 0 and 1. Times are UTC. A table of refusals in the same
shape cannot be told from one of availability: hand in the right one.
"""

import csv
from collections.abc import Iterator

from scaler.traces.text import Row, TraceText, sampled_trace
from scaler.traces.trace import CapacityTrace

COUNTS_HEADER = "time_utc"
PROBES_HEADER = "time"


def recognises(text: TraceText) -> bool:
    """Whether the text starts with one of the two headers."""
    return text.first_line().split(",")[0] in (COUNTS_HEADER, PROBES_HEADER)


def read(text: TraceText) -> CapacityTrace:
    """The trace; `TraceError` where the table is wrong."""
    lines = text.lines()
    number, header = next(lines)
    time_column, *zones = _cells(text, number, header)
    if not zones or len(set(zones)) != len(zones) or not all(zones):
        raise text.fault(
            number, f"the header {header[:80]!r} must be {time_column!r}, then zones, each with its own name"
        )
    probes = time_column == PROBES_HEADER
    rows = list(_rows(text, zones, lines, most=1 if probes else None))
    return sampled_trace(text, "zone probes" if probes else "zone counts", zones, rows)


def _rows(text: TraceText, zones: list[str], lines: Iterator[tuple[int, str]], most: int | None) -> Iterator[Row]:
    for number, line in lines:
        time, *cells = _cells(text, number, line)
        if len(cells) != len(zones):
            raise text.fault(number, f"{len(cells)} counts for {len(zones)} zones")
        counts = tuple(text.count(number, cell, zone) for cell, zone in zip(cells, zones, strict=True))
        if most is not None and max(counts) > most:
            raise text.fault(number, f"{max(counts)} in a table of probes, which are 0 or 1")
        yield Row(number, text.utc_s(number, time), counts)


def _cells(text: TraceText, number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise text.fault(number, f"{line[:60]!r} is no row of a table: {error}") from None
