"""What of a fleet's life becomes a Kubernetes Event: changes, never states that go on.

A new size, a command that went wrong, an interruption notice, a pool or offering that refuses, a condition that turned, a
node that is drained. Each is made from two ticks or two statuses; none carries a list that grows with the fleet.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from scaler.kube.contract import NODES, ROLLOUT_FLEETS
from scaler.model.interruption import InterruptionNotice
from scaler.model.plan import Command, StagePlan
from scaler.model.snapshot import PoolView, Snapshot
from scaler.model.words import some_of
from scaler.runtime.conditions import ConditionType
from scaler.runtime.outcomes import Outcome, kind_of, subject_of
from scaler.telemetry.events import EventType, Involved, Note
from scaler.telemetry.readout import Readout

_BAD = frozenset({Outcome.REFUSED, Outcome.LOST, Outcome.UNAVAILABLE, Outcome.BROKEN})
_NAMED = 5
"""Instances that a message names; the others are counted."""


def fleet_of(namespace: str, name: str, uid: str) -> Involved:
    """A fleet, as what Events are about."""
    return Involved(
        api_version=ROLLOUT_FLEETS.api_version, kind=ROLLOUT_FLEETS.kind, name=name, namespace=namespace, uid=uid
    )


def node_of(name: str) -> Involved:
    """A node. Its Events carry its name as UID, as the kubelet's do: `kubectl describe node` looks for that."""
    return Involved(api_version=NODES.api_version, kind=NODES.kind, name=name, uid=name)


def of_ticks(before: Readout | None, after: Readout) -> Iterator[Note]:
    """What a tick brought: sizes that changed, notices, refusals."""
    yield from _sizes(before, after)
    if after.snapshot is not None:
        earlier = before.snapshot if before else None
        yield from _notices(earlier, after.snapshot)
        yield from _refusals(earlier, after.snapshot)


def of_conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    """Conditions that turned between two statuses. One that was never judged before is told only where it is bad."""
    old = {each["type"]: each["status"] for each in before.get("conditions") or ()}
    for each in after.get("conditions") or ():
        kind, status = each["type"], each["status"]
        bad = status == ("True" if kind == ConditionType.PAUSED else "False")
        if old.get(kind) == status or (kind not in old and not bad):
            continue
        yield Note(
            reason=_turned(kind, status),
            message=f"{kind} is {status}: {each['reason']}: {each['message']}",
            type=EventType.WARNING if bad else EventType.NORMAL,
        )


def _turned(kind: str, status: str) -> str:
    if kind == ConditionType.PAUSED:
        return "Paused" if status == "True" else "Resumed"
    return kind + {"True": "", "False": "Lost"}.get(status, "Unknown")


def of_outcome(command: Command, outcome: Outcome, message: str) -> Note | None:
    """A command that went wrong."""
    if outcome not in _BAD:
        return None
    kind = kind_of(command).value
    return Note(
        reason=f"{kind.capitalize()}{outcome.value.capitalize()}",
        message=f"{kind} of {subject_of(command)} in pool {command.pool}: {message or outcome.value}",
        type=EventType.WARNING,
    )


def of_node_drain(node: str, *, why: str, deadline: str) -> Note:
    """A node that we drain."""
    return Note(reason="HeadraceDraining", message=f"drained by {deadline}: {why}", about=node_of(node))


def _sizes(before: Readout | None, after: Readout) -> Iterator[Note]:
    old = {stage.stage: stage for stage in before.plan.stages} if before and before.plan else {}
    for stage in after.plan.stages if after.plan else ():
        earlier = old.get(stage.stage)
        if earlier is None or (earlier.desired, earlier.reason.code) != (stage.desired, stage.reason.code):
            yield _size(stage, earlier)


def _size(stage: StagePlan, earlier: StagePlan | None) -> Note:
    code = stage.reason.code.value
    held = code.startswith("hold_")
    sizes = f"{earlier.desired} -> {stage.desired}" if earlier else f"{stage.desired}"
    return Note(
        reason="".join(word.capitalize() for word in code.split("_")),
        message=f"{stage.stage}: {sizes} replicas wanted, {stage.observed} there: {stage.reason.message}",
        type=EventType.WARNING if held else EventType.NORMAL,
    )


def _notices(before: Snapshot | None, after: Snapshot) -> Iterator[Note]:
    known = {(each.instance_id, each.kind) for each in _standing(before)}
    fresh: dict[str, list[str]] = {}
    for notice in _standing(after):
        if (notice.instance_id, notice.kind) not in known:
            fresh.setdefault(notice.kind.value, []).append(notice.instance_id)
    for kind, instances in sorted(fresh.items()):
        yield Note(
            reason="Notice" + "".join(word.capitalize() for word in kind.split("_")),
            message=f"{len(instances)} {kind.replace('_', ' ')}: {some_of(sorted(instances), _NAMED)}",
            type=EventType.WARNING,
        )


def _standing(snapshot: Snapshot | None) -> Iterator[InterruptionNotice]:
    for stage in snapshot.stages if snapshot else ():
        for replica in stage.replicas:
            if replica.notice is not None:
                yield replica.notice


def _refusals(before: Snapshot | None, after: Snapshot) -> Iterator[Note]:
    """Pools that may not be acted on, and offerings that were refused anew."""
    known = {pool.name: pool for stage in before.stages for pool in stage.pools} if before else {}
    for stage in after.stages:
        for pool in stage.pools:
            earlier = known.get(pool.name)
            if pool.refused_reason and pool.refused_reason != (earlier.refused_reason if earlier else None):
                yield Note(
                    reason="PoolRefused", message=f"pool {pool.name}: {pool.refused_reason}", type=EventType.WARNING
                )
            yield from _refused_offerings(pool, earlier)


def _refused_offerings(pool: PoolView, earlier: PoolView | None) -> Iterator[Note]:
    last = {view.offering.offering_id: view.refused_at_s for view in earlier.offerings} if earlier else {}
    anew = [
        view.offering.offering_id
        for view in pool.offerings
        if view.refused_at_s is not None and view.refused_at_s != last.get(view.offering.offering_id)
    ]
    if anew:
        yield Note(
            reason="CapacityRefused",
            message=f"pool {pool.name}: no capacity of {', '.join(anew[:_NAMED])}",
            type=EventType.WARNING,
        )
