"""From facts to one frozen Snapshot: pure, so that a test, the daemon and a replay all get the same world.

Invariants: a pool that could not be listed keeps the replicas and the time of its last complete list; an intent is a
replica until an instance answers it; nothing is ever made up, and what comes by itself is counted (`replacements`).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from scaler.model.interruption import InterruptionNotice
from scaler.model.job import WorkerRecord
from scaler.model.pool import Instance, PoolObservation
from scaler.model.snapshot import PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.model.spec import FleetSpec, PoolSpec, StageSpec
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent
from scaler.observe.offerings import OfferingMemory
from scaler.observe.replacements import Replacements, to_come
from scaler.observe.replicas import Join, JoinInput, requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything read or remembered, on the controller's clock unless a field says otherwise."""

    now_s: float
    leader_epoch: int
    synced: bool
    pools: Mapping[str, PoolObservation]
    """The last complete list of each pool; absent: never listed."""
    workers: tuple[WorkerRecord, ...]
    store_ahead_s: float
    notices: tuple[InterruptionNotice, ...]
    intents: tuple[Intent, ...]
    orders: Mapping[str, DrainOrder]
    ending: frozenset[str]
    ready_since_s: Mapping[str, float]
    signals: Mapping[str, Signals]
    gone: Mapping[str, tuple[Instance, ...]]
    """Instances that were listed and are not any more, by pool."""
    ended: frozenset[str] = frozenset()
    """Replicas whose end was under way before these lists were made: one that is gone from them went by our choice."""
    workers_since_s: float | None = None
    """Since when the ledger could be asked without a gap; see `StageView`."""


def assemble(
    spec: FleetSpec, facts: Facts, offerings: OfferingMemory, replacements: Replacements | None = None
) -> Snapshot:
    """The world as the next decision sees it. `replacements`: what is owed by itself; begun anew where there is none."""
    memory = replacements or Replacements()
    memory.keep(pool.name for stage in spec.stages for pool in stage.pools)
    join = Join(
        JoinInput(
            workers=facts.workers,
            store_ahead_s=facts.store_ahead_s,
            notices=facts.notices,
            orders=facts.orders,
            ending=facts.ending,
            ready_since_s=facts.ready_since_s,
        )
    )
    return Snapshot(
        now_s=facts.now_s,
        fleet=spec.name,
        stages=tuple(_stage(stage, facts, join, offerings, memory) for stage in spec.stages),
        leader_epoch=facts.leader_epoch,
        synced=facts.synced,
    )


def _stage(
    stage: StageSpec, facts: Facts, join: Join, offerings: OfferingMemory, replacements: Replacements
) -> StageView:
    return StageView(
        name=stage.name,
        signals=facts.signals.get(stage.name, Signals()),
        pools=tuple(_pool(pool, facts, offerings) for pool in stage.pools),
        replicas=tuple(view for pool in stage.pools for view in _all_replicas(pool, facts, join, replacements)),
        workers_since_s=facts.workers_since_s,
    )


def _pool(pool: PoolSpec, facts: Facts, offerings: OfferingMemory) -> PoolView:
    listed = facts.pools.get(pool.name)
    return PoolView(
        name=pool.name,
        offerings=offerings.views(pool.name, pool.offerings),
        listed_at_s=listed.listed_at_s if listed else None,
        refused_reason=listed.refused_reason if listed else None,
    )


def _all_replicas(pool: PoolSpec, facts: Facts, join: Join, replacements: Replacements) -> list[ReplicaView]:
    views = _replicas(pool.name, facts, join)
    if pool.duties.replaces or pool.name not in facts.pools:
        return views
    missing = facts.pools[pool.name].missing
    if missing is not None:
        return [*views, *to_come(pool, views, facts.now_s, missing)]
    chosen = {replica_id for replica_id, order in facts.orders.items() if order.noticed_at_s is None}
    to_come_by_themselves = replacements.look(pool, views, facts.now_s, chosen | facts.ending | facts.ended)
    return [*replacements.noticed(pool.name, views), *to_come_by_themselves]


def _replicas(pool: str, facts: Facts, join: Join) -> list[ReplicaView]:
    listed = facts.pools.get(pool)
    instances = listed.instances if listed else ()
    answered = {instance.launch_token for instance in instances}
    views = [join.replica(pool, group) for group in group_by_replica(instances)]
    views += [
        requested(intent) for intent in facts.intents if intent.command.pool == pool and intent.token not in answered
    ]
    present = {view.replica_id for view in views}
    lost = (instance for instance in facts.gone.get(pool, ()) if instance.replica_id not in present)
    orphans = (join.orphan(pool, instance) for instance in lost)
    return views + [view for view in orphans if view is not None]


def group_by_replica(instances: tuple[Instance, ...]) -> list[tuple[Instance, ...]]:
    """The instances of each replica, replicas and instances in order of their ids."""
    groups: dict[str, list[Instance]] = defaultdict(list)
    for instance in sorted(instances, key=lambda each: (each.replica_id, each.instance_id)):
        groups[instance.replica_id].append(instance)
    return [tuple(group) for group in groups.values()]
