"""A ledger's synchronous calls in one dedicated thread, each bounded in time.

A call that takes too long counts as `LedgerUnavailable`: nothing is known about it. Its thread is not left for another
one, since a ledger object serves one thread; until it comes back, further calls are unavailable too. The thread never
keeps the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

from scaler.ledger.contract import Ledger, LedgerUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    work: Callable[[Ledger], T]
    future: "asyncio.Future[T]"
    loop: asyncio.AbstractEventLoop


class LedgerThread:
    """Opens the ledger on first use, in its thread; an opening that fails is tried again by the next call."""

    def __init__(self, open_ledger: Callable[[], Ledger], *, timeout_s: float) -> None:
        self._open = open_ledger
        self._timeout_s = timeout_s
        self._jobs: SimpleQueue[_Job[object] | None] = SimpleQueue()
        self._last: asyncio.Future[object] | None = None
        self._thread = threading.Thread(target=self._serve, name="ledger", daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[Ledger], T]) -> T:
        """Run `work` on the ledger; raises what it raises, or `LedgerUnavailable` when it takes too long."""
        if self._last is not None and not self._last.done():
            await self._wait(self._last)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(_mark_retrieved)
        self._last = future  # type: ignore[assignment]  # only waited for
        self._jobs.put(_Job(work, future, loop))  # type: ignore[arg-type]  # the thread only passes results on
        await self._wait(future)
        return future.result()

    async def _wait(self, future: "asyncio.Future[T]") -> None:
        done, _ = await asyncio.wait([future], timeout=self._timeout_s)
        if not done:
            raise LedgerUnavailable(f"no answer within {self._timeout_s:g} s")

    def close(self) -> None:
        """Let the thread close the ledger, once it has answered what it was asked; a hung one is left behind."""
        self._jobs.put(None)
        self._thread.join(self._timeout_s)

    def _serve(self) -> None:
        ledger: Ledger | None = None
        while (job := self._jobs.get()) is not None:
            try:
                ledger = ledger or self._open()
                result = job.work(ledger)
            except BaseException as error:  # noqa: BLE001 (handed to the caller, whatever it is)
                _settle(job, error=error)
            else:
                _settle(job, result=result)
        if ledger is not None:
            ledger.close()


def _settle(job: _Job[object], *, result: object = None, error: BaseException | None = None) -> None:
    def settle() -> None:
        if job.future.cancelled():
            return
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(result)

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        job.loop.call_soon_threadsafe(settle)


def _mark_retrieved(future: "asyncio.Future[T]") -> None:
    """A call that failed after its caller gave up is no news to anyone."""
    if not future.cancelled():
        future.exception()
