"""What the worker's machine hears and what it says: events in, instructions out, all plain values.

Every event carries `at_s`, the agent's monotonic clock, on which all deadlines here are reckoned. A generation is
known by its `request_id`, which names unit and fence, so that what an earlier hold of a unit still says is told apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from rollout_worker.engines.base import GenerateRequest, TokenChunk
from scaler.ledger.contract import Beat, Commit, CommitOutcome, Control, LeaseReply, Release
from scaler.model.job import WorkerStatus
from scaler.model.work import ReleaseReason


class DrainSource(StrEnum):
    """Who told the worker to leave."""

    SIGNAL = "signal"
    NOTICE = "notice"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Register:
    """Make the worker known."""


@dataclass(frozen=True, slots=True)
class AskLeases:
    """Ask for `n` units."""

    n: int


@dataclass(frozen=True, slots=True)
class SendBeats:
    """Keep all leases, publish what is new."""

    beats: tuple[Beat, ...]
    status: WorkerStatus


@dataclass(frozen=True, slots=True)
class SendCommits:
    """Hand samples in."""

    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class SendReleases:
    """Give leases back."""

    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True)
class SayGoodbye:
    """Holds nothing any more and takes nothing: gone."""


LedgerCall: TypeAlias = Register | AskLeases | SendBeats | SendCommits | SendReleases | SayGoodbye
"""An instruction for the ledger. One is under way at a time, and every one of them may be repeated."""


@dataclass(frozen=True, slots=True)
class Generate:
    """Have the engine generate."""

    request: GenerateRequest


@dataclass(frozen=True, slots=True)
class Abort:
    """Have the engine stop."""

    request_id: str


@dataclass(frozen=True, slots=True)
class LookForWeights:
    """A newer version has been published: do not wait for the next look."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Log a constant event name with keys."""

    event: str
    data: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process; `handed_over` is False where the ledger stayed away until the deadline."""

    handed_over: bool


Instruction: TypeAlias = LedgerCall | Generate | Abort | LookForWeights | Tell | Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at `at_s`."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """Time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIdle(Event):
    """The ledger's thread is free: which call is next?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(Event):
    """The ledger knows the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesGranted(Event):
    """Answer to `AskLeases`, which was sent at `sent_at_s`."""

    sent_at_s: float
    reply: LeaseReply


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatsAnswered(Event):
    """Answer to `SendBeats`, which was sent at `sent_at_s`."""

    sent_at_s: float
    call: SendBeats
    control: Control


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsAnswered(Event):
    """Answer to `SendCommits`."""

    call: SendCommits
    outcomes: tuple[CommitOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesAnswered(Event):
    """Answer to `SendReleases`; an old fence needs no release either."""

    call: SendReleases


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodbyeAnswered(Event):
    """Answer to `SayGoodbye`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkReceived(Event):
    """The engine generated tokens."""

    request_id: str
    chunk: TokenChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFailed(Event):
    """A generation ended without a finish reason and without being aborted by us."""

    request_id: str
    reason: ReleaseReason
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSeen(Event):
    """The engine's health and policy version."""

    healthy: bool
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrdered(Event):
    """Leave by `deadline_at_s`, by signal or notice; neither is ever taken back."""

    source: DrainSource
    deadline_at_s: float
