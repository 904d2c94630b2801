"""Interruption notices: what the cloud says about an instance that will go."""

from dataclasses import dataclass
from enum import StrEnum


class NoticeKind(StrEnum):
    """What a notice announces."""

    SPOT_INTERRUPTION = "spot_interruption"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    """Only a hint: no deadline binds it, and it is forgotten after a while."""
    SCHEDULED_CHANGE = "scheduled_change"
    """AWS Health or instance status: retirement, stop, reboot or maintenance at a time hours or days ahead."""
    CAPACITY_RESERVATION_END = "capacity_reservation_end"
    """A capacity block ends, or an interruptible reservation is taken back."""
    STATE_CHANGE = "state_change"
    """The instance stops or has stopped: nothing can be handed over any more."""
    LIFECYCLE_HOOK = "lifecycle_hook"
    """Its Auto Scaling group ends it and waits for the hook to be completed."""
    NODE_DISRUPTED = "node_disrupted"
    """Whoever owns the node says that it goes: a taint or condition set by Karpenter, a termination handler or a node monitor."""


DEFAULT_WARNING_S = 120.0
"""EC2 warns two minutes ahead: the deadline of a notice that names none."""

BINDING = frozenset(set(NoticeKind) - {NoticeKind.REBALANCE_RECOMMENDATION})
"""Kinds after which the instance goes, whatever we do."""

TAKEN_BY_CLOUD = frozenset({NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION_END, NoticeKind.STATE_CHANGE})
"""Kinds where the cloud ends the instance itself: we never do, or the refund of its first hour is lost."""


HINT_TTL_S = 900.0
"""A rebalance recommendation that nothing followed is forgotten after so long: most instances that get one live on."""
VOID_AFTER_DEADLINE_S = 600.0
"""So long after its deadline a notice of the cloud's is void: its instance has gone, or the cloud thought better of it."""
UNDATED_TTL_S = 86_400.0
"""A binding notice that names no deadline stands for a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNotice:
    """Says: this instance goes at `deadline_s`, on the cloud's clock. Deduplicated by (instance_id, kind)."""

    instance_id: str
    kind: NoticeKind
    noticed_at_s: float
    deadline_s: float | None


def void_at_s(notice: InterruptionNotice) -> float:
    """From when on a notice says nothing any more; seconds on the clock of the notice's own times."""
    if notice.kind not in BINDING:
        return notice.noticed_at_s + HINT_TTL_S
    return (
        notice.noticed_at_s + UNDATED_TTL_S if notice.deadline_s is None else notice.deadline_s + VOID_AFTER_DEADLINE_S
    )
