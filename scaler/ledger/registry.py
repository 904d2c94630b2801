"""Ledger engines by URL scheme. A new engine is one file in this folder and one line in `ENGINES`."""

from collections.abc import Callable
from importlib import import_module
from typing import cast
from urllib.parse import urlsplit

from scaler.ledger.contract import Ledger, LedgerRefused

ENGINES = {
    "sqlite": "scaler.ledger.sqlite",
    "valkey": "scaler.ledger.valkey",
    "valkeys": "scaler.ledger.valkey",
}
"""Scheme -> module with `open_url` and `open_for_reading`, both (url, job) -> Ledger.

Imported on use: a worker on SQLite needs no Redis client."""


def open_ledger(url: str, job: str) -> Ledger:
    """Open a job's ledger: `sqlite:///absolute/path`, `valkey://host:port/db`, `valkeys://user:secret@host:port/db` (TLS).

    Raises:
        LedgerRefused: no such engine, or the store may not be used as it is.
        LedgerUnavailable: the store does not answer.
    """
    return _opener(url, "open_url")(url, job)


def open_for_reading(url: str, job: str) -> Ledger:
    """Open the ledger of a job that is there, for reading; nothing is created. Raises as `open_ledger`, also for no such job."""
    return _opener(url, "open_for_reading")(url, job)


def _opener(url: str, name: str) -> Callable[[str, str], Ledger]:
    scheme = urlsplit(url).scheme
    if scheme not in ENGINES:
        raise LedgerRefused(f"ledger URL {url!r}: the scheme must be one of {', '.join(sorted(ENGINES))}")
    return cast("Callable[[str, str], Ledger]", getattr(import_module(ENGINES[scheme]), name))
