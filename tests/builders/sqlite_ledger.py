"""A SQLite ledger to start from."""

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
