"""What outlives kill -9: how many tokens were generated, and how many a kill would have lost, in a shared memory map.

What a killed worker had generated and not published is known to nobody else, so who wants to measure waste reads this
file. Three numbers of 8 bytes, little endian: tokens generated; looks at a worker that held units; unpublished tokens,
summed over the looks. A worker that starts on an existing file counts on.
"""

import mmap
import struct
from pathlib import Path
from types import TracebackType

_FORMAT = struct.Struct("<QQQ")
_TOKENS = struct.Struct("<Q")


class TokenCounter:
    """See the module's docstring. Without a path it counts for nobody."""

    def __init__(self, path: Path | None = None) -> None:
        self._map = mmap.mmap(-1, _FORMAT.size) if path is None else _open(path)
        self._total, self._looks, self._unpublished = _FORMAT.unpack_from(self._map)

    def add(self, tokens: int) -> None:
        """Count `tokens` more."""
        self._total += tokens
        _TOKENS.pack_into(self._map, 0, self._total)

    def look(self, unpublished_tokens: int) -> None:
        """Count a look at what a kill would lose now."""
        self._looks += 1
        self._unpublished += unpublished_tokens
        _FORMAT.pack_into(self._map, 0, self._total, self._looks, self._unpublished)

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
    """The tokens in a counter's file; 0 where there is none yet."""
    data = path.read_bytes() if path.exists() else b""
    return int(_TOKENS.unpack_from(data)[0]) if len(data) >= _TOKENS.size else 0
