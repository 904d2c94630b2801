"""Live instances at irregular times: `YYYY-MM-DD, HH:MM:SS, count`, without header (Bamboo's A100 trace).

Times are taken as UTC. The series is named like the file.
"""

import re

from scaler.traces.text import Row, TraceText, sampled_trace
from scaler.traces.trace import CapacityTrace

_ROW = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}),\s*([0-9]{2}:[0-9]{2}:[0-9]{2}),\s*(\S*)")


def recognises(text: TraceText) -> bool:
    """Whether the first line is such a row."""
    return _ROW.fullmatch(text.first_line()) is not None


def read(text: TraceText) -> CapacityTrace:
    """The trace; `TraceError` where a row is wrong."""
    rows = [_row(text, number, line) for number, line in text.lines()]
    return sampled_trace(text, "live counts", [text.stem], rows)


def _row(text: TraceText, number: int, line: str) -> Row:
    row = _ROW.fullmatch(line)
    if row is None:
        raise text.fault(number, f"{line[:80]!r} is no row; they are YYYY-MM-DD, HH:MM:SS, count")
    return Row(number, text.utc_s(number, f"{row[1]}T{row[2]}"), (text.count(number, row[3], "the count"),))
