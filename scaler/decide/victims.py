"""Who goes first when a stage is lowered.

Policy: those that the sizing policy names go first; then fewest unpublished tokens, then fewest running units, then the
riskiest offering (spot before the rest, latest reclaim first), then the youngest, then by id. A replica goes as a whole.
One without a worker holds nothing: it is ended at once and costs no disruption budget; the others are drained, as many at
once as the budget allows: ceil(`disruption_budget_ratio` * observed replicas), less those leaving by our choice already.

Invariants: a replica in a pool that may not be acted on is never chosen; the order is total.
"""

import math
from collections.abc import Iterator
from functools import partial

from scaler.decide.world import SPEND_TOLERANCE_USD_PER_H, StageWorld, finite
from scaler.model.snapshot import ReplicaView


def by_value(world: StageWorld, replica: ReplicaView) -> tuple[int, int, bool, float, float, str]:
    """Sorts replicas, the first to go first."""
    spot, reclaimed_at_s = world.risks[replica.pool, replica.offering_id]
    launched_at_s = finite(replica.launched_at_s)
    youth = math.inf if launched_at_s is None else launched_at_s
    return (
        replica.unpublished_tokens,
        replica.running_units,
        not spot,
        -reclaimed_at_s,
        -youth,
        replica.replica_id,
    )


def pick_victims(world: StageWorld, excess: int, first: tuple[str, ...] = ()) -> tuple[ReplicaView, ...]:
    """At most `excess` replicas that count as capacity, fewer where the disruption budget or a pool forbids more.

    `first`: ids that the sizing policy lets go before all others, in this order.
    """
    drains_left = disruption_budget(world) - len(world.leaving)
    chosen: list[ReplicaView] = []
    for replica in _in_order(world, first):
        if len(chosen) >= excess:
            break
        if replica.worker is not None:
            if drains_left <= 0:
                continue
            drains_left -= 1
        chosen.append(replica)
    return tuple(chosen)


def _in_order(world: StageWorld, first: tuple[str, ...]) -> Iterator[ReplicaView]:
    """All that may be victims, those named first; the others are put in order only where these do not do."""
    rank = {replica_id: i for i, replica_id in enumerate(first)}
    named = [replica for replica in world.counting if replica.replica_id in rank and world.may_end(replica)]
    yield from sorted(named, key=lambda replica: rank[replica.replica_id])
    others = [replica for replica in world.counting if replica.replica_id not in rank and world.may_end(replica)]
    yield from sorted(others, key=partial(by_value, world))


def disruption_budget(world: StageWorld) -> int:
    """Replicas that may be leaving by our own choice at once."""
    ratio = finite(world.spec.guard_rails.disruption_budget_ratio) or 0.0
    return math.ceil(max(0.0, ratio) * world.observed - 1e-9)


def affordable(world: StageWorld, cap_usd_per_h: float) -> int:
    """How many of those that count now may stay under a cap, if victims went in order."""
    rent = world.counting_usd_per_h
    if rent <= cap_usd_per_h + SPEND_TOLERANCE_USD_PER_H:
        return len(world.counting)
    count = len(world.counting)
    for replica in sorted(world.counting, key=lambda replica: by_value(world, replica)):
        rent -= world.price_usd_per_h(replica)
        count -= 1
        if rent <= cap_usd_per_h + SPEND_TOLERANCE_USD_PER_H:
            break
    return count
