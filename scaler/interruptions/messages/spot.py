"""EC2 takes a Spot Instance: two minutes from the event's own time; no time at all where it hibernates.

Source: EC2 user guide, "Spot Instance interruption notices": hibernation begins immediately.
"""

from scaler.interruptions.messages.event import Event
from scaler.interruptions.messages.parsed import Told
from scaler.model.interruption import InterruptionNotice, NoticeKind

NOTICE_S = 120.0
IMMEDIATE_ACTIONS = frozenset({"hibernate"})


def parse(event: Event) -> Told:
    """The notice; `Wrong` where no instance is named."""
    notice_s = 0.0 if event.text("instance-action") in IMMEDIATE_ACTIONS else NOTICE_S
    notice = InterruptionNotice(
        instance_id=event.instance_id(),
        kind=NoticeKind.SPOT_INTERRUPTION,
        noticed_at_s=event.at_s,
        deadline_s=event.at_s + notice_s,
    )
    return Told(notices=(notice,))
