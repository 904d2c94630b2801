"""Folders in memory: for stores whose every call is synced, where what a disk takes for that is no part of the question."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def memory_folder(prefix: str = "headrace-") -> Iterator[Path]:
    """An empty folder in memory, gone afterwards; on disk where there is no such place."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)
