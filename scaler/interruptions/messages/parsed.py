"""What a message turned out to be."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from scaler.model.interruption import InterruptionNotice


class IgnoredReason(StrEnum):
    """Why a well-formed message asks for nothing; bounded, for logs and counters."""

    HARMLESS_STATE = "harmless_state"
    OTHER_SERVICE = "other_service"
    NOT_SCHEDULED = "not_scheduled"
    """A Health event that announces no change of an instance."""
    NO_INSTANCE = "no_instance"
    """A scheduled change of something else than instances, a dedicated host for example."""
    OVER = "over"
    """A Health event that is closed."""
    DELIVERED = "delivered"
    """Capacity came, or a reclamation is done."""
    LAUNCH = "launch"
    SCALING_RESULT = "scaling_result"
    SUBSCRIPTION = "subscription"
    UNKNOWN_KIND = "unknown_kind"
    """AWS's form, but a kind that nobody here acts on: a rule that matches too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleHook:
    """What it takes to let a terminating instance of an Auto Scaling group go on."""

    instance_id: str
    group: str
    hook: str
    token: str
    """Empty where the message has none: the instance's id does as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Notices, of one kind; several instances where the message names several."""

    notices: tuple[InterruptionNotice, ...]
    hook: LifecycleHook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEnding:
    """A capacity block ends, and with it whatever instances run in it."""

    reservation_id: str
    noticed_at_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Nothing to do."""

    reason: IgnoredReason


@dataclass(frozen=True, slots=True, kw_only=True)
class TestNotification:
    """Auto Scaling's proof that a hook reaches its target."""

    __test__ = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """No message that can be acted on. `reason` is short and printable."""

    reason: str


Parsed: TypeAlias = Told | BlockEnding | Ignored | TestNotification | Malformed


class Wrong(ValueError):
    """Raised inside this package only: what makes a message malformed."""
