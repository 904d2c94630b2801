"""The last answer of a source that is asked now and then: believed for a while after it fails, and no longer.

Invariants: an answer to another question is none; a source that refuses us (RBAC, IAM) is unread at once, since it will not
come back by itself; every question has a time-out of its own on top of the client's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import structlog

from scaler.aws.contract import AwsError, AwsFault
from scaler.kube.contract import Denied, KubeError
from scaler.model.clock import Clock

log = structlog.get_logger()

T = TypeVar("T")
_LONGEST_REASON = 200


class Kept(Generic[T]):
    """One source. `empty` is its value while it is unread."""

    def __init__(
        self, empty: T, clock: Clock, *, every_s: float, keep_s: float = 300.0, time_out_s: float = 20.0
    ) -> None:
        self._empty = empty
        self._clock = clock
        self._every_s = every_s
        self._keep_s = keep_s
        self._time_out_s = time_out_s
        self._value = empty
        self._question: object = None
        self._asked_monotonic_s: float | None = None
        self._answered_monotonic_s: float | None = None
        self._error = "not asked yet"
        self.answered_at_s: float | None = None
        """Wall clock of the last answer."""

    async def ask(self, read: Callable[[], Awaitable[T]], question: object = None) -> None:
        """Ask again where it is time, or where the question is another one. Errors are kept, never raised."""
        began_s = self._clock.monotonic_s()
        same = question == self._question
        if same and self._asked_monotonic_s is not None and began_s - self._asked_monotonic_s < self._every_s:
            return
        if not same:
            self._forget(question)
        self._asked_monotonic_s = began_s
        try:
            async with asyncio.timeout(self._time_out_s):
                self._value = await read()
        except (KubeError, AwsError, TimeoutError, OSError) as error:
            self._failed(error)
        except Exception as error:
            log.exception("source_broken", question=str(question)[:_LONGEST_REASON])
            self._failed(error)
        else:
            self._error = ""
            self._answered_monotonic_s = began_s
            self.answered_at_s = self._clock.now_s()

    def hurry(self) -> None:
        """Ask again the next time, however soon that is."""
        self._asked_monotonic_s = None

    @property
    def value(self) -> T:
        """The last answer, or `empty` where it is unread."""
        return self._empty if self.unread else self._value

    @property
    def unread(self) -> str | None:
        """Why nothing is known; None: something is."""
        if self._answered_monotonic_s is None:
            return self._error
        age_s = self._clock.monotonic_s() - self._answered_monotonic_s
        old = age_s > self._keep_s + self._every_s
        return f"no answer for {age_s:.0f} s: {self._error or 'not asked'}" if old else None

    def _failed(self, error: Exception) -> None:
        self._error = (str(error) or type(error).__name__)[:_LONGEST_REASON]
        if isinstance(error, Denied) or (isinstance(error, AwsError) and error.fault is AwsFault.AUTHORISATION):
            self._answered_monotonic_s = None

    def _forget(self, question: object) -> None:
        self._question = question
        self._value = self._empty
        self._answered_monotonic_s = None
        self._error = "not asked yet"


async def ask_each(names: Iterable[str], ask: Callable[[str], Awaitable[T]], *, at_once: int) -> dict[str, T]:
    """The answer for each name, some at a time, so that one caller does not take a client's whole rate.

    Raises:
        KubeError: or whatever the first failed question raised; nothing is told of the others then.
    """
    slots = asyncio.Semaphore(at_once)
    found: dict[str, T] = {}

    async def one(name: str) -> None:
        async with slots:
            found[name] = await ask(name)

    try:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))
    except ExceptionGroup as errors:
        raise _first(errors) from None
    return found


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    first: Exception = errors
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first
