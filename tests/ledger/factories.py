"""The engines that the conformance suite runs on. A further engine is one class and one line in `ENGINES`."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from scaler.ledger.contract import Ledger
from scaler.ledger.sqlite import open_path

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


ENGINES: dict[str, Callable[[Path], LedgerFactory]] = {
    "sqlite": SqliteFactory,
}
