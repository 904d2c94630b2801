"""Writing files so that a crash leaves the old one, the new one, or none; never half a one under its final name."""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Put `data` at `path`: a temporary neighbour, fsync, atomic rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames, new and removed entries of a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
