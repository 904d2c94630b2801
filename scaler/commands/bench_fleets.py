"""Made-up fleets for `headrace bench decide`: what a controller would see of so many replicas over so many offerings.

Each fleet comes in the situations that make the engine do different work: steady; starved, so that it launches; full, so
that it picks victims; struck, so that a tenth has notices and is replaced. Invariant: one seed, one fleet.
Non-goals: being likely. Every phase occurs, spot and on-demand, refusals and reclaims.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from policies.registry import PLACEMENT, SIZING
from scaler.model.capacity import Billing, CapacityType, Offering, ReplicaPhase
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import Memory, StageMemory
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.model.spec import FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec

NOW_S = 1_000_000.0
STAGE = "rollout"
BATCH_SAMPLES = 512
GOODPUT_PER_S = 0.25
OFFERINGS_A_POOL = 5
_LAUNCHING = (ReplicaPhase.REQUESTED, ReplicaPhase.LAUNCHING, ReplicaPhase.LOADING)
_PHASES = (ReplicaPhase.READY,) * 17 + _LAUNCHING


class Situation(StrEnum):
    """What the fleet has to answer."""

    STEADY = "steady"
    STARVED = "starved"
    FULL = "full"
    STRUCK = "struck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The arguments of one decision."""

    snapshot: Snapshot
    spec: FleetSpec
    memory: Memory


def questions(policy: str, replicas: int, offerings: int, seeds: int = 3) -> tuple[Question, ...]:
    """Every situation for so many seeds. `KeyError` for a policy that is not registered."""
    pools = tuple(_pools(offerings))
    spec = _fleet(policy, replicas, pools)
    memory = Memory(stages=((STAGE, StageMemory(fresh_since_s=0.0, desired=replicas, observed=replicas)),))
    snapshots = (
        _snapshot(Random(seed), situation, replicas, pools) for seed in range(seeds) for situation in Situation
    )
    return tuple(Question(snapshot=snapshot, spec=spec, memory=memory) for snapshot in snapshots)


def _fleet(policy: str, replicas: int, pools: tuple[PoolSpec, ...]) -> FleetSpec:
    stage = StageSpec(
        name=STAGE,
        sizing=PolicySpec(name=policy, params=_defaults(SIZING[policy].params, replicas)),
        placement=PolicySpec(name="cheapest_available", params=PLACEMENT["cheapest_available"].params()),
        guard_rails=GuardRails(
            min_replicas=1,
            max_replicas=2 * replicas,
            max_spend_usd_per_h=1e9,
            cooldown_down_s=0.0,
            lower_after_fresh_s=0,
        ),
        pools=pools,
    )
    return FleetSpec(name="bench", stages=(stage,))


def _defaults(params: type, replicas: int) -> object:
    """A policy's own defaults; a size that has none is the fleet's."""
    needed = {
        field.name: replicas
        for field in dataclasses.fields(params)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return params(**needed)


def _pools(offerings: int) -> Iterator[PoolSpec]:
    for first in range(0, offerings, OFFERINGS_A_POOL):
        zones = range(first, min(offerings, first + OFFERINGS_A_POOL))
        yield PoolSpec(name=f"pool-{first:03}", provider="bench", offerings=tuple(map(_offering, zones)))


def _offering(number: int) -> Offering:
    on_demand = number % OFFERINGS_A_POOL == OFFERINGS_A_POOL - 1
    return Offering(
        instance_type="p5.48xlarge",
        zone=f"zone-{number}",
        capacity_type=CapacityType.ON_DEMAND if on_demand else CapacityType.SPOT,
        price_usd_per_h=55.0 if on_demand else 20.0 + number % 7,
        billing=Billing() if on_demand else Billing(refund_if_interrupted_within_s=3600.0),
    )


def _snapshot(random: Random, situation: Situation, replicas: int, pools: tuple[PoolSpec, ...]) -> Snapshot:
    places = [(pool.name, offering.offering_id) for pool in pools for offering in pool.offerings]
    seen = [_replica(random, number, random.choice(places)) for number in range(replicas)]
    if situation is Situation.STRUCK:
        seen = [_struck(replica) if random.random() < 0.1 else replica for replica in seen]
    random.shuffle(seen)
    views = tuple(_pool_view(random, pool) for pool in pools)
    signals = _signals(situation, replicas)
    return Snapshot(
        now_s=NOW_S,
        fleet="bench",
        stages=(StageView(name=STAGE, signals=signals, pools=views, replicas=tuple(seen)),),
    )


def _replica(random: Random, number: int, place: tuple[str, str]) -> ReplicaView:
    phase = random.choice(_PHASES)
    registered = phase in (ReplicaPhase.READY, ReplicaPhase.LOADING)
    return ReplicaView(
        replica_id=f"i-{number:017x}",
        pool=place[0],
        offering_id=place[1],
        phase=phase,
        instance_ids=() if phase is ReplicaPhase.REQUESTED else (f"i-{number:017x}",),
        worker=f"worker-{number}" if registered else None,
        launched_at_s=NOW_S - (random.uniform(0, 600) if phase in _LAUNCHING else random.uniform(900, 90_000)),
        ready_at_s=NOW_S - random.uniform(0, 900) if phase is ReplicaPhase.READY else None,
        running_units=random.randrange(64) if phase is ReplicaPhase.READY else 0,
        unpublished_tokens=random.randrange(10_000) if phase is ReplicaPhase.READY else 0,
        launch_token=f"bench.{STAGE}.{number}",
    )


def _struck(replica: ReplicaView) -> ReplicaView:
    notice = InterruptionNotice(
        instance_id=replica.replica_id,
        kind=NoticeKind.SPOT_INTERRUPTION,
        noticed_at_s=NOW_S - 5.0,
        deadline_s=NOW_S + 115.0,
    )
    return replace(replica, notice=notice)


def _pool_view(random: Random, pool: PoolSpec) -> PoolView:
    views = tuple(
        OfferingView(
            offering=offering,
            refused_at_s=NOW_S - 10.0 if (refused := random.random() < 0.2) else None,
            refusals=2 if refused else 0,
            reclaiming_at_s=NOW_S - random.uniform(0, 7200) if random.random() < 0.5 else None,
        )
        for offering in pool.offerings
    )
    return PoolView(name=pool.name, offerings=views, listed_at_s=NOW_S)


def _signals(situation: Situation, replicas: int) -> Signals:
    batches = {Situation.STARVED: 0.0, Situation.FULL: 3.9}.get(situation, 1.0)
    demand = {Situation.STARVED: 1.2, Situation.FULL: 0.5}.get(situation, 0.95)
    return Signals(
        buffered_samples=Reading(batches * BATCH_SAMPLES, NOW_S),
        ready_groups=Reading(batches * BATCH_SAMPLES / 8, NOW_S),
        pending_units=Reading(100.0 * replicas, NOW_S),
        running_units=Reading(32.0 * replicas, NOW_S),
        unblocked_rate_per_s=Reading(demand * GOODPUT_PER_S * replicas, NOW_S),
        goodput_per_replica_per_s=Reading(GOODPUT_PER_S, NOW_S),
        acceptance_ratio=Reading(0.9, NOW_S),
        queue_age_s=Reading(60.0, NOW_S),
        policy_version=Reading(100.0, NOW_S),
        batch_samples=BATCH_SAMPLES,
        max_staleness=3,
    )
