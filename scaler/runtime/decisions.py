"""A decision as JSON: what the journal keeps, the status shows and `explain` prints."""

from typing import Any

from scaler.model.plan import Command, DrainReplica, LaunchReplica, Plan, Reason, StagePlan
from scaler.runtime.outcomes import kind_of, subject_of


def decision_json(plan: Plan, config_digest: str, leader_epoch: int) -> dict[str, Any]:
    """The plan: sizes, reasons and clamps of each stage, and every command with its reason."""
    return {
        "config": config_digest,
        "leader_epoch": leader_epoch,
        "stages": [stage_json(stage) for stage in plan.stages],
        "commands": [_command(command) for command in plan.commands],
    }


def stage_json(stage: StagePlan) -> dict[str, Any]:
    """One stage's sizes, the reason and the guard rails that had a word."""
    return {
        "stage": stage.stage,
        "desired": stage.desired,
        "requested": stage.requested,
        "observed": stage.observed,
        "ready": stage.ready,
        "policy": stage.policy,
        "spend_usd_per_h": stage.spend_usd_per_h,
        "reason": _reason(stage.reason),
    }


def _command(command: Command) -> dict[str, Any]:
    body: dict[str, Any] = {
        "kind": kind_of(command).value,
        "stage": command.stage,
        "pool": command.pool,
        "subject": subject_of(command),
        "reason": _reason(command.reason),
    }
    if isinstance(command, LaunchReplica):
        body["offering"] = command.offering_id
    if isinstance(command, DrainReplica):
        body["deadline_s"] = command.deadline_s
    return body


def _reason(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code.value,
        "message": reason.message,
        "inputs": dict(reason.inputs),
        "clamps": [
            {"code": clamp.code.value, "wanted": clamp.wanted, "allowed": clamp.allowed} for clamp in reason.clamps
        ],
    }
