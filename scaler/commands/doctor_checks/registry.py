"""All checks, in the order in which they are told: what others depend on comes first. A new one is a line here."""

from collections.abc import Sequence

from scaler.commands.doctor_checks import (
    cloud,
    cluster_fleet,
    cluster_pools,
    local_controller,
    local_pools,
    node_agents,
    rights,
    trainers,
)
from scaler.commands.doctor_checks.base import Check, Line, not_looked
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.commands.doctor_checks.ledger import ledger_lines
from scaler.commands.doctor_checks.local_world import LocalWorld


async def _ledger(world: LocalWorld) -> Sequence[Line]:
    return await ledger_lines(world.fleet, world.clock)


async def _ledger_of_cluster(world: ClusterWorld) -> Sequence[Line]:
    if world.fleet is None:
        return [not_looked("ledger", "the fleet is not known", "see the line on the fleet")]
    return await ledger_lines(world.fleet, world.clock)


LOCAL: tuple[tuple[str, Check[LocalWorld]], ...] = (
    ("configuration", local_controller.configuration),
    ("controller", local_controller.controller),
    ("decision", local_controller.decisions),
    ("ledger", _ledger),
    ("pools", local_pools.pools),
    ("notices", local_pools.notices),
)
"""Of a fleet on one machine."""

CLUSTER: tuple[tuple[str, Check[ClusterWorld]], ...] = (
    ("settings of the controller", cluster_fleet.settings),
    ("API server", cluster_fleet.api_server),
    ("definition", cluster_fleet.definition),
    ("fleet", cluster_fleet.fleet),
    ("lease", cluster_fleet.lease),
    ("rights", rights.rights),
    ("HTTP of the controller", cluster_fleet.endpoint),
    ("conditions", cluster_fleet.conditions),
    ("ledger", _ledger_of_cluster),
    ("AWS", cloud.aws),
    ("queue", cloud.queue),
    ("notices", cloud.sources),
    ("pools", cluster_pools.pools),
    ("node agents", node_agents.node_agents),
    ("trainers", trainers.trainers),
)
"""Of a fleet of a cluster."""
