"""Builders for what the engine sees, so that a test names only what matters to it.

The default world: time is 10,000 s, one stage "rollout" with one pool "pool" of one spot offering at 1 USD/h, every signal
fresh, nothing running; the default fleet wants a static number of replicas and has no cool-downs.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from policies import buffer_band, cheapest_available, rate_match, static
from scaler.decide import decide
from scaler.decide.invariants import check_plan
from scaler.model.capacity import CapacityType, Offering, ReplicaPhase
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import Command, Memory, Plan, StageMemory
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.model.spec import DrainSpec, FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec

NOW_S = 10_000.0
LONG_AGO_S = 0.0
NO_WORKER_YET = frozenset({ReplicaPhase.REQUESTED, ReplicaPhase.LAUNCHING})


def an_offering(
    zone: str = "a", *, price: float = 1.0, capacity_type: CapacityType = CapacityType.SPOT, instance_type: str = "g"
) -> Offering:
    return Offering(instance_type=instance_type, zone=zone, capacity_type=capacity_type, price_usd_per_h=price)


OFFERING = an_offering()


def a_notice(
    instance_id: str = "i-r0",
    *,
    deadline_s: float | None = NOW_S + 120,
    noticed_at_s: float = NOW_S,
    kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION,
) -> InterruptionNotice:
    return InterruptionNotice(instance_id=instance_id, kind=kind, noticed_at_s=noticed_at_s, deadline_s=deadline_s)


def a_hint() -> InterruptionNotice:
    return a_notice(kind=NoticeKind.REBALANCE_RECOMMENDATION, deadline_s=None)


def a_replica(
    replica_id: str = "r0", phase: ReplicaPhase = ReplicaPhase.READY, *, offering: Offering = OFFERING, **facts: Any
) -> ReplicaView:
    """A replica that has the instance and the worker that its phase implies."""
    implied: dict[str, Any] = {
        "pool": "pool",
        "instance_ids": () if phase is ReplicaPhase.REQUESTED else (f"i-{replica_id}",),
        "worker": None if phase in NO_WORKER_YET else f"w-{replica_id}",
        "launched_at_s": NOW_S - 600,
    }
    return ReplicaView(replica_id=replica_id, phase=phase, offering_id=offering.offering_id, **(implied | facts))


def a_victim(replica_id: str = "r0", phase: ReplicaPhase = ReplicaPhase.DRAINING, **facts: Any) -> ReplicaView:
    """A replica that is draining because we lowered the stage."""
    implied: dict[str, Any] = {"drain_deadline_s": NOW_S + 60, "drain_reason": "size_down"}
    return a_replica(replica_id, phase, **(implied | facts))


def some_replicas(count: int, phase: ReplicaPhase = ReplicaPhase.READY, **facts: Any) -> tuple[ReplicaView, ...]:
    return tuple(a_replica(f"r{index}", phase, **facts) for index in range(count))


def fresh(value: float) -> Reading:
    return Reading(value, NOW_S)


def some_signals(**signals: Any) -> Signals:
    """Signals of a consumer that takes one sample a second, in batches of 32, with one batch in the buffer."""
    values: dict[str, Any] = {
        "buffered_samples": fresh(32),
        "unblocked_rate_per_s": fresh(1),
        "goodput_per_replica_per_s": fresh(0.25),
        "acceptance_ratio": fresh(1),
        "pending_units": fresh(1000),
        "batch_samples": 32,
        "max_staleness": 3,
    }
    return Signals(**(values | signals))


def a_pool_view(
    name: str = "pool",
    *offerings: OfferingView | Offering,
    listed_at_s: float | None = NOW_S,
    refused: str | None = None,
) -> PoolView:
    views = (
        view if isinstance(view, OfferingView) else OfferingView(offering=view) for view in offerings or (OFFERING,)
    )
    return PoolView(name=name, offerings=tuple(views), listed_at_s=listed_at_s, refused_reason=refused)


def a_stage(
    replicas: Iterable[ReplicaView] = (),
    *,
    name: str = "rollout",
    signals: Signals | None = None,
    pools: Iterable[PoolView] | None = None,
) -> StageView:
    return StageView(
        name=name,
        signals=signals or some_signals(),
        pools=tuple(pools if pools is not None else (a_pool_view(),)),
        replicas=tuple(replicas),
    )


def a_snapshot(*stages: StageView, now_s: float = NOW_S, synced: bool = True) -> Snapshot:
    return Snapshot(now_s=now_s, fleet="fleet", stages=stages or (a_stage(),), synced=synced)


def a_world_of(replicas: Iterable[ReplicaView] = (), **facts: Any) -> Snapshot:
    """A snapshot of one stage with these replicas."""
    return a_snapshot(a_stage(replicas, **facts))


def static_of(replicas: int) -> PolicySpec:
    return PolicySpec(name="static", params=static.Params(replicas=replicas))


def rate_matched(**params: Any) -> PolicySpec:
    return PolicySpec(name="rate_match", params=rate_match.Params(**params))


def banded(**params: Any) -> PolicySpec:
    return PolicySpec(name="buffer_band", params=buffer_band.Params(**params))


def some_rails(**rails: Any) -> GuardRails:
    """Rails wide enough to stand in nobody's way."""
    wide: dict[str, Any] = {
        "min_replicas": 0,
        "max_replicas": 100,
        "max_spend_usd_per_h": 1e6,
        "cooldown_down_s": 0.0,
        "disruption_budget_ratio": 1.0,
        "lower_after_fresh_s": 0.0,
    }
    return GuardRails(**(wide | rails))


