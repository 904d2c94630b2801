"""An Auto Scaling group ends an instance and waits for its hook: by EventBridge, direct to the queue, or through SNS.

The message does not say for how long the group waits (300 s is a common heartbeat, 3600 s the default), and a hook never
delays a Spot reclaim, so the drain gets what a Spot notice gives: two minutes from the event's own time.
The hook of an EKS managed node group is a notice like any other, and EKS's own to complete: it drains the node behind it.
"""

from collections.abc import Mapping
from typing import Any

from scaler.interruptions.messages.event import Event, event_time_s
from scaler.interruptions.messages.parsed import (
    Ignored,
    IgnoredReason,
    LifecycleHook,
    TestNotification,
    Told,
    Wrong,
)
from scaler.interruptions.messages.spot import NOTICE_S
from scaler.model.interruption import InterruptionNotice, NoticeKind

SOURCE = "aws.autoscaling"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TEST = "autoscaling:TEST_NOTIFICATION"
EKS_HOOK = "Terminate-LC-Hook"
"""What EKS calls the termination hook of its node groups."""


def direct(fields: Mapping[str, Any], sent_at_s: float) -> Event | None:
    """The event of a message that a hook sent by itself; None where this is none."""
    if "LifecycleTransition" not in fields and fields.get("Event") != TEST:
        return None
    at_s = event_time_s(fields.get("Time"), sent_at_s)
    return Event(source=SOURCE, kind="", at_s=at_s, resources=(), detail=fields)


def parse(event: Event) -> Told | Ignored | TestNotification:
    """The notice, with its hook if we complete that; `Wrong` where transition, instance, group or hook cannot be read."""
    transition = event.text("LifecycleTransition")
    if TEST in (transition, event.text("Event")):
        return TestNotification()
    if transition == LAUNCHING:
        return Ignored(reason=IgnoredReason.LAUNCH)
    if transition != TERMINATING:
        raise Wrong("it is no transition of a lifecycle")
    hook = _hook(event)
    notice = InterruptionNotice(
        instance_id=hook.instance_id,
        kind=NoticeKind.LIFECYCLE_HOOK,
        noticed_at_s=event.at_s,
        deadline_s=event.at_s + NOTICE_S,
    )
    return Told(notices=(notice,), hook=None if hook.hook == EKS_HOOK else hook)


def _hook(event: Event) -> LifecycleHook:
    group, hook = event.text("AutoScalingGroupName"), event.text("LifecycleHookName")
    if not group or not hook:
        raise Wrong("it names no group or no hook")
    instance_id, token = event.instance_id("EC2InstanceId"), event.text("LifecycleActionToken")
    return LifecycleHook(instance_id=instance_id, group=group, hook=hook, token=token)
