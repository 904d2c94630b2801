"""The engines that the conformance suite runs on. A further engine is one class and one line in `ENGINES`."""

import atexit
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

from scaler.ledger._valkey.address import parse_url
from scaler.ledger.contract import Ledger
from scaler.ledger.sqlite import open_path
from scaler.ledger.valkey import ValkeyLedger
from tests.builders.valkey_server import ValkeyServer, valkey_server

START_S = 1_000_000.0
"""Where every store's clock starts."""


class LedgerFactory(Protocol):
    """One fresh store, its clock, and clients on it."""

    now_s: float
    """The store's clock; moves only by assignment."""

    def open(self, job: str = "job") -> Ledger:
        """A further client. Clients may be used in other threads and processes."""
        ...

    def opener(self, job: str = "job") -> Callable[[], Ledger]:
        """What opens a client in a process forked from this one, with the store's clock as it stands now."""
        ...

    def close(self) -> None:
        """Close all clients and forget the store."""
        ...


class SqliteFactory:
    """A database file of its own."""

    def __init__(self, folder: Path) -> None:
        self.now_s = START_S
        self.path = folder / "ledger.db"
        self._clients: list[Ledger] = []

    def open(self, job: str = "job") -> Ledger:
        """A further client."""
        client = open_path(self.path, job, now_s=lambda: self.now_s)
        self._clients.append(client)
        return client

    def opener(self, job: str = "job") -> Callable[[], Ledger]:
        """The fork's clock stands still."""
        return lambda: open_path(self.path, job, now_s=lambda: self.now_s)

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients:
            client.close()


class ValkeyFactory:
    """A job of its own in the server that all tests of this process share."""

    def __init__(self, folder: Path) -> None:
        self.now_s = START_S
        self._address = replace(parse_url(shared_server().url), objects=folder / "objects")
        self._prefix = uuid.uuid4().hex
        self._clients: list[Ledger] = []

    def open(self, job: str = "job") -> Ledger:
        """A further client."""
        client = self._open(job)
        self._clients.append(client)
        return client

    def opener(self, job: str = "job") -> Callable[[], Ledger]:
        """The fork's clock stands still."""
        return lambda: self._open(job)

    def close(self) -> None:
        """Close all clients; the server goes with the tests."""
        for client in self._clients:
            client.close()
        with shared_server().client() as client:
            client.flushdb()

    def _open(self, job: str) -> Ledger:
        return ValkeyLedger(self._address, f"{self._prefix}-{job}", now_s=lambda: self.now_s)


@cache
def shared_server() -> ValkeyServer:
    """Started by the first test that needs it."""
    running = valkey_server()
    atexit.register(running.__exit__, None, None, None)
    return running.__enter__()


ENGINES: dict[str, Callable[[Path], LedgerFactory]] = {
    "sqlite": SqliteFactory,
    "valkey": ValkeyFactory,
}
