"""Ledger calls off the loop: a store that hangs costs a bounded number of threads and never the loop."""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from scaler.ledger.contract import Ledger, LedgerUnavailable
from scaler.runtime.ledger_thread import LedgerThread


class _Store:
    """Counts openings and remembers who closed it."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = threading.Event()
        self.away = False

    def open(self) -> Ledger:
        if self.away:
            raise LedgerUnavailable("away")
        self.opened += 1
        return cast("Ledger", self)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def store() -> _Store:
    return _Store()


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_calls_share_one_connection_and_one_thread(store: _Store) -> None:
    ledger = LedgerThread(store.open)
    threads = {await ledger.call(lambda _: threading.get_ident()) for _ in range(3)}
    assert (store.opened, len(threads)) == (1, 1)
    assert threading.get_ident() not in threads
    ledger.close()
    assert store.closed.wait(10)


async def test_an_error_of_the_job_is_the_callers_and_the_connection_goes_on(store: _Store) -> None:
    ledger = LedgerThread(store.open)
    with pytest.raises(ZeroDivisionError):
        await ledger.call(lambda _: 1 // 0)
    assert await ledger.call(lambda _: 7) == 7
    assert store.opened == 1
    ledger.close()


async def test_a_store_that_cannot_be_opened_is_tried_again_at_the_next_call(store: _Store) -> None:
    store.away = True
    ledger = LedgerThread(store.open)
    with pytest.raises(LedgerUnavailable, match="away"):
        await ledger.call(lambda _: 1)
    store.away = False
    assert await ledger.call(lambda _: 1) == 1
    ledger.close()


async def test_a_call_that_hangs_is_given_up_and_the_next_one_gets_a_new_connection(
    store: _Store, hang: threading.Event
) -> None:
    ledger = LedgerThread(store.open, time_out_s=0.05)
    with pytest.raises(LedgerUnavailable, match="no answer within"):
        await ledger.call(lambda _: hang.wait())
    assert await ledger.call(lambda _: 1, 10.0) == 1
    assert store.opened == 2
    hang.set()
    assert store.closed.wait(10), "the one given up closes when it returns"
    ledger.close()


async def test_a_store_that_keeps_hanging_costs_a_bounded_number_of_threads(
    store: _Store, hang: threading.Event
) -> None:
    ledger = LedgerThread(store.open, time_out_s=0.01)
    before = threading.active_count()
    for _ in range(10):
        with pytest.raises(LedgerUnavailable):
            await ledger.call(lambda _: hang.wait())
    assert threading.active_count() - before <= 4
    ledger.close()
