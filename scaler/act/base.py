"""What acts on a pool: list its instances, launch one replica, end named instances.

One file in this folder per provider, and one line in `scaler.act.registry`. Implementations are level-based: `observe`
tells all there is, every time. They keep no intent of their own; idempotency is by launch token and by instance id.

Errors: `PoolUnavailable` where the provider does not answer; refusals are outcomes, not errors.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from scaler.model.plan import LaunchReplica, TerminateReplica
from scaler.model.pool import Instance, InstanceState, PoolObservation

__all__ = [
    "Instance",
    "InstanceState",
    "LaunchOutcome",
    "LaunchResult",
    "PoolActor",
    "PoolObservation",
    "PoolUnavailable",
]


class PoolUnavailable(Exception):
    """The provider did not answer, or answered in part: nothing is known, so nothing is decided."""


class LaunchResult(StrEnum):
    """What became of a launch."""

    LAUNCHED = "launched"
    ALREADY = "already"
    """The token launched before: a replay."""
    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    QUOTA = "quota"
    THROTTLED = "throttled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """The result, the instance if there is one, and the provider's own words."""

    result: LaunchResult
    instance_id: str | None = None
    message: str = ""


class PoolActor(Protocol):
    """See the module's docstring."""

    async def observe(self) -> PoolObservation:
        """List everything of ours in the pool."""
        ...

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """Launch one replica; the same token never launches twice, whichever controller repeats it."""
        ...

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """End exactly the named instances that are still ours and the same; returns those it ended."""
        ...

    async def close(self) -> None:
        """Give up connections; instances stay."""
        ...
