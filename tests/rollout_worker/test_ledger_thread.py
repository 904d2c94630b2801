"""Synchronous ledger calls from the event loop: bounded, in one thread, and never in the way of the end."""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from rollout_worker.ledger_thread import LedgerThread
from scaler.ledger.contract import Ledger, LedgerUnavailable


class Slow:
    """Answers `expire` when it is let; says which thread asked."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.threads: set[int] = set()
        self.closed = threading.Event()

    def expire(self) -> int:
        self.threads.add(threading.get_ident())
        assert self.answer.wait(30.0)
        return 7

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.answer.set()


async def test_all_calls_come_from_one_thread_that_is_not_the_loops(slow: Slow) -> None:
    slow.answer.set()
    thread = LedgerThread(lambda: cast("Ledger", slow), timeout_s=30.0)
    assert [await thread.call(lambda store: store.expire()) for _ in range(3)] == [7, 7, 7]
    assert len(slow.threads) == 1
    assert threading.get_ident() not in slow.threads
    thread.close()
    assert slow.closed.wait(30.0)


async def test_a_call_without_an_answer_is_unavailable_and_so_is_the_next_until_it_is_answered(slow: Slow) -> None:
    thread = LedgerThread(lambda: cast("Ledger", slow), timeout_s=0.05)
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match=r"0\.05 s"):
            await thread.call(lambda store: store.expire())
    slow.answer.set()
    assert await thread.call(lambda store: store.expire()) == 7
    thread.close()


async def test_a_store_that_cannot_be_opened_is_tried_again_by_the_next_call(slow: Slow) -> None:
    slow.answer.set()
    attempts = iter([LedgerUnavailable("refused"), None])

    def opening() -> Ledger:
        error = next(attempts)
        if error is not None:
            raise error
        return cast("Ledger", slow)

    thread = LedgerThread(opening, timeout_s=30.0)
    with pytest.raises(LedgerUnavailable, match="refused"):
        await thread.call(lambda store: store.expire())
    assert await thread.call(lambda store: store.expire()) == 7
    thread.close()


async def test_a_hung_call_does_not_hold_up_the_end(slow: Slow) -> None:
    thread = LedgerThread(lambda: cast("Ledger", slow), timeout_s=0.05)
    with pytest.raises(LedgerUnavailable):
        await thread.call(lambda store: store.expire())
    thread.close()
    assert not slow.closed.is_set()
