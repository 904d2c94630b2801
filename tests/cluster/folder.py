"""Folders that are known to be in use while their process lives."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "headrace-cluster-"
_OWNER = "owner"


@contextmanager
def own_folder(wanted: Path | None = None) -> Iterator[Path]:
    """A private folder, `wanted` (which must not exist) or a temporary one; removed afterwards.

    Its file `owner` is locked and holds our process id meanwhile.
    """
    if wanted is not None:
        wanted.mkdir(parents=True, mode=0o700)
    folder = wanted or Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / _OWNER).open("w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            owner.write(str(os.getpid()))
            owner.flush()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def owner_of(folder: Path) -> int | None:
    """The process id of who uses the folder; none where nobody does (any more)."""
    with suppress(FileNotFoundError), (folder / _OWNER).open() as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(owner.read() or 0) or None
    return None


def sweep() -> None:
    """Remove what killed processes left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # One without an owner's name is being made at this moment.
        if (folder / _OWNER).exists() and (folder / _OWNER).stat().st_size and owner_of(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
