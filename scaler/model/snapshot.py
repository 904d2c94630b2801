"""The world as one frozen value a tick: all that a decision may look at (design section 3, rule 2)."""

from dataclasses import dataclass

from scaler.model.capacity import Offering, ReplicaPhase
from scaler.model.interruption import InterruptionNotice
from scaler.model.job import Phase
from scaler.model.reading import MISSING, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What drives the size of a stage. Rates are samples a second unless the name says otherwise."""

    buffered_samples: Reading = MISSING
    """Buffer depth: committed, neither consumed nor dropped."""
    ready_groups: Reading = MISSING
    pending_units: Reading = MISSING
    running_units: Reading = MISSING
    unblocked_rate_per_s: Reading = MISSING
    """What the consumer would take if it never waited: a starved trainer's own rate would settle the loop in starvation."""
    goodput_per_replica_per_s: Reading = MISSING
    """Accepted samples a second of one ready replica, averaged over the ready ones."""
    acceptance_ratio: Reading = MISSING
    """Accepted over committed samples, 0 to 1."""
    queue_age_s: Reading = MISSING
    policy_version: Reading = MISSING
    batch_samples: int = 1
    batches_per_version: int = 1
    max_staleness: int = 0
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingView:
    """An offering and what is known of its availability now."""

    offering: Offering
    refused_at_s: float | None = None
    """Last refusal for capacity since the last success."""
    refusals: int = 0
    """Refusals in a row."""
    refused_because: str = ""
    """The provider's words for the last one, where it had any."""
    reclaiming_at_s: float | None = None
    """Last interruption notice or loss seen there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One worker replica, as observed."""

    replica_id: str
    pool: str
    offering_id: str
    phase: ReplicaPhase
    instance_ids: tuple[str, ...] = ()
    worker: str | None = None
    """Its name in the ledger, once registered."""
    launched_at_s: float | None = None
    ready_at_s: float | None = None
    running_units: int = 0
    unpublished_tokens: int = 0
    """What its loss would waste now: victims with least go first."""
    version: int | None = None
    notice: InterruptionNotice | None = None
    drain_deadline_s: float | None = None
    drain_reason: str | None = None
    launch_token: str | None = None
    """The intent that made it."""
    attached: bool = True
    """Its group still counts it, and would replace it."""
    comes_by_itself: bool = False
    """A replacement that others launch and that is not there yet: it counts, and is nobody's to withdraw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool: its offerings, and launches asked for that no instance answers yet."""

    name: str
    offerings: tuple[OfferingView, ...]
    listed_at_s: float | None
    """When its instances were last listed completely; None means never: nothing is decided on a partial list."""
    refused_reason: str | None = None
    """Why this pool may not be acted on at all (another owner, wrong settings)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage: signals, pools, replicas (every phase, noticed ones too)."""

    name: str
    signals: Signals
    pools: tuple[PoolView, ...]
    replicas: tuple[ReplicaView, ...]
    workers_since_s: float | None = None
    """Since when the ledger could be asked for workers without a gap; `now_s` while it cannot. None: always.

    A launch is not given up for the time in which nobody could have seen its worker, nor the worker have registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything known at `now_s` (controller's clock)."""

    now_s: float
    fleet: str
    stages: tuple[StageView, ...]
    leader_epoch: int = 0
    synced: bool = True
    """State has been rebuilt from ledger and pools; before that nothing is decided."""
