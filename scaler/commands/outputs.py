"""Files that a person asked a command to write: tried before the work, and one line where they cannot be written.

Policy: folders are not made, since a missing one is most often a name typed wrong; an option that names a folder of its own
(`demo --keep`) makes it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scaler.config.faults import one_line


class OutputError(Exception):
    """A file cannot be written; the text is a line that names it and says why."""

    def __init__(self, file: Path, reason: str | None) -> None:
        super().__init__(one_line(f"{file}: it cannot be written: {reason or 'no reason is given'}"))


def check_writable(*files: Path | None) -> None:
    """Try the files, None among them left out: what was there keeps its content, what was not is not there afterwards.

    Raises:
        OutputError: one cannot be written, which is better known before minutes of work than after.
    """
    for file in files:
        if file is not None:
            with writing(file):
                _try(file)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """What is done to write the file; an `OSError` becomes an `OutputError`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        missing = None if file.parent.is_dir() else f"there is no folder {file.parent}"
        raise OutputError(file, missing or error.strerror) from error
    except OSError as error:
        raise OutputError(file, error.strerror) from error


def _try(file: Path) -> None:
    target = Path(os.path.realpath(file))  # of a link that leads nowhere yet, the file that would be made
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        target.touch(exist_ok=False)
        target.unlink()
        return
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a pipe or a terminal would notice
        target.open("ab").close()


def write_text(file: Path, text: str) -> None:
    """Write a text file in place of what is there.

    Raises:
        OutputError: it cannot be written.
    """
    with writing(file):
        file.write_text(text, encoding="utf-8", newline="\n")
