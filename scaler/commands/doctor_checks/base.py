"""What a check says: a line for each thing that it looked at, and what to do where that is not as it should be.

Policy: a check only reads, and judges by what the controller itself judges by: the adapter's refusal, the ledger's, a condition
of the fleet's status. What could not be looked at is said to be so, and is never taken for well.
Invariants: one check that breaks, or hangs, hinders no other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

W = TypeVar("W")

LONGEST_CHECK_S = 60.0
"""A pool's list may take half of it."""


class Level(StrEnum):
    """How it stands."""

    OK = "ok"
    WARN = "warn"
    """As it may be meant, and worth knowing."""
    FAIL = "fail"
    NOT_LOOKED = "not looked"
    """Nobody can say from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One finding. `remedy` is empty where there is nothing to do."""

    level: Level
    about: str
    """What was looked at."""
    found: str
    remedy: str = ""


Check = Callable[[W], Awaitable[Sequence[Line]]]


def ok(about: str, found: str) -> Line:
    """As it should be."""
    return Line(level=Level.OK, about=about, found=found)


def warn(about: str, found: str, remedy: str) -> Line:
    """Worth knowing."""
    return Line(level=Level.WARN, about=about, found=found, remedy=remedy)


def fail(about: str, found: str, remedy: str) -> Line:
    """Not as it should be."""
    return Line(level=Level.FAIL, about=about, found=found, remedy=remedy)


def not_looked(about: str, why: str, remedy: str) -> Line:
    """Unknown from here."""
    return Line(level=Level.NOT_LOOKED, about=about, found=why, remedy=remedy)


async def examine(checks: Sequence[tuple[str, Check[W]]], world: W) -> list[Line]:
    """The lines of all checks, in order; they are made one after another, so that what they ask stays small."""
    return [line for about, check in checks for line in await _lines(about, check, world)]


async def _lines(about: str, check: Check[W], world: W) -> Sequence[Line]:
    try:
        async with asyncio.timeout(LONGEST_CHECK_S):
            return await check(world)
    except TimeoutError:
        return [fail(about, f"no end of it within {LONGEST_CHECK_S:.0f} s", "look at what it asks: network, DNS, load")]
    except Exception as error:  # noqa: BLE001 - told as a finding
        return [fail(about, f"the check itself failed: {error!r}", "report it")]
