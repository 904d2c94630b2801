"""A count of generated tokens that outlives kill -9: 8 bytes, little endian, in a shared memory map.

What a killed worker had generated and not published is known to nobody else, so who wants to measure waste reads this
file. A worker that starts on an existing file counts on.
"""

import mmap
import struct
from pathlib import Path
from types import TracebackType

_FORMAT = struct.Struct("<Q")


class TokenCounter:
    """See the module's docstring. Without a path it counts for nobody."""

    def __init__(self, path: Path | None = None) -> None:
        self._map = mmap.mmap(-1, _FORMAT.size) if path is None else _open(path)
        self._total: int = _FORMAT.unpack_from(self._map)[0]

    def add(self, tokens: int) -> None:
        """Count `tokens` more."""
        self._total += tokens
        _FORMAT.pack_into(self._map, 0, self._total)

    def __enter__(self) -> "TokenCounter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()


def _open(path: Path) -> mmap.mmap:
    with path.open("a+b") as file:
        if path.stat().st_size < _FORMAT.size:
            file.truncate(_FORMAT.size)
        return mmap.mmap(file.fileno(), _FORMAT.size)


def read_token_counter(path: Path) -> int:
    """The count in a counter's file; 0 where there is none yet."""
    data = path.read_bytes() if path.exists() else b""
    return int(_FORMAT.unpack_from(data)[0]) if len(data) >= _FORMAT.size else 0
