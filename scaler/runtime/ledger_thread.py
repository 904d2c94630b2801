"""Ledger calls off the event loop: one thread at a time, every call with a time-out.

A call that does not return in time is left to itself: its thread and its connection are given up, and the next call
opens new ones. At most `_MOST_STUCK` such threads may be left; beyond that every call fails at once, so that a store that
hangs costs a bounded number of threads. Threads are daemons: a hanging store never keeps the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from scaler.ledger.contract import Ledger, LedgerUnavailable

T = TypeVar("T")
_Job = tuple[Callable[[Ledger], Any], "Future[Any]"]

_MOST_STUCK = 4
"""One for every store that a fail-over may leave half-open, and some; each costs a thread and a connection."""


class LedgerThread:
    """Runs jobs on a ledger that only its own thread touches. Jobs run in the order of their calls."""

    def __init__(self, open_ledger: Callable[[], Ledger], time_out_s: float = 5.0) -> None:
        self._open = open_ledger
        self._time_out_s = time_out_s
        self._turn = asyncio.Lock()
        self._connection: _Connection | None = None
        self._stuck: list[_Connection] = []

    async def call(self, job: Callable[[Ledger], T], time_out_s: float | None = None) -> T:
        """Run `job`; `LedgerUnavailable` where it, or opening the ledger, takes too long. Other errors are the job's."""
        async with self._turn:
            connection = self._usable()
            limit_s = self._time_out_s if time_out_s is None else time_out_s
            try:
                async with asyncio.timeout(limit_s):
                    result: T = await asyncio.wrap_future(connection.submit(job))
                    return result
            except TimeoutError:
                self._give_up(connection)
                raise LedgerUnavailable(f"no answer within {limit_s:g} s") from None

    def close(self) -> None:
        """Close the ledger once its thread is free; does not wait."""
        for connection in (*self._stuck, *([self._connection] if self._connection else [])):
            connection.stop()
        self._connection = None

    def _usable(self) -> "_Connection":
        self._stuck = [connection for connection in self._stuck if connection.is_alive()]
        if self._connection is None:
            if len(self._stuck) >= _MOST_STUCK:
                raise LedgerUnavailable(f"{len(self._stuck)} earlier calls have not returned")
            self._connection = _Connection(self._open)
            self._connection.start()
        return self._connection

    def _give_up(self, connection: "_Connection") -> None:
        connection.stop()
        self._stuck.append(connection)
        self._connection = None


class _Connection(threading.Thread):
    """One thread, one ledger; opened on first use and again after it could not be opened."""

    def __init__(self, open_ledger: Callable[[], Ledger]) -> None:
        super().__init__(name="ledger", daemon=True)
        self._open = open_ledger
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._ledger: Ledger | None = None

    def submit(self, job: Callable[[Ledger], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def stop(self) -> None:
        self._jobs.put(None)

    def run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            if future.set_running_or_notify_cancel():
                self._answer(job, future)
        if self._ledger is not None:
            self._ledger.close()

    def _answer(self, job: Callable[[Ledger], Any], future: "Future[Any]") -> None:
        try:
            if self._ledger is None:
                self._ledger = self._open()
            future.set_result(job(self._ledger))
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who is in another thread
            future.set_exception(error)
