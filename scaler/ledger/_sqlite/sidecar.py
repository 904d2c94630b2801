"""The small file beside the database: what writers lock, and the highest fencing token ever handed out.

Policy
* Writers take turns on it (`turnstile`) before they begin a transaction. SQLite's own busy handler sleeps in growing
  steps and can starve a client for seconds.
* Under that lock, after the transaction and before its caller hears of it, the job's (store epoch, counter) is noted
  here. So every token that anybody ever held is noted, and none that a killed client left uncommitted: a database that
  is behind its note was restored from a backup, and only such a one is.
* The file names its own inode. A copy of it, restored together with the database, proves nothing and counts as none.

Correctness of transactions never rests on this lock: SQLite's own lock is the last word.

Non-goals: the note is not synced, so a power failure together with a restore may hide a few tokens; a snapshot of the
whole disk cannot be told from the original.
"""

import os
import struct
from pathlib import Path

from scaler.ledger._sqlite.turnstile import Turnstile
from scaler.ledger.contract import LedgerUnavailable

_HEADER = struct.Struct("<8sQ")
_NOTE = struct.Struct("<QQ")
_NOTES_AT = 64
_MAGIC = b"HRFENCE1"


class Sidecar:
    """Opened once a client; `with sidecar.turn:` is a writer's turn."""

    def __init__(self, path: Path, pipe: Path, timeout_s: float) -> None:
        """`pipe` is for the turnstile; its folder is made."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            pipe.parent.mkdir(exist_ok=True)
            self.turn = Turnstile(self._fd, pipe, timeout_s)
            # Where earlier builds had the pipe: whoever copied `ledger.db*` waited on it for ever. Clients of such a
            # build that have it open, or make it anew, get the lock all the same, without being woken.
            path.with_name(path.name + ".turn").unlink(missing_ok=True)
        except OSError as error:
            raise LedgerUnavailable(f"{path}: {error.strerror}") from error

    def trusted(self) -> bool:
        """Whether this is the file that the notes were written to, and not a copy or a new one."""
        return os.pread(self._fd, _HEADER.size, 0) == self._header()

    def trust(self) -> None:
        """Make it so, durably."""
        os.pwrite(self._fd, self._header(), 0)
        os.fsync(self._fd)

    def note(self, job: int, store_epoch: int, fence: int) -> None:
        """Note the highest token handed out in a job."""
        os.pwrite(self._fd, _NOTE.pack(store_epoch, fence), _NOTES_AT + job * _NOTE.size)

    def noted(self, job: int) -> tuple[int, int]:
        """The highest token noted for a job; (0, 0) where there is none."""
        raw = os.pread(self._fd, _NOTE.size, _NOTES_AT + job * _NOTE.size)
        store_epoch, fence = _NOTE.unpack(raw) if len(raw) == _NOTE.size else (0, 0)
        return int(store_epoch), int(fence)

    def close(self) -> None:
        """Give up the file; a lock held falls. Harmless when repeated."""
        if self._fd >= 0:
            self.turn.close()
            os.close(self._fd)
            self._fd = -1

    def _header(self) -> bytes:
        return _HEADER.pack(_MAGIC, os.fstat(self._fd).st_ino)
