"""What was asked of the region, by whom, and how every instance ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

AWS = "aws"
"""The caller of what AWS does by itself."""


class EndedBy(StrEnum):
    """What ended an instance."""

    TERMINATE_INSTANCES = "terminate_instances"
    """EC2's call, which names it."""
    TERMINATE_NAMED = "terminate_named"
    """TerminateInstanceInAutoScalingGroup, which names it."""
    SCALE_IN = "scale_in"
    """The group chose it because its desired capacity was lowered; the caller is who lowered it."""
    AZ_REBALANCE = "az_rebalance"
    CAPACITY_REBALANCE = "capacity_rebalance"
    EKS = "eks"
    """A managed node group replaced it after its drain."""
    UNHEALTHY = "unhealthy"
    ABANDONED = "abandoned"
    """A launch hook said so, or timed out."""
    GROUP_DELETED = "group_deleted"
    SPOT = "spot"
    """EC2 took it back, with or without notice."""
    RESERVATION = "reservation"
    """The end or reclaim of its capacity reservation."""
    FAILED = "failed"
    """It broke."""


BY_CALLERS = frozenset({EndedBy.TERMINATE_INSTANCES, EndedBy.TERMINATE_NAMED, EndedBy.SCALE_IN, EndedBy.GROUP_DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of an instance."""

    instance_id: str
    at_s: float
    by: EndedBy
    caller: str
    group: str
    """The Auto Scaling group it was in then; empty: none."""
    protected: bool
    """From scale-in, when it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    at_s: float
    caller: str
    """Access key id."""
    service: str
    operation: str
    parameters: Mapping[str, Any]
    error: str
    """The code it was refused with; empty: done."""


@dataclass(slots=True)
class Journal:
    """All of it, in order."""

    calls: list[Call] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)

    def of(self, operation: str, *, refused: bool | None = None) -> list[Call]:
        """Calls of one operation; `refused` picks those that failed or were done."""
        named = (call for call in self.calls if call.operation == operation)
        return [call for call in named if refused is None or bool(call.error) is refused]

    def counts(self) -> dict[tuple[str, str], int]:
        """Calls by (service, operation): what IAM has to allow."""
        found: dict[tuple[str, str], int] = {}
        for call in self.calls:
            key = (call.service, call.operation)
            found[key] = found.get(key, 0) + 1
        return found
