"""What acts on a pool: list its instances, launch one replica, end named instances.

One file in this folder per provider, and one line in `scaler.act.registry`. Implementations are level-based: `observe`
tells all there is, every time. They keep no intent of their own; idempotency is by launch token and by instance id.

Errors: `PoolUnavailable` where the provider does not answer; refusals are outcomes, not errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from scaler.model.plan import DetachReplica, LaunchReplica, TerminateReplica
from scaler.model.pool import Instance, InstanceState, PoolObservation

__all__ = [
    "Instance",
    "InstanceState",
    "LaunchOutcome",
    "LaunchResult",
    "NotYet",
    "PoolActor",
    "PoolObservation",
    "PoolUnavailable",
]


class PoolUnavailable(Exception):
    """The provider did not answer, or answered in part: nothing is known, so nothing is decided."""


class NotYet(Exception):
    """A step was taken and the next one has to wait: the same command is to come again. The text says for what."""


class LaunchResult(StrEnum):
    """What became of a launch."""

    LAUNCHED = "launched"
    ALREADY = "already"
    """The token launched before: a replay."""
    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    QUOTA = "quota"
    """The account's, for a way of buying: no other pool gets more of it either."""
    NO_ROOM = "no_room"
    """The pool's own maximum, or places that are kept for others: says nothing about other pools."""
    THROTTLED = "throttled"
    """Says nothing about capacity: never a refusal of the offering."""
    CONFIGURATION = "configuration"
    AUTHORISATION = "authorisation"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """The result, the instance if there is one, and the provider's own words."""

    result: LaunchResult
    instance_id: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingFacts:
    """What a provider tells of an offering, each None where it does not. Times are on the controller's clock."""

    price_usd_per_h: float | None = None
    """Newest Spot price."""
    placement_score: int | None = None
    """EC2's, 1 (unlikely) to 10."""
    refused_at_s: float | None = None
    """Newest failed scaling activity or claim for lack of capacity."""
    refusals: int | None = None
    """How many in a row, where the launches were ours; None: not counted, and maybe somebody else's."""


class PoolActor(Protocol):
    """See the module's docstring."""

    async def observe(self) -> PoolObservation:
        """List everything of ours in the pool."""
        ...

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        """Launch one replica; the same token never launches twice, whichever controller repeats it."""
        ...

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        """End exactly the named instances that are still ours and the same; returns those it ended.

        In the order that design section 5b sets for the pool; `NotYet` where a pod has to be gone first.
        """
        ...

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """Let noticed instances leave their group, so that it does not replace them; returns those that left.

        By detaching with decrement, or by completing the termination hook that waits for them. Pools whose
        `Duties.detaches` is False are never asked.
        """
        ...

    def facts(self) -> Mapping[str, OfferingFacts]:
        """What the provider tells of offerings, by offering id: refusals seen elsewhere, prices, scores."""
        ...

    async def close(self) -> None:
        """Give up connections; instances stay."""
        ...
