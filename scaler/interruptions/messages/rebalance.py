"""A Spot Instance is at elevated risk: only a hint, without a deadline, and forgotten after a while."""

from scaler.interruptions.messages.event import Event
from scaler.interruptions.messages.parsed import Told
from scaler.model.interruption import InterruptionNotice, NoticeKind


def parse(event: Event) -> Told:
    """The hint; `Wrong` where no instance is named."""
    kind = NoticeKind.REBALANCE_RECOMMENDATION
    notice = InterruptionNotice(instance_id=event.instance_id(), kind=kind, noticed_at_s=event.at_s, deadline_s=None)
    return Told(notices=(notice,))
