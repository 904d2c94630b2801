"""A stage in the YAML: its pools, its policies, its guard rails, how it drains, where its signals come from."""

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

from policies.registry import PLACEMENT, SIZING
from scaler.config.policy_models import PolicyModel, policy_union
from scaler.config.providers import Provider
from scaler.config.scalars import (
    Count,
    Duration,
    Name,
    OfferingWord,
    PositiveCount,
    PositiveDuration,
    Ratio,
    Usd,
)
from scaler.config.yaml_model import RESTART, Problem, YamlModel, duplicates
from scaler.model.capacity import CapacityType
from scaler.model.units import format_duration

if TYPE_CHECKING:
    SizingPolicy: TypeAlias = PolicyModel
    PlacementPolicy: TypeAlias = PolicyModel
else:
    SizingPolicy = policy_union(SIZING)
    PlacementPolicy = policy_union(PLACEMENT)

DEFAULT_SIZING = "marginal_value"
DEFAULT_PLACEMENT = "cheapest_available"


class StageName(StrEnum):
    """The steps of a policy iteration that have workers of their own."""

    ROLLOUT = "rollout"
    REWARD = "reward"
    ENVIRONMENT = "environment"


class Billing(YamlModel):
    """How an offering charges."""

    minimum_s: Duration = 60.0
    """Least time charged. Default 1m: EC2 charges Linux instances by the second from the 60th on."""
    refund_if_interrupted_within_s: Duration = 0.0
    """An instance that the cloud interrupts this soon costs nothing; EC2 Spot with Linux: 1h. Default 0s: no refund is counted on
    that was not promised."""


class Offering(YamlModel):
    """Instance type x zone x capacity type, with its price."""

    instance_type: OfferingWord
    """For example `p5.48xlarge`; any word for local processes."""
    zone: OfferingWord
    """For example `us-east-1a`; any word for local processes."""
    capacity_type: CapacityType
    """How it is bought."""
    price_usd_per_h: Usd
    """Price of one instance. No default: spend caps are kept by it."""
    billing: Billing = Billing()
    """Default: a minute at least, no refund."""

    @property
    def offering_id(self) -> str:
        """As `scaler.model.capacity.Offering` names it."""
        return f"{self.instance_type}/{self.zone}/{self.capacity_type}"


class Pool(YamlModel):
    """A capacity pool: the set that is scaled together."""

    name: Annotated[Name, Field(json_schema_extra=RESTART)]
    """Unique in the fleet."""
    provider: Provider
    """Who acts on it, and that adapter's settings."""
    offerings: Annotated[tuple[Offering, ...], Field(min_length=1, max_length=64)]
    """What can be had in it; at least one, each once, 64 at most."""
    max_replicas: Count = 1_000_000
    """Most replicas in this pool; 0 empties it. Default 1000000, that is no bound: the stage's ceiling has the last word."""
    nodes_per_replica: PositiveCount = 1
    """Nodes that live and die together as one worker replica. Default 1: one engine a node."""
    launch_timeout_s: PositiveDuration = 900.0
    """A launched replica that is not ready by then is replaced. Default 15m: a large model's weights take that long to load."""
    refusal_backoff_initial_s: PositiveDuration = 30.0
    """Wait after the first refusal for capacity. Default 30s: Spot capacity that was just refused rarely is back sooner."""
    refusal_backoff_max_s: PositiveDuration = 120.0
    """Longest wait after refusals in a row; at least 20s (or refusalBackoffInitial, where that is shorter) for each spot
    offering of the stage, so that all are asked before the first is asked again. Default 2m: returning capacity is noticed
    within that time."""

    @property
    def cheapest_replica_usd_per_h(self) -> float:
        """What its cheapest replica costs."""
        return min((offering.price_usd_per_h for offering in self.offerings), default=0.0) * self.nodes_per_replica

    def problems(self) -> Iterator[Problem]:
        """Offerings named twice, and a back-off upside down."""
        for index, name in duplicates([offering.offering_id for offering in self.offerings]):
            yield Problem(("offerings", index), f"offering {name} is there twice", "keep one of them")
        if self.refusal_backoff_initial_s > self.refusal_backoff_max_s:
            yield Problem(
                ("refusalBackoffInitial",),
                "the first wait is longer than the longest",
                f"raise refusalBackoffMax to {format_duration(self.refusal_backoff_initial_s)} at least, or lower this one",
            )


