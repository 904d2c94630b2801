"""One thing that `headrace release` takes away, found and not yet done."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is taken off which object. `act` may raise the errors of the service that it calls."""

    subject: str
    """As a person names it: `node ip-10-0-0-1`."""
    takes: tuple[str, ...]
    act: Callable[[], Awaitable[object]]

    def __str__(self) -> str:
        return f"{self.subject}: {', '.join(self.takes)}"
