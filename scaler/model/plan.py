"""Commands, the plan that carries them, and the bounded reasons that explain them (design section 3, rule 6)."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from scaler.model.interruption import InterruptionNotice


class ReasonCode(StrEnum):
    """Why; bounded, so that it may label a metric."""

    SIZE_UP = "size_up"
    SIZE_DOWN = "size_down"
    REPLACE_INTERRUPTED = "replace_interrupted"
    REPLACE_FAILED_LAUNCH = "replace_failed_launch"
    NOTICE = "notice"
    DRAINED = "drained"
    DEADLINE_PASSED = "deadline_passed"
    INSTANCE_LOST = "instance_lost"
    REAP = "reap"
    LEAVES_GROUP = "leaves_group"
    STEADY = "steady"
    HOLD_SIGNAL_MISSING = "hold_signal_missing"
    HOLD_SIGNAL_STALE = "hold_signal_stale"
    HOLD_SIGNAL_INVALID = "hold_signal_invalid"
    HOLD_NOT_SYNCED = "hold_not_synced"
    HOLD_PARTIAL_LIST = "hold_partial_list"
    HOLD_POOL_REFUSED = "hold_pool_refused"
    PAUSED = "paused"
    DRY_RUN = "dry_run"


class ClampCode(StrEnum):
    """Which guard rail changed a wish; bounded likewise."""

    FLOOR = "floor"
    CEILING = "ceiling"
    SPEND = "spend"
    STEP_UP = "step_up"
    STEP_DOWN = "step_down"
    COOLDOWN_UP = "cooldown_up"
    COOLDOWN_DOWN = "cooldown_down"
    DISRUPTION_BUDGET = "disruption_budget"
    NOT_FRESH_LONG_ENOUGH = "not_fresh_long_enough"
    HOLD = "hold"
    NO_OFFERING = "no_offering"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp:
    """A guard rail that changed a number: `wanted` became `allowed`."""

    code: ClampCode
    wanted: float
    allowed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a command or a size: a bounded code, one sentence for a person, the inputs that mattered."""

    code: ReasonCode
    message: str
    inputs: tuple[tuple[str, float], ...] = ()
    clamps: tuple[Clamp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReplica:
    """One replica more. `token` makes it idempotent: the same token never launches twice."""

    token: str
    stage: str
    pool: str
    offering_id: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReplica:
    """Hand its work over until `deadline_s` (controller's clock). `notice` is set where the cloud made us.

    The drain's mark carries `reason.code` as its reason: `ReplicaView.drain_reason` brings it back.
    """

    stage: str
    pool: str
    replica_id: str
    worker: str | None
    instance_ids: tuple[str, ...]
    deadline_s: float
    reason: Reason
    notice: InterruptionNotice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainReplica:
    """Take back a drain of our own choice: the replica is needed after all and has not handed over yet."""

    stage: str
    pool: str
    replica_id: str
    worker: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReplicaWork:
    """Past its deadline, or gone: the controller gives its leases back itself."""

    stage: str
    pool: str
    replica_id: str
    worker: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateReplica:
    """End exactly these instances. The actor re-checks that they are ours, drained or never ready, and still the same.

    No instance ids: the launch was asked for and nothing came of it; the request is to be forgotten.
    """

    stage: str
    pool: str
    replica_id: str
    instance_ids: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachReplica:
    """Let exactly these instances, which the cloud takes and whose work is handed over, leave their group for good.

    They run on until the cloud takes them; the group's count falls with them, so that it does not replace them itself.
    """

    stage: str
    pool: str
    replica_id: str
    instance_ids: tuple[str, ...]
    reason: Reason


Command: TypeAlias = (
    LaunchReplica | DrainReplica | UndrainReplica | ReleaseReplicaWork | TerminateReplica | DetachReplica
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """What a stage remembers between decisions; small, and rebuilt from the world after a restart."""

    last_up_at_s: float | None = None
    last_down_at_s: float | None = None
    fresh_since_s: float | None = None
    desired: int | None = None
    """The size last decided, after guard rails: what a lost replica is refilled up to."""
    observed: int | None = None
    """Replicas with an instance that counted as capacity after the last plan: fewer now means that some were lost."""
    policy: tuple[tuple[str, float], ...] = ()
    """The sizing policy's own numbers, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The engine's memory: one entry a stage, and the counter behind launch tokens."""

    stages: tuple[tuple[str, StageMemory], ...] = ()
    next_intent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """The three sets as numbers, and why."""

    stage: str
    desired: int
    requested: int
    """Counting as capacity after this plan."""
    observed: int
    ready: int
    reason: Reason
    policy: str
    spend_usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision as a value."""

    commands: tuple[Command, ...]
    look_again_in_s: float
    stages: tuple[StagePlan, ...]
    memory: Memory = field(default_factory=Memory)
