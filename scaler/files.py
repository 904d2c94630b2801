"""Files that a person names: read whole and bounded, so that a name which is no file of that kind costs neither time nor memory.

Standard library only; every room that reads such files may use it. Non-goals: what is in them, and the words for a person.
"""

import errno
import stat
from pathlib import Path


class NoRegularFile(OSError):
    """A pipe, a device or a socket: reading it may never end."""


class TooLarge(OSError):
    """More bytes than such a file can sensibly have."""


FEW_BYTES = 1 << 16
"""More than a file of a few fields ever has."""


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The file's bytes, at most `most_bytes`; a pipe is not opened, and no more than one byte beyond the bound is read.

    Raises:
        OSError: there is none, it cannot be read, or, as the errors above and `IsADirectoryError`, it is not of that kind;
            its `strerror` says which.
    """
    check_regular(path)
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        most = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        raise TooLarge(errno.EFBIG, f"it is larger than {most}", str(path))
    return data


def check_regular(path: Path) -> None:
    """Nothing, where it is a file that can be read to its end: for those that a library opens. Errors as in `read_regular`."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a name that no file can have
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not stat.S_ISREG(mode):
        raise NoRegularFile(errno.EINVAL, "it is no regular file", str(path))
