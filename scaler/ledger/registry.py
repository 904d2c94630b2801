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
"""Scheme -> module with `open_url(url, job) -> Ledger`. Imported on use: a worker on SQLite needs no Redis client."""


def open_ledger(url: str, job: str) -> Ledger:
    """Open a job's ledger: `sqlite:///absolute/path`, `valkey://host:port/db`, `valkeys://user:secret@host:port/db` (TLS).

    Raises:
        LedgerRefused: no such engine, or the store may not be used as it is.
        LedgerUnavailable: the store does not answer.
    """
    scheme = urlsplit(url).scheme
    if scheme not in ENGINES:
        raise LedgerRefused(f"ledger URL {url!r}: the scheme must be one of {', '.join(sorted(ENGINES))}")
    open_url = cast("Callable[[str, str], Ledger]", import_module(ENGINES[scheme]).open_url)
    return open_url(url, job)
