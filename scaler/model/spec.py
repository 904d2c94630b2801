"""The fleet's specification as plain facts: what `scaler.config` makes of the YAML, and all that `decide` sees of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scaler.model.capacity import Offering
from scaler.model.trainers import TrainerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A policy by its registered name, with the parameters object of that policy's own `Params` dataclass."""

    name: str
    params: object


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRails:
    """The last word over every policy."""

    min_replicas: int
    max_replicas: int
    max_spend_usd_per_h: float
    max_step_up: int = 1_000_000
    max_step_down: int = 1_000_000
    """Replicas a decision may add or remove at most."""
    cooldown_up_s: float = 0.0
    cooldown_down_s: float = 300.0
    """Wait after the last change up or down before the fleet is lowered (up: raised) again."""
    disruption_budget_ratio: float = 0.1
    """Share of the observed replicas, rounded up, that may be draining by our own choice at once. Notices do not count."""
    lower_after_fresh_s: float = 1800.0
    """A new controller or fleet lowers nothing before its signals have been fresh for this long."""
    signal_max_age_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """Who does what when an instance goes (design section 5b): each act has exactly one owner, us where it says True."""

    taints: bool = False
    """We taint and cordon its node."""
    evicts: bool = False
    """We evict its pods."""
    replaces: bool = True
    """We launch the replacement of a noticed replica. Else it comes by itself, and counts from the notice on."""
    detaches: bool = False
    """A noticed instance leaves its group by our doing, once drained, so that the group does not replace it itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A capacity pool. `provider` names who acts on it; its settings stay with that adapter."""

    name: str
    provider: str
    offerings: tuple[Offering, ...]
    max_replicas: int = 1_000_000
    nodes_per_replica: int = 1
    launch_timeout_s: float = 900.0
    """A launched replica that has not become ready after this long is replaced."""
    refusal_backoff_initial_s: float = 30.0
    refusal_backoff_max_s: float = 120.0
    duties: Duties = Duties()
    """By kind of pool; nothing beyond launching and ending where a pool is local."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSpec:
    """How workers are drained."""

    voluntary_deadline_s: float = 120.0
    """Time a victim of our own choice has to hand over."""
    margin_s: float = 10.0
    """A worker is done this long before its deadline."""
    reap_after_s: float = 300.0
    """A noticed instance that still runs this long after its deadline is ended by us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One stage of the policy iteration: its pools, its policy and its guard rails."""

    name: str
    sizing: PolicySpec
    placement: PolicySpec
    guard_rails: GuardRails
    pools: tuple[PoolSpec, ...]
    drain: DrainSpec = DrainSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """One RL job's fleet: one plan and one spend cap over all its stages."""

    name: str
    stages: tuple[StageSpec, ...]
    interval_s: float = 10.0
    paused: bool = False
    """No scaling, no repairs; noticed drains go on."""
    dry_run: bool = False
    """Decide and explain, act on notices only in the ledger's dry sense: no command is carried out."""
    max_spend_usd_per_h: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    """Where it lives in a cluster; empty on one machine."""
    priority: int = 0
    """Between fleets that share a pool: the higher one is served first."""
    trainers: tuple[TrainerSpec, ...] = ()
    """Trainers that are guarded. One without a namespace is in the fleet's."""
