"""An interruptible capacity reservation is taken back: the termination time, or else two minutes from the event."""

from scaler.interruptions.messages.event import Event
from scaler.interruptions.messages.parsed import Told
from scaler.interruptions.messages.spot import NOTICE_S
from scaler.interruptions.messages.times import time_s
from scaler.model.interruption import InterruptionNotice, NoticeKind


def parse(event: Event) -> Told:
    """The notice; `Wrong` where no instance is named."""
    ends_at_s = time_s(event.detail.get("instance-termination-time"))
    notice = InterruptionNotice(
        instance_id=event.instance_id(),
        kind=NoticeKind.CAPACITY_RESERVATION_END,
        noticed_at_s=event.at_s,
        deadline_s=event.at_s + NOTICE_S if ends_at_s is None else ends_at_s,
    )
    return Told(notices=(notice,))
