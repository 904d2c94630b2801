"""Every test that asks for `ledger_factory` or `ledger` runs once on each engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.ledger.contract import Ledger
from tests.builders.ledger import identity, settings
from tests.ledger.factories import ENGINES, LedgerFactory


@pytest.fixture(params=sorted(ENGINES))
def ledger_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LedgerFactory]:
    """A fresh store."""
    factory = ENGINES[request.param](tmp_path)
    try:
        yield factory
    finally:
        factory.close()


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    """A client of a job with groups of 2, batches of 2 groups, staleness 1; worker w1 is registered."""
    client = ledger_factory.open()
    client.configure(settings())
    client.register(identity("w1"))
    return client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite ledger goes."""
    return tmp_path / "ledger.db"
