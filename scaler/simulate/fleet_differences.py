"""Where a fleet is another world than the scenario that its numbers are tuned in: what was found there may not hold for it.

Compared are what a policy's numbers hang on: nodes a replica, floor and ceiling, staleness and batch, and prices, where they
differ by a factor of two or more; prices of a fleet's offerings are the mean of each kind.
"""

from collections.abc import Iterator
from statistics import fmean

from scaler.config.schema import RolloutFleet
from scaler.config.stage import Stage, StageName
from scaler.model.capacity import CapacityType
from scaler.simulate.scenario_yaml import Spec

PRICE_RATIO = 2.0
"""Prices change by the hour, and within this a policy buys alike."""


def differences(fleet: RolloutFleet, scenario: Spec) -> Iterator[str]:
    """One line each, the fleet's value first."""
    stage = next(stage for stage in fleet.spec.stages if stage.name == StageName.ROLLOUT)
    for key, ours, theirs in (*_counts(fleet, stage, scenario), *_nodes(stage, scenario)):
        if ours != theirs:
            yield f"{key} {ours}, and {theirs} in the scenario"
    for kind, usd, simulated_usd in _prices(stage, scenario):
        if not simulated_usd / PRICE_RATIO < usd < simulated_usd * PRICE_RATIO:
            yield f"{kind} priceUsdPerH {usd:.2f}, and {simulated_usd:.2f} in the scenario"


def _counts(fleet: RolloutFleet, stage: Stage, scenario: Spec) -> Iterator[tuple[str, int, int]]:
    for key in ("floor", "ceiling"):
        yield f"guardRails.{key}", getattr(stage.guard_rails, key), getattr(scenario.guard_rails, key)
    job, simulated = fleet.spec.job, scenario.job
    yield "job.maxStaleness", job.max_staleness, simulated.max_staleness
    yield "batch samples", job.batch_groups * job.group_size, scenario.batch_samples
    yield "job.batchesPerVersion", job.batches_per_version, simulated.batches_per_version


def _nodes(stage: Stage, scenario: Spec) -> Iterator[tuple[str, int, int]]:
    for pool in stage.pools:
        yield f"pool {pool.name}: nodesPerReplica", pool.nodes_per_replica, scenario.replica.nodes


def _prices(stage: Stage, scenario: Spec) -> Iterator[tuple[str, float, float]]:
    """(kind, the fleet's, the scenario's) of one node, of the kinds that both have."""
    simulated = {CapacityType.SPOT: scenario.spot.price_usd_per_h}
    if scenario.on_demand.quota_replicas:
        simulated[CapacityType.ON_DEMAND] = scenario.on_demand.price_usd_per_h
    for kind, usd in simulated.items():
        offered = [o.price_usd_per_h for pool in stage.pools for o in pool.offerings if o.capacity_type is kind]
        if offered:
            yield kind, fmean(offered), usd
