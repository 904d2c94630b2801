"""What acts on a pool: list its instances, launch one replica, end named instances.

One file in this folder per provider, and one line in `scaler.act.registry`. Implementations are level-based: `observe`
tells all there is, every time. They keep no intent of their own; idempotency is by launch token and by instance id.

Errors: `PoolUnavailable` where the provider does not answer; refusals are outcomes, not errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from scaler.model.plan import LaunchReplica, TerminateReplica


class PoolUnavailable(Exception):
    """The provider did not answer, or answered in part: nothing is known, so nothing is decided."""


class InstanceState(StrEnum):
    """An instance as its provider sees it."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of ours that is not gone. `launched_at_s` is on the provider's clock."""

    instance_id: str
    replica_id: str
    offering_id: str
    state: InstanceState
    launched_at_s: float
    launch_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObservation:
    """Everything a pool holds, listed completely at `listed_at_s`."""

    listed_at_s: float
    instances: tuple[Instance, ...]
    refused_reason: str | None = None
    """Why this pool may not be acted on at all (another owner, wrong settings); None: it may."""
    available: Mapping[str, int] = field(default_factory=dict)
    """Offering id -> instances that could be had, where the provider tells; absent means unknown."""


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
