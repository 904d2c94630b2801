"""From a fleet's YAML to the actors of its pools in a cluster. A provider's model and its actor's settings meet here only.

One actor a pool, made anew where its settings change; what fleets share of a place is in `Places` and outlives actors.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from scaler.act.auto_scaling_group import AutoScalingGroupSettings
from scaler.act.base import PoolActor
from scaler.act.eks_node_group import EksNodeGroupSettings
from scaler.act.karpenter import KarpenterSettings
from scaler.act.karpenter_claims import WatchedClaims, node_selector
from scaler.act.registry import make_actor
from scaler.act.worker_sets.base import WorkerSet
from scaler.act.worker_sets.registry import make_worker_set
from scaler.act.worker_sets.settings import WorkerSetSettings
from scaler.aws.contract import Aws
from scaler.config.convert import to_spec
from scaler.config.providers import (
    AutoScalingGroupProvider,
    EksNodeGroupProvider,
    KarpenterProvider,
    LocalProvider,
    Provider,
)
from scaler.config.schema import RolloutFleet
from scaler.config.stage import Pool
from scaler.config.worker_sets import LeaderWorkerSet, RayCluster, WorkerSetModel
from scaler.kube.facts import NodeFacts
from scaler.model.spec import PoolSpec
from scaler.runtime.cluster.shared import Shared


class CannotAct(Exception):
    """A pool that this controller cannot act on as it is set up; the text says what is missing."""


class ClusterActors:
    """An `ActorSource`: one actor for each pool of the configuration in use."""

    def __init__(
        self,
        shared: Shared,
        fleet: Callable[[], RolloutFleet],
        guarded: Callable[[NodeFacts], bool],
        refused: Callable[[], None],
        group: asyncio.TaskGroup,
    ) -> None:
        """`refused` hears at once of refusals that nobody gets as an answer; `group` owns the watches that actors need."""
        self._shared = shared
        self._fleet = fleet
        self._guarded = guarded
        self._refused = refused
        self._group = group
        self._made: dict[str, tuple[tuple[Pool, int], PoolActor]] = {}
        self._claims: dict[str, WatchedClaims] = {}

    async def current(self) -> Mapping[str, PoolActor]:
        """The actors by pool, made anew where something of theirs has changed."""
        fleet = self._fleet()
        specs = {pool.name: pool for stage in to_spec(fleet).stages for pool in stage.pools}
        wanted = {pool.name: (pool, fleet.spec.priority) for stage in fleet.spec.stages for pool in stage.pools}
        for name in [name for name, (made_of, _) in self._made.items() if wanted.get(name) != made_of]:
            await self._made.pop(name)[1].close()
        for name, (pool, priority) in wanted.items():
            if name not in self._made:
                settings = self._settings(fleet, pool, specs[name])
                actor = make_actor(pool.provider.type, settings, pool=name, clock=self._shared.clock)
                self._made[name] = (pool, priority), actor
        return {name: actor for name, (_, actor) in self._made.items()}

    async def close(self) -> None:
        """Give up connections; instances stay."""
        for _, actor in self._made.values():
            await actor.close()

    def _settings(self, fleet: RolloutFleet, pool: Pool, spec: PoolSpec) -> object:
        provider = pool.provider
        match provider:
            case AutoScalingGroupProvider():
                return AutoScalingGroupSettings(
                    **self._of_group(fleet, provider, spec), group=provider.group, up=provider.up
                )
            case EksNodeGroupProvider():
                return EksNodeGroupSettings(
                    **self._of_group(fleet, provider, spec),
                    cluster=provider.cluster,
                    node_group=provider.node_group,
                    accept_az_rebalance=provider.accept_az_rebalance,
                    accept_autoscaler_tags=provider.accept_autoscaler_tags,
                )
            case KarpenterProvider():
                return self._of_node_pool(fleet, provider, spec)
            case LocalProvider():
                raise CannotAct(f"pool {pool.name} is on one machine: it has no place in a cluster")

    def _of_group(
        self, fleet: RolloutFleet, provider: AutoScalingGroupProvider | EksNodeGroupProvider, spec: PoolSpec
    ) -> dict[str, Any]:
        shared = self._shared
        return {
            "aws": self._aws(spec),
            "fleet": fleet_key(fleet),
            "offerings": spec.offerings,
            "nodes_per_replica": spec.nodes_per_replica,
            "priority": to_spec(fleet).priority,
            "nodes": shared.nodes,
            "worker_set": self._worker_set(fleet, provider, spec) if provider.worker_set.counts else None,
            "guarded": self._guarded,
            "places": shared.places,
        }

    def _aws(self, spec: PoolSpec) -> Aws:
        if self._shared.aws is None:
            raise CannotAct(
                f"pool {spec.name} is on EC2, and the controller has no AWS: set spec.aws.region of its settings"
            )
        return self._shared.aws

    def _of_node_pool(self, fleet: RolloutFleet, provider: KarpenterProvider, spec: PoolSpec) -> KarpenterSettings:
        shared = self._shared
        return KarpenterSettings(
            kube=shared.kube,
            nodes=shared.nodes,
            claims=self._claims_of(provider.node_pool),
            worker_set=self._worker_set(fleet, provider, spec),
            node_pool=provider.node_pool,
            fleet=fleet_key(fleet),
            offerings=spec.offerings,
            placed=isinstance(provider.worker_set, LeaderWorkerSet),
        )

    def _claims_of(self, node_pool: str) -> WatchedClaims:
        if node_pool not in self._claims:
            claims = WatchedClaims(self._shared.kube, node_pool, clock=self._shared.clock, refused=self._refused)
            self._group.create_task(claims.run())
            self._claims[node_pool] = claims
        return self._claims[node_pool]

    def _worker_set(self, fleet: RolloutFleet, provider: Provider, spec: PoolSpec) -> WorkerSet:
        if isinstance(provider, LocalProvider):
            raise CannotAct(f"pool {spec.name} has no worker set")
        model: WorkerSetModel = provider.worker_set
        node_pool = provider.node_pool if isinstance(provider, KarpenterProvider) else ""
        settings = WorkerSetSettings(
            kube=self._shared.kube,
            pods=self._shared.pods,
            namespace=model.namespace or fleet.metadata.namespace or "default",
            name=model.name,
            group=model.group if isinstance(model, RayCluster) else "",
            nodes_per_replica=spec.nodes_per_replica,
            node_selectors={each.offering_id: node_selector(each, node_pool) for each in spec.offerings}
            if node_pool
            else {},
        )
        return make_worker_set(model.type, settings, clock=self._shared.clock)


def fleet_key(fleet: RolloutFleet) -> str:
    """`<namespace>.<name>`: what nodes, instances and marks carry."""
    return f"{fleet.metadata.namespace or 'default'}.{fleet.metadata.name}"


def places_of(fleet: RolloutFleet) -> dict[str, str]:
    """Pool -> the place where its instances live."""
    return {pool.name: pool.provider.place for stage in fleet.spec.stages for pool in stage.pools}
