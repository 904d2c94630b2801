"""A SQLite ledger to start from."""

import shutil
import sqlite3
from pathlib import Path

from scaler.ledger.sqlite import SqliteLedger, open_path
from tests.builders.ledger import groups, identity, settings


def begin(path: Path, job: str = "job") -> SqliteLedger:
    """A configured job with a worker and two groups of two."""
    ledger = open_path(path, job, busy_timeout_s=0.05)
    ledger.configure(settings())
    ledger.register(identity("w1"))
    ledger.put_units(groups(2))
    return ledger


def back_up(path: Path, to: Path) -> None:
    """Copy a ledger that is in use."""
    source, target = sqlite3.connect(path), sqlite3.connect(to)
    source.backup(target)
    source.close()
    target.close()


def restore(path: Path, backup: Path) -> None:
    """Exchange the file, as a person would."""
    for leftover in (f"{path}-wal", f"{path}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(backup, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
