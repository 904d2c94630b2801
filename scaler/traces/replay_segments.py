"""One-minute segments as JSON lines: `[t_ms, "add" | "remove" | other, {"nodes": [...], ...}]` (Parcae's traces).

Only `nodes` of `add` and `remove` counts; everything else is another system's plan. The series is named like the file.
"""

import json
import math
import re
from collections.abc import Iterator

from scaler.traces.text import TraceText, logged_trace
from scaler.traces.trace import CapacityTrace

TICK_S = 60.0


_BEGINS = re.compile(r'\[\s*[^\s\[\]{},"]+\s*,\s*"[^"]*"\s*,\s*\{')


def recognises(text: TraceText) -> bool:
    """Whether the first line starts with a time, a word and an object, and has nodes."""
    first = text.first_line()
    return _BEGINS.match(first) is not None and '"nodes"' in first


def read(text: TraceText) -> CapacityTrace:
    """The trace; `TraceError` where a line is wrong."""
    return logged_trace(text, "replay segments", list(_live(text)), TICK_S)


def _live(text: TraceText) -> Iterator[tuple[float, int]]:
    live: set[str] = set()
    last_ms = -1.0
    for number, line in text.lines():
        at_ms, kind, nodes = _segment(text, number, line)
        if not last_ms < at_ms < math.inf:
            raise text.fault(
                number, f"{at_ms:g} ms is not after {last_ms:g} ms; segments must be in order of time, from 0 on"
            )
        _apply(text, number, live, kind, nodes)
        last_ms = at_ms
        yield at_ms / 1000, len(live)


def _segment(text: TraceText, number: int, line: str) -> tuple[float, str, set[str]]:
    try:
        at_ms, kind, detail = json.loads(line)
        return float(at_ms), str(kind), {str(node) for node in detail["nodes"]}
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise text.fault(number, f'{line[:60]!r} is no segment; they are [t_ms, kind, {{"nodes": [...]}}]') from None


def _apply(text: TraceText, number: int, live: set[str], kind: str, nodes: set[str]) -> None:
    if kind == "add" and nodes & live:
        raise text.fault(number, f"add of {min(nodes & live)}, which is live")
    if kind == "remove" and nodes - live:
        raise text.fault(number, f"remove of {min(nodes - live)}, which is not live")
    if kind in ("add", "remove"):
        live ^= nodes
