"""The status of a fleet in the cluster: what is wanted, asked for and there, why, and what holds and what does not.

Policy: everything is made of the newest tick; of the status before only two things are taken: since when a condition that
has not turned is so, and the last plan while no newer one asked for anything. Texts and lists are bounded.
Invariants: a condition's `lastTransitionTime` changes when its status does, and only then; every condition is there always.
Non-goals: history, which Events and the journal have; writing it (`status_writer`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.config.crd_status import MAX_COMMANDS, MAX_TEXT
from scaler.kube.contract import Json
from scaler.model.plan import Clamp, Command, Plan, Reason, StagePlan
from scaler.model.snapshot import PoolView, Snapshot, StageView
from scaler.model.units import utc_text
from scaler.runtime.conditions import ConditionType, Judgement, Surroundings, judge
from scaler.runtime.kube_config import ConfigState
from scaler.runtime.outcomes import kind_of, subject_of
from scaler.telemetry.readout import Readout

_WORDS = {True: "True", False: "False", None: "Unknown"}


def status_of(readout: Readout, config: ConfigState, around: Surroundings, previous: Mapping[str, Any]) -> Json:
    """The whole status. `previous` is the object's status as it is now."""
    found: Json = {
        "observedGeneration": config.generation,
        "configDigest": config.digest,
        "paused": config.paused,
        "dryRun": config.dry_run,
        "conditions": conditions_of(
            judge(readout, config, around), config, around.now_s, previous.get("conditions") or ()
        ),
        "lastAccepted": config.accepted.to_json(),
    }
    if readout.leading:
        found["leader"] = {"identity": around.identity, "epoch": readout.leader_epoch}
    plan = _last_plan(readout.plan, readout.decided_at_s, previous)
    if plan is not None:
        found["lastPlan"] = plan
    if readout.plan is not None and readout.plan.stages:
        found |= _sizes(readout.plan)
        found["stages"] = [_stage(stage, readout.snapshot, readout.pools_away) for stage in readout.plan.stages]
    return found


def conditions_of(
    judged: Mapping[ConditionType, Judgement], config: ConfigState, now_s: float, previous: Sequence[Mapping[str, Any]]
) -> list[Json]:
    """The conditions as a list, each with the time since when it is so."""
    before = {each.get("type"): each for each in previous}
    found = []
    for kind, judgement in judged.items():
        status, old = _WORDS[judgement.holds], before.get(kind.value, {})
        turned = old.get("status") != status or not old.get("lastTransitionTime")
        found.append(
            {
                "type": kind.value,
                "status": status,
                "observedGeneration": config.generation,
                "lastTransitionTime": utc_text(now_s) if turned else old["lastTransitionTime"],
                "reason": judgement.reason,
                "message": text(judgement.message),
            }
        )
    return found


def text(message: str) -> str:
    """A message of bounded length, without what does not print."""
    cut = message if len(message) <= MAX_TEXT else message[: MAX_TEXT - 3] + "..."
    return "".join(char if char.isprintable() else " " for char in cut)


def _sizes(plan: Plan) -> Json:
    """What all stages are together; the reason is the first stage's."""
    return {
        "desired": sum(stage.desired for stage in plan.stages),
        "requested": sum(stage.requested for stage in plan.stages),
        "observed": sum(stage.observed for stage in plan.stages),
        "ready": sum(stage.ready for stage in plan.stages),
        "spendUsdPerH": f"{sum(stage.spend_usd_per_h for stage in plan.stages):.2f}",
        "reason": plan.stages[0].reason.code.value,
    }


def _stage(stage: StagePlan, snapshot: Snapshot | None, away: Mapping[str, int]) -> Json:
    views = {view.name: view for view in snapshot.stages} if snapshot else {}
    view = views.get(stage.stage)
    return {
        "name": stage.stage,
        "desired": stage.desired,
        "requested": stage.requested,
        "observed": stage.observed,
        "ready": stage.ready,
        "spendUsdPerH": f"{stage.spend_usd_per_h:.2f}",
        "policy": stage.policy,
        "reason": _reason(stage.reason),
        "pools": [_pool(pool, view, away) for pool in view.pools] if view else [],
    }


def _reason(reason: Reason) -> Json:
    return {
        "code": reason.code.value,
        "message": text(reason.message),
        "clamps": [_clamp(each) for each in reason.clamps],
    }


def _clamp(clamp: Clamp) -> Json:
    return {"code": clamp.code.value, "wanted": f"{clamp.wanted:g}", "allowed": f"{clamp.allowed:g}"}


def _pool(pool: PoolView, stage: StageView, away: Mapping[str, int]) -> Json:
    found: Json = {"name": pool.name, "replicas": sum(replica.pool == pool.name for replica in stage.replicas)}
    if pool.refused_reason:
        found["refused"] = text(pool.refused_reason)
    if away.get(pool.name):
        found["failedLists"] = away[pool.name]
    return found


def _last_plan(plan: Plan | None, decided_at_s: float | None, previous: Mapping[str, Any]) -> Json | None:
    if plan is None or not plan.commands:
        return previous.get("lastPlan")
    shown = [_command(command) for command in plan.commands[:MAX_COMMANDS]]
    before = previous.get("lastPlan") or {}
    repeated = before.get("commands") == shown
    return {
        "decidedAt": before["decidedAt"] if repeated else utc_text(decided_at_s or 0.0),
        "commands": shown,
        "commandsOmitted": len(plan.commands) - len(shown),
    }


def _command(command: Command) -> Json:
    return {
        "kind": kind_of(command).value,
        "stage": command.stage,
        "pool": command.pool,
        "subject": subject_of(command),
        "reason": command.reason.code.value,
        "message": text(command.reason.message),
    }
