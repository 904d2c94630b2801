"""What a notice source is. One file in this folder per source, and one line in `scaler.interruptions.registry`.

Level-based: `current` tells every notice that still stands, every time; `changed` only wakes the loop early, and losing a
wake-up changes nothing in the long run. Notices are deduplicated by (instance_id, kind). Malformed, foreign and duplicate
ones are counted by `SourceHealth`, never raised.
"""

from dataclasses import dataclass
from typing import Protocol

from scaler.model.interruption import InterruptionNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """Counters since start, and when the source last answered (None: never)."""

    answered_at_s: float | None
    received: int = 0
    duplicates: int = 0
    foreign: int = 0
    malformed: int = 0


class NoticeSource(Protocol):
    """See the module's docstring."""

    async def current(self) -> tuple[InterruptionNotice, ...]:
        """All standing notices, ordered by deadline, those without one last."""
        ...

    async def changed(self) -> None:
        """Return when there may be something new."""
        ...

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """The notices told of these instances are recorded where a crash of ours cannot lose them: let go of their messages."""
        ...

    def health(self) -> SourceHealth:
        """How the source does."""
        ...
