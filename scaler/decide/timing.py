"""When to look again: at the next moment that could change a decision by itself, at the latest after an interval.

Those moments are deadlines of notices and drains, the last moment to leave a group before them, reaps, launch time-outs, ends
of cool-downs, of the wait for fresh signals and of refusal back-offs. Everything else comes with the next snapshot.
"""

from collections.abc import Iterable, Iterator

from scaler.decide.endings import DETACH_BEFORE_S, leaves_by_us
from scaler.decide.rails import last_change_s
from scaler.decide.world import NOT_READY_YET, StageWorld, finite, is_noticed, notice_deadline_s
from scaler.model.plan import Memory
from scaler.model.snapshot import ReplicaView

SOONEST_S = 0.1
"""A moment that is almost there must not make a busy loop."""
HURRY_S = 1.0
"""While a replica has to leave its group within seconds, whatever else has to come first."""


def look_again_in_s(worlds: Iterable[StageWorld], memory: Memory, now_s: float, interval_s: float) -> float:
    """Seconds until the next decision is due, between `SOONEST_S` and `interval_s`."""
    moments = (moment for world in worlds for moment in _moments(world, memory))
    next_s = min((moment - now_s for moment in moments if moment > now_s), default=interval_s)
    return max(SOONEST_S, min(interval_s, next_s))


def _moments(world: StageWorld, memory: Memory) -> Iterator[float]:
    for replica in world.restless:
        yield from _moments_of_replica(world, replica)
    yield from _moments_of_size(world, memory)
    for pool in world.pools.values():
        yield from pool.backoffs_end_s()


def _moments_of_replica(world: StageWorld, replica: ReplicaView) -> Iterator[float]:
    noticed = is_noticed(replica)
    deadline_s = notice_deadline_s(replica, world.now_s) if noticed else finite(replica.drain_deadline_s)
    if deadline_s is not None:
        yield deadline_s
        yield deadline_s + world.spec.drain.reap_after_s
    if noticed and deadline_s is not None:
        yield finite(replica.drain_deadline_s) or deadline_s
        if leaves_by_us(world, replica):
            leaves_at_s = deadline_s - DETACH_BEFORE_S
            yield world.now_s + HURRY_S if leaves_at_s <= world.now_s < deadline_s else leaves_at_s
    if replica.phase not in NOT_READY_YET:
        return
    since_s = world.launch_seen_since_s(replica)
    pool = world.pools.get(replica.pool)
    if since_s is not None and pool is not None:
        yield since_s + pool.spec.launch_timeout_s


def _moments_of_size(world: StageWorld, memory: Memory) -> Iterator[float]:
    rails = world.spec.guard_rails
    remembered = dict(memory.stages).get(world.spec.name)
    if remembered is None:
        return
    changed_at_s = last_change_s(remembered)
    yield changed_at_s + rails.cooldown_up_s
    yield changed_at_s + rails.cooldown_down_s
    if remembered.fresh_since_s is not None:
        yield remembered.fresh_since_s + rails.lower_after_fresh_s
