"""Interruption notices: what the cloud says about an instance that will go."""

from dataclasses import dataclass
from enum import StrEnum


class NoticeKind(StrEnum):
    """What a notice announces."""

    SPOT_INTERRUPTION = "spot_interruption"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    """Only a hint: no deadline binds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNotice:
    """Says: this instance goes at `deadline_s`, on the cloud's clock. Deduplicated by (instance_id, kind)."""

    instance_id: str
    kind: NoticeKind
    noticed_at_s: float
    deadline_s: float | None