def a_pool_spec(name: str = "pool", *offerings: Offering, **facts: Any) -> PoolSpec:
    return PoolSpec(name=name, provider="local", offerings=offerings or (OFFERING,), **facts)


def a_stage_spec(
    sizing: PolicySpec,
    *,
    name: str = "rollout",
    pools: Iterable[PoolSpec] | None = None,
    drain: DrainSpec = DrainSpec(),  # noqa: B008
    **rails: Any,
) -> StageSpec:
    return StageSpec(
        name=name,
        sizing=sizing,
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
        guard_rails=some_rails(**rails),
        pools=tuple(pools if pools is not None else (a_pool_spec(),)),
        drain=drain,
    )


def a_fleet_spec(sizing: PolicySpec | int = 0, **facts: Any) -> FleetSpec:
    """A fleet of one stage; `sizing` may be a plain number. Facts go to the fleet, the stage or its rails by name."""
    policy = static_of(sizing) if isinstance(sizing, int) else sizing
    of_fleet = {name: facts.pop(name) for name in tuple(facts) if name in FLEET_FACTS}
    stages = of_fleet.pop("stages", None) or (a_stage_spec(policy, **facts),)
    spend = of_fleet.pop("fleet_spend", None)
    return FleetSpec(name="fleet", stages=stages, max_spend_usd_per_h=spend, **of_fleet)


FLEET_FACTS = frozenset({"stages", "fleet_spend", "paused", "dry_run", "interval_s"})


def remembering(**memory: Any) -> Memory:
    """A memory of the stage "rollout" whose signals have always been fresh."""
    return Memory(stages=(("rollout", StageMemory(**({"fresh_since_s": LONG_AGO_S} | memory))),))


def planned(snapshot: Snapshot, spec: FleetSpec, memory: Memory | None = None) -> Plan:
    """Decide, and check every promise of a plan."""
    plan = decide(snapshot, spec, memory or remembering())
    assert check_plan(snapshot, spec, plan) == []
    return plan


def briefly(commands: Iterable[Command]) -> list[str]:
    """Each command as "verb replica (reason)"."""
    return [f"{_verb(command)} {_subject(command)} ({command.reason.code})" for command in commands]


def _verb(command: Command) -> str:
    return type(command).__name__.removesuffix("Work").removesuffix("Replica").lower()


def _subject(command: Command) -> str:
    return str(getattr(command, "replica_id", None) or getattr(command, "offering_id", ""))


def clamped(plan: Plan) -> list[str]:
    """The clamps of the first stage, as "code wanted -> allowed"."""
    return [f"{clamp.code} {clamp.wanted:g} -> {clamp.allowed:g}" for clamp in plan.stages[0].reason.clamps]


def with_replicas(snapshot: Snapshot, replicas: Iterable[ReplicaView]) -> Snapshot:
    """The same snapshot with other replicas in its first stage."""
    first, *others = snapshot.stages
    return replace(snapshot, stages=(replace(first, replicas=tuple(replicas)), *others))
