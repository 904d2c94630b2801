"""Every kind of message and its parser, and the one way in."""

from collections.abc import Callable, Mapping
from typing import Any

from scaler.interruptions.messages import (
    capacity_block,
    health,
    lifecycle,
    rebalance,
    reservation,
    spot,
    state_change,
    uneventful,
)
from scaler.interruptions.messages.event import Event, event_of, unwrap
from scaler.interruptions.messages.parsed import Ignored, IgnoredReason, Malformed, Parsed, Wrong

_EC2, _SCALING, _HEALTH = "aws.ec2", lifecycle.SOURCE, "aws.health"

KINDS: Mapping[tuple[str, str], Callable[[Event], Parsed]] = {
    (_EC2, "EC2 Spot Instance Interruption Warning"): spot.parse,
    (_EC2, "EC2 Instance Rebalance Recommendation"): rebalance.parse,
    (_EC2, "EC2 Instance State-change Notification"): state_change.parse,
    (_EC2, "EC2 Capacity Reservation Instance Interruption Warning"): reservation.parse,
    (_EC2, "EC2 Interruptible Capacity Reservation Allocation Reclamation Completed"): uneventful.delivered,
    (_EC2, "Capacity Block Expiration Warning"): capacity_block.parse,
    (_EC2, "Capacity Block Reservation Expiration Warning"): capacity_block.parse,
    (_EC2, "Capacity Block Delivered"): uneventful.delivered,
    (_EC2, "Capacity Block Reservation Delivered"): uneventful.delivered,
    (_HEALTH, "AWS Health Event"): health.parse,
    (_SCALING, "EC2 Instance-terminate Lifecycle Action"): lifecycle.parse,
    (_SCALING, "EC2 Instance-launch Lifecycle Action"): lifecycle.parse,
    (_SCALING, "EC2 Instance Launch Successful"): uneventful.scaling_result,
    (_SCALING, "EC2 Instance Launch Unsuccessful"): uneventful.scaling_result,
    (_SCALING, "EC2 Instance Terminate Successful"): uneventful.scaling_result,
    (_SCALING, "EC2 Instance Terminate Unsuccessful"): uneventful.scaling_result,
}
"""(source, kind) -> parser, which may raise `Wrong` and nothing else. Wordings differ between versions of the documentation."""


def parse(body: bytes | str, *, sent_at_s: float) -> Parsed:
    """What a message says. Never raises; `sent_at_s` stands in for a time that it does not tell (cloud's clock)."""
    try:
        return _parse(unwrap(body), sent_at_s)
    except Wrong as wrong:
        return Malformed(reason=str(wrong))


def _parse(fields: Mapping[str, Any], sent_at_s: float) -> Parsed:
    if fields.get("Type") in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        return Ignored(reason=IgnoredReason.SUBSCRIPTION)
    hook = lifecycle.direct(fields, sent_at_s)
    if hook is not None:
        return lifecycle.parse(hook)
    event = event_of(fields, sent_at_s)
    kind = KINDS.get((event.source, event.kind))
    if kind is not None:
        return kind(event)
    if event.source.startswith("aws."):
        return Ignored(reason=IgnoredReason.UNKNOWN_KIND)
    raise Wrong("nobody here knows its source")
