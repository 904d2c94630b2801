"""A capacity block ends: EC2 begins to end its instances 30 minutes before, and says so 10 minutes earlier.

The message names the reservation, not the instances. Source: EC2 user guide, "Monitor Capacity Blocks using EventBridge".
"""

from scaler.interruptions.messages.event import Event
from scaler.interruptions.messages.parsed import BlockEnding
from scaler.interruptions.messages.times import time_s

TAKEN_BEFORE_END_S = 1800.0
WARNING_S = 600.0


def parse(event: Event) -> BlockEnding:
    """The end of the block; `Wrong` where no reservation is named."""
    end_s = time_s(event.detail.get("end-date"))
    deadline_s = event.at_s + WARNING_S if end_s is None else end_s - TAKEN_BEFORE_END_S
    return BlockEnding(reservation_id=event.reservation_id(), noticed_at_s=event.at_s, deadline_s=deadline_s)
