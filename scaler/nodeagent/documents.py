"""The documents of instance metadata as notices. Pure; times stay the cloud's, and None where a document names none.

A retirement or a stop comes from failing hardware, and counts at once. A reboot or maintenance is planned for a good machine:
the controller knows of it from elsewhere, and the node hears of it only a while before.
Source of the shapes: research "autoscalers" section 5.2.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.interruptions.messages.spot import IMMEDIATE_ACTIONS, NOTICE_S
from scaler.interruptions.messages.times import time_s
from scaler.model.interruption import NoticeKind

PLANNED_AHEAD_S = 900.0
"""So long before a planned reboot or maintenance its node is told."""
_AT_ONCE = frozenset({"instance-retirement", "instance-stop"})
_OVER = frozenset({"completed", "canceled", "cancelled"})
_GOING = frozenset({"Terminated", "Warmed:Terminated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A notice in the making: `at_s` is when it was given, `deadline_s` when the instance goes (cloud's clock)."""

    at_s: float | None = None
    deadline_s: float | None = None
    grace_s: float = NOTICE_S
    """From first sight to the end, where there is no deadline."""


def spot_action(text: str, now_s: float) -> Finding | None:
    """`spot/instance-action`; hibernation begins at once, whatever its time. `ValueError` where it cannot be read."""
    del now_s
    fields = _object(text)
    if not isinstance(fields.get("action"), str):
        raise ValueError(f"no action in {text[:200]!r}")
    if fields["action"] in IMMEDIATE_ACTIONS:
        return Finding(grace_s=0.0)
    return Finding(deadline_s=time_s(fields.get("time")))


def rebalance(text: str, now_s: float) -> Finding | None:
    """`events/recommendations/rebalance`. `ValueError` where it cannot be read."""
    del now_s
    return Finding(at_s=time_s(_object(text).get("noticeTime")))


def scheduled(text: str, now_s: float) -> Finding | None:
    """`events/maintenance/scheduled`: the first event that counts now. `ValueError` where it cannot be read."""
    events = _json(text)
    if not isinstance(events, list):
        raise ValueError(f"no list of events in {text[:200]!r}")
    due = [_not_before_s(event) for event in events if isinstance(event, dict) and _counts(event, now_s)]
    if not due:
        return None
    return Finding(deadline_s=min((at_s for at_s in due if at_s is not None), default=None))


def lifecycle_state(text: str, now_s: float) -> Finding | None:
    """`autoscaling/target-lifecycle-state`: whether the group is ending the instance."""
    del now_s
    return Finding() if text.strip() in _GOING else None


DOCUMENTS: Mapping[NoticeKind, tuple[str, Callable[[str, float], Finding | None]]] = {
    NoticeKind.SPOT_INTERRUPTION: ("/latest/meta-data/spot/instance-action", spot_action),
    NoticeKind.LIFECYCLE_HOOK: ("/latest/meta-data/autoscaling/target-lifecycle-state", lifecycle_state),
    NoticeKind.SCHEDULED_CHANGE: ("/latest/meta-data/events/maintenance/scheduled", scheduled),
    NoticeKind.REBALANCE_RECOMMENDATION: ("/latest/meta-data/events/recommendations/rebalance", rebalance),
}
"""Kind -> the path of its document and who reads it, given the text and now (cloud's clock); the most urgent first."""


def _counts(event: Mapping[str, Any], now_s: float) -> bool:
    if str(event.get("State", "")).lower() in _OVER or str(event.get("Description", "")).lower().startswith(
        ("[completed]", "[canceled]", "[cancelled]")
    ):
        return False
    not_before_s = _not_before_s(event)
    return str(event.get("Code")) in _AT_ONCE or not_before_s is None or not_before_s - now_s <= PLANNED_AHEAD_S


def _not_before_s(event: Mapping[str, Any]) -> float | None:
    return time_s(event.get("NotBefore"))


def _object(text: str) -> Mapping[str, Any]:
    fields = _json(text)
    if not isinstance(fields, dict):
        raise ValueError(f"no object in {text[:200]!r}")
    return fields


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(f"nested too deep: {text[:50]!r}") from error
