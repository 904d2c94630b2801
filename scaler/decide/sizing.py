"""Ask a stage's sizing policy, and say what stops the stage from being sized at all.

Policy, in this order: partial or old pool lists hold and nothing is sized, whatever the policy says, which is only heard on
whether its signals are fresh; else the policy itself holds on signals that are missing, stale or invalid; paused fleets
and stages whose every pool is refused hold at what there is, and say what would be wished.
"""

from typing import NamedTuple

from policies.base import Registered, Sizing, SizingInput
from scaler.decide.world import StageWorld
from scaler.model.plan import Reason, ReasonCode, StageMemory


def partial_list(world: StageWorld) -> Reason | None:
    """The reason to hold while any pool was not listed completely of late, or a replica is in none of them."""
    unlisted = sorted(name for name, pool in world.pools.items() if not pool.current)
    strangers = sorted({replica.pool for replica in world.replicas} - set(world.pools))
    if not unlisted and not strangers:
        return None
    parts = [f"pool {name} was not listed lately" for name in unlisted]
    parts += [f"pool {name} is not in the specification" for name in strangers]
    return Reason(code=ReasonCode.HOLD_PARTIAL_LIST, message=f"holding: {', '.join(parts)}")


def standstill(world: StageWorld) -> Reason | None:
    """The reason why the stage may not be resized now, although it can be judged."""
    if world.paused:
        return Reason(code=ReasonCode.PAUSED, message="paused: no scaling and no repairs; noticed drains go on")
    refused = {name: pool.view.refused_reason for name, pool in world.pools.items() if pool.view and not pool.usable}
    if len(refused) < len(world.pools):
        return None
    why = "; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items()))
    return Reason(code=ReasonCode.HOLD_POOL_REFUSED, message=f"holding: no pool may be acted on ({why})")


class Wish(NamedTuple):
    """What the policy wants, and the stage's memory after asking it."""

    sizing: Sizing
    memory: StageMemory


def ask(world: StageWorld, memory: StageMemory, policy: Registered) -> Wish:
    """Ask the sizing policy; keep its numbers, and since when it has not held."""
    room = world.room()
    view = SizingInput(
        now_s=world.now_s,
        stage=world.view,
        signal_max_age_s=world.spec.guard_rails.signal_max_age_s,
        memory=dict(memory.policy),
        launching=len(world.counting) - world.ready,
        ready=world.ready,
        desired=memory.desired,
        counting=world.counting,
        usable=tuple([(pool, entry.view) for (pool, _), entry in world.offers.items() if room[pool] > 0]),
        full=len(world.counting) >= world.spec.guard_rails.max_replicas,
        nodes_per_replica={name: pool.spec.nodes_per_replica for name, pool in world.pools.items()},
    )
    sizing: Sizing = policy.function(view, world.spec.sizing.params)
    since_s = world.now_s if memory.fresh_since_s is None else memory.fresh_since_s
    return Wish(
        sizing=sizing,
        memory=StageMemory(
            last_up_at_s=memory.last_up_at_s,
            last_down_at_s=memory.last_down_at_s,
            fresh_since_s=None if sizing.replicas is None else since_s,
            desired=memory.desired,
            observed=memory.observed,
            policy=tuple(sorted(sizing.memory.items())),
        ),
    )
