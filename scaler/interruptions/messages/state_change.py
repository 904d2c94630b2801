"""An instance stops or has stopped: nothing can be handed over any more, so its deadline is the event's own time."""

from scaler.interruptions.messages.event import Event
from scaler.interruptions.messages.parsed import Ignored, IgnoredReason, Told, Wrong
from scaler.model.interruption import InterruptionNotice, NoticeKind

ENDING = frozenset({"stopping", "stopped", "shutting-down", "terminated"})
HARMLESS = frozenset({"pending", "running"})


def parse(event: Event) -> Told | Ignored:
    """The notice, where the state is an end; `Wrong` where state or instance cannot be read."""
    state = event.text("state").strip().lower()
    if state in HARMLESS:
        return Ignored(reason=IgnoredReason.HARMLESS_STATE)
    if state not in ENDING:
        raise Wrong("its state is none that an instance has")
    notice = InterruptionNotice(
        instance_id=event.instance_id(),
        kind=NoticeKind.STATE_CHANGE,
        noticed_at_s=event.at_s,
        deadline_s=event.at_s,
    )
    return Told(notices=(notice,))
