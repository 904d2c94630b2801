"""What AWS's failures mean to whoever launches, lists or ends."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from scaler.act.base import LaunchOutcome, LaunchResult, PoolUnavailable
from scaler.aws.contract import AwsError, AwsFault

_RESULTS = {
    AwsFault.THROTTLED: LaunchResult.THROTTLED,
    AwsFault.INSUFFICIENT_CAPACITY: LaunchResult.INSUFFICIENT_CAPACITY,
    AwsFault.QUOTA: LaunchResult.QUOTA,
    AwsFault.CONFIGURATION: LaunchResult.CONFIGURATION,
    AwsFault.NOT_FOUND: LaunchResult.CONFIGURATION,
    AwsFault.AUTHORISATION: LaunchResult.AUTHORISATION,
}

_MAY_HAVE_LAUNCHED = frozenset({AwsFault.UNREACHABLE, AwsFault.CONTENTION})
"""The same token has to be asked for again: its launch may have been carried out, or is being."""


@contextmanager
def unavailable() -> Iterator[None]:
    """What AWS does not answer is a pool that nobody can say anything of."""
    try:
        yield
    except AwsError as error:
        raise PoolUnavailable(str(error)) from error


async def whole(*calls: Awaitable[Any]) -> list[Any]:
    """All answers, once all calls have ended; the first failure if there is one."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def refused_launch(error: AwsError) -> LaunchOutcome:
    """The outcome of a launch call that failed.

    Raises:
        PoolUnavailable: nobody knows whether it was carried out.
    """
    if error.fault in _MAY_HAVE_LAUNCHED:
        raise PoolUnavailable(str(error)) from error
    return refusal(error.fault, str(error))


def refusal(fault: AwsFault, message: str) -> LaunchOutcome:
    """The outcome of a launch that brought nothing. What nobody has listed is FAILED: that offering backs off, no other."""
    return LaunchOutcome(result=_RESULTS.get(fault, LaunchResult.FAILED), message=message)
