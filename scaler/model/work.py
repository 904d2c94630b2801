"""Work units, leases, progress, samples and batches: what the ledger keeps (design section 4).

Per-token sequences of one object are always of equal length. Token positions count generated tokens only, from 0;
the prompt is not part of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Resume(StrEnum):
    """What continuing means for a unit that lost its worker."""

    TOKEN = "token"
    """Continue from the last published token."""
    TURN = "turn"
    """Continue from the last finished turn."""
    RESTART = "restart"
    """Start from the prompt: its environment does not survive."""


class FinishReason(StrEnum):
    """Why generation ended. A bound that was reached is a result, not a failure."""

    STOP = "stop"
    TOKEN_BOUND = "token_bound"
    TIME_BOUND = "time_bound"


class ReleaseReason(StrEnum):
    """Why a lease ended without a sample."""

    DRAIN = "drain"
    """The worker is going; costs no retry."""
    INFRASTRUCTURE = "infrastructure"
    """Engine or node trouble; costs no retry, comes back after a back-off."""
    UNIT_FAILURE = "unit_failure"
    """The unit's own failure; counts to its limit."""
    ABANDONED = "abandoned"
    """The ledger said that the unit can no longer be used."""
    WORKER_LOST = "worker_lost"
    """Released by the controller for a worker past its deadline."""
    EXPIRED = "expired"
    """The lease ran out."""
    SUPERSEDED = "superseded"
    """The worker came back as a new process, or the store's epoch was raised."""


class DropReason(StrEnum):
    """Why a group will never be trained on."""

    STALE = "stale"
    """Older than the staleness bound."""
    FILTERED = "filtered"
    """The trainer had no use for it, for example no spread in rewards."""
    DEAD_LETTERED = "dead_lettered"
    """A unit of it failed for good."""


@dataclass(frozen=True, slots=True)
class FencingToken:
    """Orders the holders of a unit: (store epoch, counter), compared as a pair. A higher one voids all lower ones."""

    store_epoch: int
    counter: int

    def __lt__(self, other: "FencingToken") -> bool:
        return (self.store_epoch, self.counter) < (other.store_epoch, other.counter)


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Generated tokens [start, end) that came from one policy version."""

    start: int
    end: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnit:
    """One bounded piece of rollout work.

    `unit_id` is `unit_id_of(group_id, group_epoch, sample_index)`, so that a re-drawn group has new unit ids.
    `payload` is the caller's own (the reward's ground truth, a task name); the ledger only carries it.
    """

    group_id: str
    group_epoch: int = 0
    sample_index: int
    group_size: int
    prompt: tuple[int, ...]
    seed: int
    max_tokens: int
    time_bound_s: float
    resume: Resume = Resume.TOKEN
    payload: Mapping[str, str] = field(default_factory=dict)

    @property
    def unit_id(self) -> str:
        """The unit's identity over its whole life."""
        return unit_id_of(self.group_id, self.group_epoch, self.sample_index)


def unit_id_of(group_id: str, group_epoch: int, sample_index: int) -> str:
    """The id of a unit: its group, the epoch of that group's draw, its place in the group."""
    return f"{group_id}.{group_epoch}/{sample_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The journal of a unit in flight: every token published so far."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Log-probability of each token under the policy that sampled it (nats)."""
    spans: tuple[VersionSpan, ...] = ()
    """Contiguous, in order, covering [0, len(tokens))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressDelta:
    """Tokens from position `start` on. What is stored already is ignored, so that a repeat is harmless; a gap is refused."""

    start: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[VersionSpan, ...]
    """Absolute positions, covering [start, start + len(tokens))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's time-limited hold on a unit. `deadline_s` is on the store's clock."""

    unit: WorkUnit
    owner: str
    fencing_token: FencingToken
    attempt: int
    """1 for the first holder; every further holder adds one, whatever the reason."""
    deadline_s: float
    progress: Progress = Progress()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The committed result of a unit."""

    unit_id: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[VersionSpan, ...]
    finish_reason: FinishReason
    mask: tuple[int, ...] | None = None
    """1 where a token is trained on; None means everywhere (tool output is 0)."""
    reward: float | None = None
    """None where the trainer, or a reward stage, scores it later."""
    generation_s: float | None = None
    """From its last holder's lease to its last token; None where the worker does not say."""

    @property
    def oldest_version(self) -> int:
        """The oldest policy version in the sample: what staleness counts from."""
        return min([span.version for span in self.spans], default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSamples:
    """A complete group: its units and their samples, both ordered by sample index."""

    group_id: str
    group_epoch: int
    units: tuple[WorkUnit, ...]
    samples: tuple[Sample, ...]
    attempts: tuple[int, ...]
    """Holders each unit had until it was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Complete groups handed to one trainer. It comes again, the same, until it is acknowledged."""

    batch_id: int
    """Grows by one with each new batch of a job."""
    groups: tuple[GroupSamples, ...]
    redelivered: bool = False


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A published policy: `step` orders, `digest` (sha256, hex) proves."""

    step: int
    digest: str
