"""How replicas end: what must follow from notices, deadlines, finished drains and launches that failed.

Policy, at most one command for a replica:
* noticed, not yet draining by that deadline -> DrainReplica with the notice's deadline, until the snapshot shows it; one that is
  being ended already too, while its worker still holds units; none whose worker has said goodbye, which no order can reach;
* past its deadline and not drained -> ReleaseReplicaWork, so that its units go on elsewhere;
* noticed and handed over, or `DETACH_BEFORE_S` before its deadline, in a group that would replace it -> DetachReplica;
* taken by the cloud -> never ended by us (the refund of its first hour would be lost) before deadline + `reap_after_s`;
  then REAP, once it is drained: one that nobody told in time has its work released first;
* to go for another reason (a scheduled change, a disrupted node) -> drained at once, in no more time than a victim of our own
  choice has, since the announced end may be days ahead; where the replacement is ours, it is then ended by us likewise;
* drained by our own choice -> TerminateReplica; still draining past its deadline -> its work is released, then it is ended;
* gone without notice while its worker still holds units -> ReleaseReplicaWork: nobody has to wait for the leases to run out;
* a launch that took too long -> ended where no worker registered, else drained first; time in which the ledger could not be
  asked does not count, since nobody would have seen the worker.

Invariants: notices are served whatever else holds (paused, stale signals), unless the pool was never listed; everything
that is our own choice waits while paused, and while the pool's list is old or the pool is refused.
Non-goals: sizes; whether a replacement is needed follows from what still counts as capacity.
"""

from scaler.decide.world import ON_ITS_WAY_OUT, StageWorld, finite, is_noticed, notice_deadline_s
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import BINDING, TAKEN_BY_CLOUD, NoticeKind
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    Reason,
    ReasonCode,
    ReleaseReplicaWork,
    TerminateReplica,
)
from scaler.model.snapshot import ReplicaView

_LEAVES_GROUP = TAKEN_BY_CLOUD | {NoticeKind.LIFECYCLE_HOOK}
"""Kinds whose instance is ended by others, at once after its deadline."""
DEADLINE_TOLERANCE_S = 1.0
"""Two clocks stand between a deadline as ordered and as shown; less than this is the same deadline."""
DETACH_BEFORE_S = 10.0
"""A noticed instance leaves its group this long before its deadline at the latest: later the group may see it end first."""


def endings(world: StageWorld) -> tuple[Command, ...]:
    """The commands that must be given whatever the size, in order of replica id."""
    endings_of = [(replica, _ending(world, replica)) for replica in world.restless]
    return tuple([command for replica, command in endings_of if command is not None and world.listed(replica)])


def _ending(world: StageWorld, replica: ReplicaView) -> Command | None:
    if is_noticed(replica):
        return _noticed(world, replica)
    if is_lost(replica):
        return _release_lost(world, replica)
    if replica.phase is ReplicaPhase.READY or not world.may_end(replica):
        return None
    if replica.phase is ReplicaPhase.DRAINED:
        return terminate(world, replica, _because(ReasonCode.DRAINED, "drained: it holds no lease"))
    if replica.phase is ReplicaPhase.DRAINING:
        return _overdue(world, replica)
    return _give_up(world, replica) if world.failed_launch(replica) else None


def is_lost(replica: ReplicaView) -> bool:
    """Whether a complete list holds none of its instances any more, and its worker still holds units."""
    return replica.phase is ReplicaPhase.TERMINATING and not replica.instance_ids and replica.running_units > 0


def _release_lost(world: StageWorld, replica: ReplicaView) -> ReleaseReplicaWork | None:
    """Right or wrong, this is harmless: who still held a unit is fenced off and stops."""
    if replica.worker is None:
        return None
    reason = _because(ReasonCode.INSTANCE_LOST, "its instance is gone without notice: its work goes on elsewhere")
    return _release_work(world, replica, replica.worker, reason)


