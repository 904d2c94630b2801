"""Who acts: of all controllers of a fleet on one machine, the one that holds the lock.

The lock is the kernel's (`flock`): it goes with the process, however that dies, so that nothing has to expire.
Controllers on several machines are kept apart by the epoch: it is passed to the ledger, which refuses older ones.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from scaler.model.clock import Clock

_POLL_S = 0.5
"""How soon a standby takes over; a try costs one system call."""


def always() -> bool:
    """Where the lock cannot be lost: the kernel keeps it as long as the process lives."""
    return True


def never() -> bool:
    """Where a question does not arise."""
    return False


def holder(path: Path) -> str | None:
    """Who holds the lock, as it has written itself there (its process id); None: nobody. Nothing is created.

    A controller that tries in the very instant of the look comes again as a standby does. `OSError` where it cannot be looked at.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(fd, 32).decode(errors="replace").strip()
    finally:
        os.close(fd)
    return None


class LeaderLock:
    """A lock file. `leading` says whether we hold it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._fd: int | None = None

    @property
    def leading(self) -> bool:
        """Whether this process acts."""
        return self._fd is not None

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd
        return True

    async def acquire(self) -> None:
        """Wait as standby until the lock is ours."""
        while not self.try_acquire():
            await self._clock.sleep(_POLL_S)

    def release(self) -> None:
        """Let a standby take over."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
