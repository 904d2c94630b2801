"""When to look again: at the next moment that could change a decision by itself, at the latest after an interval.

Those moments are deadlines of notices, but for those who have handed over, and of drains, the last moment to leave a group before
them, reaps, launch time-outs, and, where they held this decision back or hold back what a step or the disruption budget left of
it, the ends of a cool-down and of the wait for fresh signals. Everything else comes with the next snapshot. The end of a
refusal's back-off is none: an offering that refused is asked again at the next turn, since each turn has every pool listed.
"""

from collections.abc import Iterable, Mapping

from scaler.decide.endings import DETACH_BEFORE_S, goes_by_itself, leaves_by_us
from scaler.decide.rails import last_change_s
from scaler.decide.world import NOT_READY_YET, StageWorld, finite, is_noticed, notice_deadline_s
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import ClampCode, Memory
from scaler.model.snapshot import ReplicaView

SOONEST_S = 0.1
"""A moment that is almost there must not make a busy loop."""
HURRY_S = 1.0
"""While a replica has to leave its group within seconds, whatever else has to come first."""
AFTER_REFUSAL_S = 10.0
"""From a refusal to the decision that asks elsewhere, an interval at most: answers to one plan come seconds apart."""


def look_again_in_s(
    worlds: Iterable[StageWorld],
    memory: Memory,
    held: Mapping[str, frozenset[ClampCode]],
    now_s: float,
    interval_s: float,
) -> float:
    """Seconds until the next decision is due, between `SOONEST_S` and `interval_s`. `held`: by stage, what clamped its size."""
    moments_s: list[float] = []
    for world in worlds:
        for replica in world.restless:
            moments_s += _moments_of_replica(world, replica)
        if clamps := held.get(world.spec.name):
            moments_s += _moments_of_size(world, memory, clamps)
    next_s = min([at_s - now_s for at_s in moments_s if at_s > now_s], default=interval_s)
    return max(SOONEST_S, min(interval_s, next_s))


def _moments_of_replica(world: StageWorld, replica: ReplicaView) -> list[float]:
    moments_s = _moments_of_end(world, replica)
    if replica.phase in NOT_READY_YET:
        since_s, pool = world.launch_seen_since_s(replica), world.pools.get(replica.pool)
        if since_s is not None and pool is not None:
            moments_s.append(since_s + pool.spec.launch_timeout_s)
    return moments_s


def _moments_of_end(world: StageWorld, replica: ReplicaView) -> list[float]:
    drained_by_s, reap_after_s = finite(replica.drain_deadline_s), world.spec.drain.reap_after_s
    if not is_noticed(replica):
        return [] if drained_by_s is None else [drained_by_s, drained_by_s + reap_after_s]
    deadline_s = notice_deadline_s(replica, world.now_s)
    if not goes_by_itself(replica):
        due_s = min(deadline_s, drained_by_s or deadline_s)
        return [due_s, due_s + reap_after_s, deadline_s, deadline_s + reap_after_s]
    return [
        deadline_s + reap_after_s,
        # Nothing follows the deadline of one that has handed over.
        *([] if replica.phase is ReplicaPhase.DRAINED else [deadline_s]),
        *(_moments_of_leaving(world, deadline_s) if leaves_by_us(world, replica) else []),
    ]


def _moments_of_leaving(world: StageWorld, deadline_s: float) -> list[float]:
    leaves_at_s = deadline_s - DETACH_BEFORE_S
    return [world.now_s + HURRY_S if leaves_at_s <= world.now_s < deadline_s else leaves_at_s]


def _moments_of_size(world: StageWorld, memory: Memory, clamps: frozenset[ClampCode]) -> list[float]:
    rails = world.spec.guard_rails
    remembered = dict(memory.stages).get(world.spec.name)
    if remembered is None:
        return []
    changed_at_s, fresh_since_s = last_change_s(remembered), remembered.fresh_since_s
    up_s, down_s = changed_at_s + rails.cooldown_up_s, changed_at_s + rails.cooldown_down_s
    ends_s = {
        ClampCode.COOLDOWN_UP: up_s,
        ClampCode.COOLDOWN_DOWN: down_s,
        # The part of the way that this decision went starts the cool-down that holds the rest of it.
        ClampCode.STEP_UP: up_s,
        ClampCode.STEP_DOWN: down_s,
        ClampCode.DISRUPTION_BUDGET: down_s,
        ClampCode.NOT_FRESH_LONG_ENOUGH: None if fresh_since_s is None else fresh_since_s + rails.lower_after_fresh_s,
    }
    return [at_s for code, at_s in ends_s.items() if code in clamps and at_s is not None]