def goes_by_itself(replica: ReplicaView) -> bool:
    """Whether others end a noticed replica, at once after its deadline. A notice that only its mark tells of is taken for one."""
    notice = replica.notice
    return notice is None or notice.kind not in BINDING or notice.kind in _LEAVES_GROUP


def _noticed(world: StageWorld, replica: ReplicaView) -> Command | None:
    deadline_s = notice_deadline_s(replica, world.now_s)
    if replica.phase is ReplicaPhase.TERMINATING:
        return _hand_over(world, replica, deadline_s) if replica.running_units > 0 else None
    if not shows_drain_by(replica, deadline_s) and world.now_s < deadline_s:
        return _drain_for_notice(world, replica, deadline_s)
    if not goes_by_itself(replica):
        return _announced(world, replica, deadline_s)
    if world.now_s >= deadline_s and _holds_work(replica):
        return _release(world, replica, deadline_s)
    if leaves_by_us(world, replica) and _is_time_to_leave(world, replica, deadline_s):
        return _detach(world, replica)
    return _reap(world, replica, deadline_s)


def _hand_over(world: StageWorld, replica: ReplicaView, deadline_s: float) -> Command | None:
    """Of one that others end already: who evicts at once, as Karpenter does, leaves its worker running for a while."""
    if replica.instance_ids and not shows_drain_by(replica, deadline_s) and world.now_s < deadline_s:
        return _drain_for_notice(world, replica, deadline_s)
    return _release(world, replica, deadline_s)


def _holds_work(replica: ReplicaView) -> bool:
    return replica.worker is not None and replica.phase is not ReplicaPhase.DRAINED


def _is_time_to_leave(world: StageWorld, replica: ReplicaView, deadline_s: float) -> bool:
    return replica.phase is ReplicaPhase.DRAINED or world.now_s >= deadline_s - DETACH_BEFORE_S


def leaves_by_us(world: StageWorld, replica: ReplicaView) -> bool:
    """Whether it is in a group that would replace it, and leaves that by our doing. Paused fleets too: a notice is served."""
    pool = world.pools.get(replica.pool)
    detaches = pool is not None and pool.spec.duties.detaches and pool.listed
    return detaches and replica.attached and bool(replica.instance_ids) and goes_by_itself(replica)


def _announced(world: StageWorld, replica: ReplicaView, deadline_s: float) -> Command | None:
    """One that goes some time, and was told to hand over before."""
    ours = world.may_end(replica) and world.pools[replica.pool].spec.duties.replaces
    draining = shows_drain_by(replica, deadline_s)
    if replica.phase is ReplicaPhase.DRAINED and draining and ours:
        return terminate(world, replica, _because(ReasonCode.DRAINED, "it has to go, and has handed over"))
    due_s = min(deadline_s, finite(replica.drain_deadline_s) or deadline_s) if draining else deadline_s
    if world.now_s < due_s:
        return None
    let_go = replica.running_units <= 0 or world.now_s >= due_s + world.spec.drain.reap_after_s
    if draining and ours and let_go:
        return terminate(world, replica, _because(ReasonCode.DEADLINE_PASSED, "its drain's deadline has passed"))
    if _holds_work(replica):
        return _release(world, replica, due_s)
    return _reap(world, replica, deadline_s)


def _detach(world: StageWorld, replica: ReplicaView) -> DetachReplica:
    return DetachReplica(
        stage=world.spec.name,
        pool=replica.pool,
        replica_id=replica.replica_id,
        instance_ids=replica.instance_ids,
        reason=_because(ReasonCode.LEAVES_GROUP, "noticed and handed over: its group is not to replace it"),
    )


def _reap(world: StageWorld, replica: ReplicaView, deadline_s: float) -> TerminateReplica | None:
    late_s = world.now_s - deadline_s
    if late_s < max(0.0, world.spec.drain.reap_after_s) or not world.may_end(replica):
        return None
    return terminate(world, replica, _because(ReasonCode.REAP, f"still here {late_s:.0f} s after its deadline"))


