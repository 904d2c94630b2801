"""What a job asks of its ledger, and what trainer and workers report to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class OnStale(StrEnum):
    """What happens to a group that is too stale to be trained on."""

    DROP = "drop"
    REQUEUE = "requeue"
    """Drawn again from its prompt, under a new group epoch: continuing would be stale again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The rules of one job's ledger.

    Admission (design section 4) lets
    `min(max_concurrent - running, (max_staleness + 1) * batch * batches_per_version - buffered - running)`
    more units be leased, where batch = batch_groups * group_size and `buffered` is committed and neither consumed
    nor dropped. Sources: AReaL's staleness manager, without its ever-growing count of accepted samples.
    """

    group_size: int
    batch_groups: int
    batches_per_version: int = 1
    max_staleness: int = 1
    on_stale: OnStale = OnStale.DROP
    max_concurrent: int = 4096
    unit_failure_limit: int = 3
    """The unit's own failures until it is dead-lettered."""
    group_redraw_limit: int = 1
    """How often a group with a dead-lettered unit is drawn again before it is dropped; staleness does not count."""
    backoff_initial_s: float = 1.0
    backoff_max_s: float = 30.0
    """Wait before a unit returned for INFRASTRUCTURE or UNIT_FAILURE is leased again: doubles per return in a row."""
    history_events: int = 1_000_000
    """Events kept for `headrace audit`; older ones are compacted and their watermark is kept."""

    @property
    def batch_samples(self) -> int:
        """Samples in one batch."""
        return self.batch_groups * self.group_size

    @property
    def admitted_samples(self) -> int:
        """The most that buffer and flight together may hold: what is admitted can still be trained on in time."""
        return (self.max_staleness + 1) * self.batch_samples * self.batches_per_version


class Phase(StrEnum):
    """The phases of a policy iteration, as the trainer sees them."""

    BUFFER_WAIT = "buffer_wait"
    REWARD = "reward"
    TRAIN = "train"
    CHECKPOINT = "checkpoint"
    PUBLISH = "publish"
    REDISTRIBUTION = "redistribution"
    """From publication until all ready workers have the version."""
    GENERATION = "generation"
    """Of a batch: the longest generation among its samples, by the last holder of each; other iterations run beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerReport:
    """What the trainer says of itself after every update."""

    step: int
    unblocked_samples_per_s: float
    """Samples a second it would take if it never waited: batch / (iteration - buffer wait)."""
    phase: Phase
    phase_s: Mapping[Phase, float] = field(default_factory=dict)
    """Seconds spent in each phase of the last iteration."""
    reward_mean: float | None = None
    wait_ratio: float | None = None
    """Buffer wait over wall time since its start, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Who a worker is: how an instance's notice finds its worker."""

    worker: str
    """Unique among live workers; a new process of the same name supersedes the old one."""
    replica_id: str
    instance_id: str = ""
    pod_uid: str = ""
    node_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """What a worker says of itself with every heartbeat. Counters are since its start."""

    ready: bool
    """Healthy and at the minimum version."""
    version: int | None = None
    capacity_units: int = 0
    running_units: int = 0
    unpublished_tokens: int = 0
    """Generated and not yet in the ledger: what a kill would lose now."""
    tokens_generated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainMark:
    """The order to leave: `deadline_s` is on the store's clock; `epoch` is the controller's leader epoch."""

    deadline_s: float
    reason: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A registered worker as the ledger knows it."""

    identity: WorkerIdentity
    incarnation: int
    registered_at_s: float
    last_seen_at_s: float
    status: WorkerStatus
    drain: DrainMark | None
    leases: int
    committed_samples: int
    """Since registration."""
    gone: bool = False
    """It said goodbye (`release_worker`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens by fate, cumulative, as far as the ledger can see.

    What a killed worker had generated and not published is known to nobody but its own counter, and is in none of these.
    """

    committed: int = 0
    """In committed samples."""
    salvaged: int = 0
    """Published by a holder that lost its lease and handed to the next holder; each token counts once a hand-over."""
    discarded: int = 0
    """Published or committed and thrown away: restarts, staleness, dead letters, filtering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStats:
    """One consistent reading of a job's ledger. Counts of units unless the name says otherwise."""

    at_s: float
    """Store clock."""
    store_epoch: int
    pending: int
    """Neither leased nor committed."""
    backing_off: int
    """Part of `pending` that waits for its back-off."""
    running: int
    buffered: int
    """Committed, neither acknowledged nor dropped: what admission counts, a batch in training included.

    `buffer_depth` leaves such a batch out."""
    ready_groups: int
    """Complete groups in the buffer: buffer depth in groups."""
    admissible: int
    """Units that could be leased now by the admission rule."""
    consumed: int
    """Handed out in batches and not rejected since; acknowledged or not."""
    accepted: int
    """Consumed and trained on (acknowledged)."""
    dead_lettered: int
    dropped: Mapping[str, Mapping[str, int]]
    """Samples dropped, by reason and by length bucket (upper bound of generated tokens, powers of two, as a string)."""
    tokens: TokenCounts
    interruptions_salvaged: int
    """Hand-overs that carried at least one token."""
    oldest_ready_age_s: float | None
    """Age of the oldest complete group: queue age."""
    version: int | None
    """Newest published policy version."""
    trainer_epoch: int
    trainer: TrainerReport | None
    trainer_at_s: float | None
    settings: JobSettings

    @property
    def buffer_depth(self) -> int:
        """Samples that wait to be consumed: committed, in no batch, not dropped."""
        return self.buffered - (self.consumed - self.accepted)
