"""What a notice source is. One file in this folder per source, and one line in `scaler.interruptions.registry`.

Level-based: `current` tells every notice that still stands, every time; `changed` only wakes the loop early, and losing a
wake-up changes nothing in the long run. Notices are deduplicated by (instance_id, kind), the earliest deadline first.
Malformed, foreign and duplicate ones are counted by `SourceHealth`, never raised.

Whoever acts tells back, at every turn and for whole sets: `recorded` once a crash cannot lose what a notice asks for, and
`drained` once nothing is left to hand over. Only then does a message leave its queue, or a lifecycle hook go on.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from scaler.model.interruption import InterruptionNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """Counters since start, and when the source last answered (None: never)."""

    answered_at_s: float | None
    received: int = 0
    duplicates: int = 0
    foreign: int = 0
    """About instances known to be other people's."""
    malformed: int = 0
    unknown: int = 0
    """About instances that nobody here knew within the grace period."""
    ignored: int = 0
    """Well formed, and no reason to act: states that end nothing, launches, results, tests."""
    expired: int = 0
    """Removed because they had become void before anybody recorded them."""
    dead_lettered: int = 0
    queue_age_s: float | None = None
    """Of the oldest message whose action is not recorded yet, 0 where there is none; None: the source is no queue, or away."""
    error: str = ""
    """What is wrong now, in words for a person; empty: nothing."""


class Ownership(StrEnum):
    """Whose an instance is."""

    OURS = "ours"
    """Of a pool of ours, whether it has joined the cluster or not."""
    FOREIGN = "foreign"
    """Known, and not of any pool of ours."""
    UNKNOWN = "unknown"
    """Not seen anywhere, yet or any more."""


class InstanceOwner(Protocol):
    """Who knows whose instances are."""

    def knows(self, instance_id: str) -> Ownership:
        """Looked up in memory, by exact id: asked for every standing notice at every look."""
        ...


class NoticeSource(Protocol):
    """See the module's docstring."""

    async def current(self) -> tuple[InterruptionNotice, ...]:
        """All standing notices, ordered by deadline, those without one last."""
        ...

    async def changed(self) -> None:
        """Return when there may be something new."""
        ...

    async def run(self) -> None:
        """Do what has to be done beside `current`, until cancelled; a source with nothing to do returns at once."""
        ...

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """For these instances all that `current` told last is where a crash cannot lose it: deadline annotation and ledger.

        An annotation of a later deadline than a notice's does not record that notice.
        """
        ...

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """On these instances nothing is left to hand over."""
        ...

    def health(self) -> SourceHealth:
        """How the source does."""
        ...


class Unacknowledged:
    """The rest of a `NoticeSource` that nobody waits for, and that does nothing between looks."""

    async def run(self) -> None:
        """Nothing to do."""

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """Nobody waits for it."""

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """Nobody waits for it."""


def by_deadline(notice: InterruptionNotice) -> tuple[bool, float, str, str]:
    """Sort key: the nearest deadline first, notices without one last."""
    return (notice.deadline_s is None, notice.deadline_s or 0.0, notice.instance_id, notice.kind.value)
