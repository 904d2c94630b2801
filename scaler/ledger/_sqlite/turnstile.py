"""The writers' queue: a file lock, and a pipe on which whoever lets go of it wakes one of those who wait.

The lock (flock) is the truth: it falls with its holder, however that ends. The pipe is only a hint, at most one byte in
it: a waiter that nobody wakes, because the holder was killed, tries again by itself. A blocking flock would be as fast
and could not time out; polling alone leaves the lock idle between two looks, for longer than a transaction takes.
"""

import contextlib
import fcntl
import os
import select
from pathlib import Path

from scaler.ledger.contract import LedgerUnavailable

LOOK_AGAIN_S = 0.01
_BRIEFLY_S = 0.001


class Turnstile:
    """`with turnstile:` is one writer's turn. `lock` is the descriptor of the file to be locked."""

    def __init__(self, lock: int, pipe: Path, timeout_s: float) -> None:
        self._lock = lock
        self.timeout_s = timeout_s
        with contextlib.suppress(FileExistsError):
            os.mkfifo(pipe, 0o644)
        # Opened for both, it never reports an end, whoever comes and goes.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._waiting = select.epoll()
        self._waiting.register(self._pipe, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    def __enter__(self) -> "Turnstile":
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def wait(self) -> None:
        """Get the lock; `LedgerUnavailable` where nobody lets go of it for too long."""
        idle_s = 0.0
        while not self.try_lock():
            if self._waiting.poll(LOOK_AGAIN_S, 1):
                if self._heard():
                    return
                continue
            # Only time in which nobody let go counts: while others get their turns, the store does answer.
            idle_s += LOOK_AGAIN_S
            if idle_s >= self.timeout_s:
                raise self.held_too_long()

    def wait_briefly(self) -> bool:
        """Get the lock if it is free within a millisecond."""
        return self.try_lock() or (bool(self._waiting.poll(_BRIEFLY_S, 1)) and self._heard())

    def try_lock(self) -> bool:
        """Get the lock if it is free."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def let_go(self) -> None:
        """Give the lock up and wake one who waits."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        if not self._waiting.poll(0, 1):
            os.write(self._pipe, b"!")

    def _heard(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 1)
        return self.try_lock()

    def held_too_long(self) -> LedgerUnavailable:
        """What to raise when nobody lets go."""
        return LedgerUnavailable(f"another writer has held the ledger for {self.timeout_s} s")

    def close(self) -> None:
        """Give up the pipe. Harmless when repeated."""
        if self._pipe >= 0:
            self._waiting.close()
            os.close(self._pipe)
            self._pipe = -1