class GuardRails(YamlModel):
    """The last word over every policy."""

    floor: Count
    """Fewest replicas. No default: what must never be given up is the operator's to say."""
    ceiling: PositiveCount
    """Most replicas. No default: what may at most be launched is the operator's to say."""
    spend_cap_usd_per_h: Usd | None = None
    """Most that this stage may cost an hour. Default: the fleet's cap alone."""
    max_step_up: PositiveCount = 1_000_000
    """Most replicas that one decision adds. Default 1000000, that is no bound: a starving trainer costs more than
    spare workers."""
    max_step_down: PositiveCount = 1_000_000
    """Most replicas that one decision takes away. Default 1000000, that is no bound: `disruptionBudget` paces it already."""
    cooldown_up_s: Duration = 0.0
    """Wait after the last change until the fleet is raised. Default 0s: replacements must not wait."""
    cooldown_down_s: Duration = 300.0
    """Wait after the last change until the fleet is lowered. Default 5m: longer than a replica takes to start, or the fleet would
    fall before the last step up was felt."""
    disruption_budget_ratio: Ratio = 0.1
    """Share of the replicas, rounded up, that may drain by our own choice at once. Default 10%: goodput hardly feels it."""
    lower_after_fresh_s: Duration = 1800.0
    """Nothing is lowered before signals have been fresh for this long. Default 30m: a new controller has seen a few policy
    iterations by then."""

    def problems(self) -> Iterator[Problem]:
        """Floor over ceiling; a fleet that falls faster than it rises."""
        if self.floor > self.ceiling:
            yield Problem(
                ("floor",), f"the floor {self.floor} is over the ceiling {self.ceiling}", "lower floor or raise ceiling"
            )
        if self.cooldown_down_s < self.cooldown_up_s:
            wait = format_duration(self.cooldown_down_s)
            yield Problem(
                ("cooldownDown",),
                f"{wait} is shorter than cooldownUp, so the fleet would fall faster than it rises",
                f"raise it to {format_duration(self.cooldown_up_s)} at least, or lower cooldownUp",
            )


class Drain(YamlModel):
    """How workers hand over before they go."""

    voluntary_deadline_s: PositiveDuration = 120.0
    """Time that a victim of our own choice has. Default 2m: the same as Spot's notice, so one path serves both."""
    margin_s: Duration = 10.0
    """A worker is done this long before its deadline. Default 10s: a publication, a release and a slow store fit in it."""
    reap_after_s: Duration = 300.0
    """A noticed instance that still runs this long after its deadline is ended by us. Default 5m: EC2 has taken nearly all by
    then, and its refund is not lost."""

    def problems(self) -> Iterator[Problem]:
        """A margin that leaves no time to drain."""
        if self.margin_s >= self.voluntary_deadline_s:
            margin, deadline = format_duration(self.margin_s), format_duration(self.voluntary_deadline_s)
            yield Problem(
                ("margin",),
                f"{margin} leaves nothing of the {deadline} to drain in",
                "lower margin or raise voluntaryDeadline",
            )


class LedgerSignals(YamlModel):
    """Signals from the job's ledger: buffer depth, the trainer's unblocked rate, goodput."""

    type: Annotated[Literal["ledger"], Field(json_schema_extra=RESTART)] = "ledger"
    """Where signals come from. Default ledger: it has all of them, from one consistent reading."""
    max_age_s: PositiveDuration = 30.0
    """An older signal is stale, and the fleet is held. Default 30s: three turns of the default interval, so one may fail."""


Signals: TypeAlias = LedgerSignals
"""Sources join here as arms told apart by `type`."""


class Stage(YamlModel):
    """One stage of the policy iteration: a queue with workers before a consumer."""

    name: Annotated[StageName, Field(json_schema_extra=RESTART)]
    """Which step."""
    policy: SizingPolicy = Field(default={"type": DEFAULT_SIZING}, validate_default=True)
    """How many replicas are wanted. Default marginal_value: as many as are worth their rent."""
    placement: PlacementPolicy = Field(default={"type": DEFAULT_PLACEMENT}, validate_default=True)
    """From which offerings. Default cheapest_available: it needs no history."""
    guard_rails: GuardRails
    """The last word over the policies."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1, max_length=64)]
    """Where its replicas live; at least one, 64 at most."""
    drain: Drain = Drain()
    """Default: two minutes, as Spot's notice."""
    signals: Signals = LedgerSignals()
    """Default: the job's ledger."""

    @property
    def floor_usd_per_h(self) -> float:
        """Least that the floor costs: the cheapest pools filled first, each to its bound."""
        missing, total = self.guard_rails.floor, 0.0
        for pool in sorted(self.pools, key=lambda pool: pool.cheapest_replica_usd_per_h):
            taken = min(missing, pool.max_replicas)
            missing, total = missing - taken, total + taken * pool.cheapest_replica_usd_per_h
        return total

    def problems(self) -> Iterator[Problem]:
        """Pools too small for the floor, a cap below the floor's cost, pools named twice."""
        room = sum(pool.max_replicas for pool in self.pools)
        if room < self.guard_rails.floor:
            yield Problem(
                ("guardRails", "floor"),
                f"the floor {self.guard_rails.floor} does not fit into the pools, which hold {room}",
                "raise a pool's maxReplicas or lower floor",
            )
        cap = self.guard_rails.spend_cap_usd_per_h
        if cap is not None and exceeds(self.floor_usd_per_h, cap):
            yield Problem(
                ("guardRails", "spendCapUsdPerH"),
                f"{cap:.2f} USD/h do not pay for the floor, which costs {self.floor_usd_per_h:.2f}",
                "raise it or lower floor",
            )


def exceeds(cost_usd_per_h: float, cap_usd_per_h: float) -> bool:
    """Whether a cost is over a cap by more than rounding of sums."""
    return cost_usd_per_h > cap_usd_per_h and not math.isclose(cost_usd_per_h, cap_usd_per_h, rel_tol=1e-9)
