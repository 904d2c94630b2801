"""What became of each command: counted, logged, and kept for `explain`, all in one place."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, assert_never

import structlog

from scaler.model.clock import Clock
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    ReleaseReplicaWork,
    TerminateReplica,
    UndrainReplica,
)
from scaler.telemetry.metrics import Metrics

log = structlog.get_logger()


class Outcome(StrEnum):
    """Bounded, so that it may label a metric."""

    DONE = "done"
    ALREADY = "already"
    """It had been done before."""
    WAITING = "waiting"
    """Remembered until it can be done."""
    REFUSED = "refused"
    """The provider said no."""
    LOST = "lost"
    """It was done, and what it brought went before anybody saw it."""
    PRECONDITION = "precondition"
    """The world has moved on since it was decided; nothing was done."""
    UNAVAILABLE = "unavailable"
    """Nobody answered; nothing is known."""
    BROKEN = "broken"
    """An adapter failed in a way that it should not."""


class CommandKind(StrEnum):
    """The commands by a short name."""

    LAUNCH = "launch"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    RELEASE = "release"
    TERMINATE = "terminate"
    DETACH = "detach"


def kind_of(command: Command) -> CommandKind:
    """The short name of a command."""
    match command:
        case LaunchReplica():
            return CommandKind.LAUNCH
        case DrainReplica():
            return CommandKind.DRAIN
        case UndrainReplica():
            return CommandKind.UNDRAIN
        case ReleaseReplicaWork():
            return CommandKind.RELEASE
        case TerminateReplica():
            return CommandKind.TERMINATE
        case DetachReplica():
            return CommandKind.DETACH
        case _:
            assert_never(command)


def subject_of(command: Command) -> str:
    """What a command is about: its replica, or the token of the launch."""
    return command.token if isinstance(command, LaunchReplica) else command.replica_id


class Outcomes:
    """Takes outcomes as they come, hands them to the journal once a tick."""

    def __init__(
        self, clock: Clock, metrics: Metrics, told: Callable[[Command, Outcome, str], None] | None = None
    ) -> None:
        """`told` hears of every outcome too."""
        self._told = told
        self._clock = clock
        self._metrics = metrics
        self._kept: list[tuple[int, Mapping[str, Any]]] = []

    def record(self, command: Command, seq: int, outcome: Outcome, message: str = "") -> None:
        """Record what became of a command of decision `seq`."""
        kind, subject = kind_of(command), subject_of(command)
        self._metrics.commands.labels(kind.value, outcome.value).inc()
        write = log.info if outcome in (Outcome.DONE, Outcome.ALREADY, Outcome.WAITING) else log.warning
        write(
            "command",
            kind=kind.value,
            outcome=outcome.value,
            replica=subject,
            pool=command.pool,
            reason=command.reason.code.value,
            decision=seq,
            detail=message,
        )
        body = {
            "kind": kind.value,
            "subject": subject,
            "outcome": outcome.value,
            "message": message,
            "at_s": self._clock.now_s(),
        }
        self._kept.append((seq, body))
        if self._told is not None:
            self._told(command, outcome, message)

    def take(self) -> tuple[tuple[int, Mapping[str, Any]], ...]:
        """Outcomes since the last call."""
        kept, self._kept = tuple(self._kept), []
        return kept
