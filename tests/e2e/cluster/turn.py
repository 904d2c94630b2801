"""One bed at a time on a machine: two would share its cores, and what is waited for in one would be the other's slowness."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other bed of this user runs here; goes with the process, however that ends."""
    path = Path(tempfile.gettempdir()) / f"headrace-bed-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
