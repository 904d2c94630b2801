"""Instances held of those asked for, at a fixed distance: `{"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, ...]}`.

The file does not name its zone: the series is named like the file. JSON has no lines to speak of: faults name the place in
`data`, from 0.
"""

import json
import math
import re

from scaler.traces.text import Row, TraceText, sampled_trace
from scaler.traces.trace import CapacityTrace

_BEGINS = re.compile(r'\{\s*("metadata"\s*:\s*\{[^{}]*"gap_seconds"|"data"\s*:\s*\[)')


def recognises(text: TraceText) -> bool:
    """Whether the text starts with such metadata, or with such data (the metadata may come last)."""
    return _BEGINS.match(text.beginning()) is not None


def read(text: TraceText) -> CapacityTrace:
    """The trace; `TraceError` where the object is not as above."""
    try:
        raw = json.loads(text.text)
    except (ValueError, RecursionError) as error:
        raise text.fault(getattr(error, "lineno", 1), f"not JSON: {error}") from None
    try:
        gap_s, data = float(raw["metadata"]["gap_seconds"]), list(raw["data"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise text.fault(1, 'a JSON trace needs {"metadata": {"gap_seconds": number}, "data": [counts]}') from None
    if not (gap_s > 0 and math.isfinite(gap_s * (len(data) + 1))):
        raise text.fault(1, f"gap_seconds is {gap_s:g}; it must be positive, and {len(data)} times as much a time")
    rows = [Row(1, place * gap_s, (_held(text, place, value),)) for place, value in enumerate(data)]
    return sampled_trace(text, "held nodes", [text.stem], rows)


def _held(text: TraceText, place: int, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        shown = "no number" if isinstance(value, list | dict) else f"{str(value)[:40]!r}, no whole number"
        raise text.fault(1, f"data[{place}] is {shown}")
    return text.count(1, str(value), f"data[{place}]")
