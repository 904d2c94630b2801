"""A log of nodes that came and went: `t_ms,add|remove,node`, without header (Bamboo's P3 trace).

Times are milliseconds at a resolution of one minute, from the start of the log. The series is named like the file.
"""

import re
from collections.abc import Iterator

from scaler.traces.text import TraceText, logged_trace
from scaler.traces.trace import CapacityTrace

TICK_S = 60.0
_EVENT = re.compile(r"(-?[0-9]{1,15}),(add|remove),(\S+)")


def recognises(text: TraceText) -> bool:
    """Whether the first line is such an event."""
    return _EVENT.fullmatch(text.first_line()) is not None


def read(text: TraceText) -> CapacityTrace:
    """The trace; `TraceError` where an event is wrong."""
    return logged_trace(text, "node events", list(_live(text)), TICK_S)


def _live(text: TraceText) -> Iterator[tuple[float, int]]:
    live: set[str] = set()
    last_ms = 0
    for number, line in text.lines():
        event = _EVENT.fullmatch(line)
        if event is None:
            raise text.fault(number, f"{line[:80]!r} is no event; they are t_ms,add|remove,node")
        at_ms = int(event[1])
        if at_ms < last_ms:
            raise text.fault(number, f"{at_ms} ms comes after {last_ms} ms; events must be in order of time, from 0 on")
        if (event[2] == "add") == (event[3] in live):
            raise text.fault(number, f"{event[2]} of {event[3]}, which is {'live' if event[3] in live else 'not live'}")
        live ^= {event[3]}
        last_ms = at_ms
        yield at_ms / 1000, len(live)
