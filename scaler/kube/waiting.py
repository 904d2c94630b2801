"""Small waits: the first of several, a call with an end on the injected clock, news for any number of readers."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from scaler.model.clock import Clock

T = TypeVar("T")


async def first_of(*ways: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of them has ended; the others are cancelled and awaited. What one raises is raised, in a group."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def within(clock: Clock, seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """What `call` returns; it is given up after `seconds`. Both ends are awaited.

    Raises:
        TimeoutError: it took longer.
    """
    work, timer = asyncio.ensure_future(call), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, timer), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise TimeoutError(f"not done within {seconds:g} s")
    finally:
        for way in (work, timer):
            way.cancel()
        await asyncio.gather(work, timer, return_exceptions=True)


class News:
    """Something changes now and then; each task is told of what changed since it was told last.

    A task that was never told is told of what nobody was told of yet.
    """

    def __init__(self) -> None:
        self._version = 0
        self._told = 0
        self._told_by_task: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._waiting: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        """There is something new."""
        self._version += 1
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Return when there is something new for this task."""
        task = asyncio.current_task()
        seen = self._told_by_task.get(task, self._told) if task else self._told
        while seen == self._version:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        self._told = self._version
        if task:
            self._told_by_task[task] = self._version
