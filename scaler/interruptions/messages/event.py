"""The envelope that kinds are parsed from, and the ways a message is wrapped on its way to a queue.

EventBridge sends its envelope bare. SNS wraps whatever it carries in `{"Message": "<text>"}`. A lifecycle hook with a
notification target sends the fields of `detail` on the top level, without source or kind.
Source of the shapes: research "autoscalers" section 5.1; the documentation of capacity blocks writes `detail_type`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.interruptions.messages.parsed import Wrong
from scaler.interruptions.messages.times import time_s

_WRAPPINGS = 3
"""SNS within SNS is already more than anybody builds."""
_INSTANCE = re.compile(r"(?:^|[/:])(i-[0-9a-z]{1,40})$")
_RESERVATION = re.compile(r"(?:^|[/:])(cr-[0-9a-z]{1,40})$")
_AHEAD_S = 300.0
"""An event from further in the future than clocks differ has no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `at_s` is its own time on the cloud's clock, or else when it was sent."""

    source: str
    kind: str
    at_s: float
    resources: tuple[str, ...]
    detail: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A text of the detail; empty where it has none."""
        value = self.detail.get(key)
        return value if isinstance(value, str) else ""

    def instance_id(self, key: str = "instance-id") -> str:
        """The instance it is about: by the detail, or else by the resources, whatever form their ARNs have.

        Raises:
            Wrong: it names none, or several.
        """
        found = instance_ids((self.detail.get(key),)) or instance_ids(self.resources)
        if len(found) != 1:
            raise Wrong(f"it names {len(found)} instances")
        return found[0]

    def reservation_id(self) -> str:
        """The capacity reservation it is about; `Wrong` where it names none, or several."""
        found = _ids(_RESERVATION, (self.detail.get("capacity-reservation-id"),)) or _ids(_RESERVATION, self.resources)
        if len(found) != 1:
            raise Wrong(f"it names {len(found)} capacity reservations")
        return found[0]


def instance_ids(values: Iterable[object]) -> tuple[str, ...]:
    """The instance ids at the ends of ids and ARNs, each once, in order; what is neither is left out."""
    return _ids(_INSTANCE, values)


def _ids(pattern: re.Pattern[str], values: Iterable[object]) -> tuple[str, ...]:
    matches = (pattern.search(value.strip()) for value in values if isinstance(value, str))
    return tuple(dict.fromkeys(match.group(1) for match in matches if match))


def unwrap(body: bytes | str) -> Mapping[str, Any]:
    """The innermost JSON object; `Wrong` where there is none."""
    for _ in range(_WRAPPINGS):
        fields = _object(body)
        inner = fields.get("Message")
        if not isinstance(inner, str) or "detail" in fields or fields.get("Type", "Notification") != "Notification":
            return fields
        body = inner
    raise Wrong("it is wrapped too often")


def event_of(fields: Mapping[str, Any], sent_at_s: float) -> Event:
    """The event in an EventBridge envelope; `Wrong` where it is none."""
    source, kind, detail = (
        fields.get("source"),
        fields.get("detail-type", fields.get("detail_type")),
        fields.get("detail"),
    )
    if not isinstance(source, str) or not isinstance(kind, str) or not isinstance(detail, dict):
        raise Wrong("it has no source, kind or detail")
    resources = fields.get("resources")
    texts = tuple(each for each in resources if isinstance(each, str)) if isinstance(resources, list) else ()
    at_s = event_time_s(fields.get("time"), sent_at_s)
    return Event(source=source, kind=kind, at_s=at_s, resources=texts, detail=detail)


def event_time_s(value: object, sent_at_s: float) -> float:
    """The event's own time, or when it was sent where that is missing, illegible or in the future."""
    at_s = time_s(value)
    return sent_at_s if at_s is None or at_s > sent_at_s + _AHEAD_S else at_s


def _object(body: bytes | str) -> Mapping[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"it is no JSON: {type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise Wrong(f"it is a JSON {type(fields).__name__}, no object")
    return fields