def shows_drain_by(replica: ReplicaView, deadline_s: float) -> bool:
    """Whether a noticed replica needs no order to drain by then: it has one, or its worker has said goodbye."""
    if replica.phase is ReplicaPhase.DRAINED and replica.drain_deadline_s is None:
        return True
    shown_s = finite(replica.drain_deadline_s)
    return replica.phase in ON_ITS_WAY_OUT and shown_s is not None and shown_s <= deadline_s + DEADLINE_TOLERANCE_S


def _drain_for_notice(world: StageWorld, replica: ReplicaView, deadline_s: float) -> DrainReplica:
    left_s = deadline_s - world.now_s
    kind = NoticeKind.SPOT_INTERRUPTION if replica.notice is None else replica.notice.kind
    reason = _because(ReasonCode.NOTICE, f"{kind.replace('_', ' ')}: it goes in {left_s:.0f} s", left_s=left_s)
    if not goes_by_itself(replica):
        deadline_s = min(deadline_s, world.now_s + world.spec.drain.voluntary_deadline_s)
    return drain(world, replica, deadline_s, reason)


def _release(world: StageWorld, replica: ReplicaView, deadline_s: float) -> ReleaseReplicaWork | None:
    """None before the deadline, and where no worker ever registered."""
    if replica.worker is None or world.now_s < deadline_s:
        return None
    reason = _because(ReasonCode.DEADLINE_PASSED, "its deadline has passed: its work goes on elsewhere")
    return _release_work(world, replica, replica.worker, reason)


def _release_work(world: StageWorld, replica: ReplicaView, worker: str, reason: Reason) -> ReleaseReplicaWork:
    return ReleaseReplicaWork(
        stage=world.spec.name, pool=replica.pool, replica_id=replica.replica_id, worker=worker, reason=reason
    )


def _overdue(world: StageWorld, replica: ReplicaView) -> Command | None:
    """A drain of our own choice that did not end in time. Without a deadline it is not our drain: wait."""
    deadline_s = finite(replica.drain_deadline_s)
    if deadline_s is None or world.now_s < deadline_s:
        return None
    patience_s = world.spec.drain.reap_after_s
    if replica.running_units > 0 and replica.worker is not None and world.now_s < deadline_s + patience_s:
        return _release(world, replica, deadline_s)
    return terminate(world, replica, _because(ReasonCode.DEADLINE_PASSED, "its drain's deadline has passed"))


def _give_up(world: StageWorld, replica: ReplicaView) -> Command:
    timeout_s = world.pools[replica.pool].spec.launch_timeout_s
    reason = _because(ReasonCode.REPLACE_FAILED_LAUNCH, f"not ready {timeout_s:.0f} s after its launch")
    return end_or_drain(world, replica, reason)


def end_or_drain(world: StageWorld, replica: ReplicaView, reason: Reason) -> Command:
    """Drain a replica whose worker is known; end one at once that has none and so holds nothing."""
    if replica.worker is None:
        return terminate(world, replica, reason)
    return drain(world, replica, world.now_s + world.spec.drain.voluntary_deadline_s, reason)


def drain(world: StageWorld, replica: ReplicaView, deadline_s: float, reason: Reason) -> DrainReplica:
    """Order a replica to hand over; a notice that stands is part of the command."""
    return DrainReplica(
        stage=world.spec.name,
        pool=replica.pool,
        replica_id=replica.replica_id,
        worker=replica.worker,
        instance_ids=replica.instance_ids,
        deadline_s=deadline_s,
        reason=reason,
        notice=replica.notice if is_noticed(replica) else None,
    )


def terminate(world: StageWorld, replica: ReplicaView, reason: Reason) -> TerminateReplica:
    """End a replica's instances, all of them."""
    return TerminateReplica(
        stage=world.spec.name,
        pool=replica.pool,
        replica_id=replica.replica_id,
        instance_ids=replica.instance_ids,
        reason=reason,
    )


def _because(code: ReasonCode, message: str, **inputs: float) -> Reason:
    return Reason(code=code, message=message, inputs=tuple(inputs.items()))
