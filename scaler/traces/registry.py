"""Reads a capacity trace, whatever its format: told by what is in the file, not by its name.

A new format is one file in this folder, with `recognises(text) -> bool` and `read(text) -> CapacityTrace`, one line in
`READERS`, and a field of its name in `scaler.simulate.scenario_parts.ReplicasPerCount`, so that a scenario can say how many
replicas a count is (else one). Line ends may be LF or CRLF; a byte order mark is skipped; text is UTF-8.
"""

from pathlib import Path
from typing import Protocol

from scaler.files import read_regular
from scaler.traces import held_nodes, live_counts, node_events, offering_events, replay_segments, zone_table
from scaler.traces.text import GapPolicy, TraceText
from scaler.traces.trace import CapacityTrace, TraceError

MOST_BYTES = 64 << 20
"""A hundred times the largest measured trace."""


class Reader(Protocol):
    """What the module of a format offers."""

    def recognises(self, text: TraceText) -> bool:
        """Whether the text looks like this format and no other, by keys or columns of its own; never raises."""
        ...

    def read(self, text: TraceText) -> CapacityTrace:
        """The trace; `TraceError` where the text has a fault."""
        ...


READERS: tuple[Reader, ...] = (
    offering_events,
    zone_table,
    node_events,
    live_counts,
    held_nodes,
    replay_segments,
)
"""The first that recognises a text reads it, and its faults are what is told: so each recognises no more than its own."""


def load_trace(path: Path, gaps: GapPolicy = GapPolicy.HOLD) -> CapacityTrace:
    """The trace in the file.

    Raises:
        TraceError: it cannot be read, is no regular file, too large, empty or no text, is of no known format, or has a fault.
    """
    text = TraceText(source=str(path), stem=path.stem, text=_decoded(path), gaps=gaps)
    first = text.first_line()
    if not first:
        raise TraceError(path, None, "it is empty")
    for reader in READERS:
        if reader.recognises(text):
            return reader.read(text)
    raise TraceError(path, 1, f"no known format starts with {first[:60]!r}; see the formats in scaler/traces")


def _decoded(path: Path) -> str:
    try:
        raw = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise TraceError(path, None, f"it cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(path, raw.count(b"\n", 0, error.start) + 1, "it is not UTF-8 text") from error
    if "\0" in text:
        raise TraceError(path, text.count("\n", 0, text.index("\0")) + 1, "it is not text: it holds a zero byte")
    return text
