"""AWS Health: a change that is scheduled for instances, for one or for several, page by page.

Only EC2's scheduled changes count, whatever their code: retirement, stop, reboot, maintenance. The deadline is the start
of the change; where that is empty or odd there is none. A page stands for itself: notices are keyed by instance and kind,
so pages and backup copies that name an instance again say nothing new.
"""

from typing import Any

from scaler.interruptions.messages.event import Event, instance_ids
from scaler.interruptions.messages.parsed import Ignored, IgnoredReason, Told, Wrong
from scaler.interruptions.messages.times import time_s
from scaler.model.interruption import InterruptionNotice, NoticeKind


def parse(event: Event) -> Told | Ignored:
    """Notices of all instances affected; `Wrong` where service, category or entities cannot be read."""
    reason = _ignored(event)
    if reason is not None:
        return Ignored(reason=reason)
    affected = _affected(event)
    if not affected:
        return Ignored(reason=IgnoredReason.NO_INSTANCE)
    deadline_s = time_s(event.detail.get("startTime"))
    notices = tuple(
        InterruptionNotice(
            instance_id=instance_id,
            kind=NoticeKind.SCHEDULED_CHANGE,
            noticed_at_s=event.at_s,
            deadline_s=deadline_s,
        )
        for instance_id in affected
    )
    return Told(notices=notices)


def _ignored(event: Event) -> IgnoredReason | None:
    service, category = event.text("service"), event.text("eventTypeCategory")
    if not service or not category:
        raise Wrong("it has no service or category")
    if service.upper() != "EC2":
        return IgnoredReason.OTHER_SERVICE
    if category.lower() != "scheduledchange":
        return IgnoredReason.NOT_SCHEDULED
    if event.text("statusCode").lower() == "closed":
        return IgnoredReason.OVER
    return None


def _affected(event: Event) -> tuple[str, ...]:
    entities = event.detail.get("affectedEntities", [])
    if not isinstance(entities, list):
        raise Wrong("its affected entities are no list")
    named = instance_ids(_value(entity) for entity in entities)
    return named if entities else instance_ids(event.resources)


def _value(entity: Any) -> object:
    return entity.get("entityValue") if isinstance(entity, dict) else entity
