"""A world where nothing happens but the plan: each command has had its full effect, and no time has passed."""

from dataclasses import replace
from typing import Any

from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    Plan,
    ReleaseReplicaWork,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.snapshot import ReplicaView, Snapshot, StageView


def after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot that shows a plan carried out."""
    stages = (_stage_after(stage, plan, snapshot.now_s) for stage in snapshot.stages)
    return replace(snapshot, stages=tuple(stages))


def _stage_after(stage: StageView, plan: Plan, now_s: float) -> StageView:
    mine = [command for command in plan.commands if command.stage == stage.name]
    by_name = {command.replica_id: command for command in mine if not isinstance(command, LaunchReplica)}
    kept = (_replica_after(replica, by_name.get(replica.replica_id)) for replica in stage.replicas)
    launched = (_launched(command, now_s) for command in mine if isinstance(command, LaunchReplica))
    return replace(stage, replicas=(*(replica for replica in kept if replica is not None), *launched))


def _launched(command: LaunchReplica, now_s: float) -> ReplicaView:
    return ReplicaView(
        replica_id=command.token,
        pool=command.pool,
        offering_id=command.offering_id,
        phase=ReplicaPhase.REQUESTED,
        launched_at_s=now_s,
        launch_token=command.token,
    )


def _replica_after(replica: ReplicaView, command: Command | None) -> ReplicaView | None:
    if isinstance(command, TerminateReplica) and not command.instance_ids:
        return None
    return replace(replica, **_changes(replica, command))


def _changes(replica: ReplicaView, command: Command | None) -> dict[str, Any]:
    match command:
        case DrainReplica(deadline_s=deadline_s, reason=reason):
            return {"phase": ReplicaPhase.DRAINING, "drain_deadline_s": deadline_s, "drain_reason": reason.code.value}
        case UndrainReplica():
            return {"phase": ReplicaPhase.READY, "drain_deadline_s": None, "drain_reason": None}
        case ReleaseReplicaWork():
            gone = replica.phase is ReplicaPhase.TERMINATING
            phase = ReplicaPhase.TERMINATING if gone else ReplicaPhase.DRAINED
            return {"phase": phase, "running_units": 0, "unpublished_tokens": 0}
        case DetachReplica():
            return {"attached": False}
        case TerminateReplica():
            return {"phase": ReplicaPhase.TERMINATING, "running_units": 0}
        case _:
            return {}
