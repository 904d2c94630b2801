"""The controller's settings, the definition, the fleet's object, and what the controller says of it: its conditions."""

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.commands.doctor_checks import http_probes
from scaler.commands.doctor_checks.base import Level, Line, fail, not_looked, ok, warn
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.commands.validate import controller_summary, summary
from scaler.kube.contract import Denied, KubeError, NotFound
from scaler.runtime.conditions import ConditionType
from scaler.runtime.kube_config import definition_state

_CLOCK_MOST_S = 5.0


async def settings(world: ClusterWorld) -> Sequence[Line]:
    """As `headrace validate` says, and whether they look where the fleet is."""
    found, about, place = world.access.settings, "settings of the controller", world.access.namespace
    if found is None:
        return [not_looked(about, "not named; its defaults are assumed", "-f controller.yaml, or look from its pod")]
    lines = [ok(about, controller_summary(found).removeprefix("ok: "))]
    if found.spec.namespaces and place not in found.spec.namespaces:
        lines.append(fail(about, f"no fleet of namespace {place} is looked for", "add it to spec.namespaces"))
    return lines


async def api_server(world: ClusterWorld) -> Sequence[Line]:
    """Who asks, and how far its clock is from ours."""
    lines = [ok("API server", f"answers {world.user or 'somebody whom it does not name'}")]
    ahead_s = world.kube.ahead_s()
    if ahead_s is not None:
        lines.append(_clock("clock of the API server", ahead_s))
    return lines


def _clock(about: str, ahead_s: float) -> Line:
    found = f"{ahead_s:+.1f} s from ours"
    if abs(ahead_s) > _CLOCK_MOST_S:
        return warn(about, found, "set the clocks (chrony): leases and deadlines are told by them")
    return ok(about, found)


async def definition(world: ClusterWorld) -> Sequence[Line]:
    """As the controller judges it."""
    about, remedy = "definition", "kubectl apply -f deploy/crd/rolloutfleets.headrace.dev.yaml of this release"
    try:
        current, message = await definition_state(world.kube)
    except KubeError as error:
        return [not_looked(about, str(error), "look with more rights")]
    return [ok(about, message) if current else fail(about, message, remedy)]


async def fleet(world: ClusterWorld) -> Sequence[Line]:
    """Its object, and whether its spec can be used."""
    about = f"fleet {world.access.namespace}/{world.access.name}"
    if isinstance(world.trouble, NotFound):
        return [fail(about, "there is none", "kubectl get rolloutfleets -A; deploy/examples has some")]
    if world.trouble is not None:
        kind = not_looked if isinstance(world.trouble, Denied) else fail
        return [kind(about, str(world.trouble), "look with more rights, or once it answers")]
    remedy = "mend the spec; until then the controller goes on with the one accepted last, if there is one"
    if world.faults:
        return [fail(about, each, remedy) for each in world.faults]
    return [ok(about, summary(world.fleet).removeprefix("ok: "))] if world.fleet is not None else []


async def lease(world: ClusterWorld) -> Sequence[Line]:
    """See `doctor_checks.lease`."""
    return [world.lease.line]


async def endpoint(world: ClusterWorld) -> Sequence[Line]:
    """Of the controller of this pod, which leads or stands by."""
    heard = world.access.heard
    if heard is None:
        about = http_probes.ABOUT
        return [not_looked(about, "this is not its pod", world.in_its_pod)]
    return http_probes.lines_of(heard, runs=True)


async def conditions(world: ClusterWorld) -> Sequence[Line]:
    """What the controller says in the fleet's status, as long as one leads that could say it."""
    if world.body is None:
        return [not_looked("conditions", "the fleet is not known", "see the line on the fleet")]
    told = world.status.get("conditions") or ()
    if not told:
        remedy = "see the log of the controller that leads" if world.lease.leads else "start the controller"
        return [
            (fail if world.lease.leads else not_looked)("conditions", "no controller has judged this fleet", remedy)
        ]
    if world.lease.leads is False:
        return [not_looked("conditions", "told by a controller that leads no more", "start the controller")]
    told_by = (world.status.get("leader") or {}).get("epoch", 0)
    if world.lease.leads and told_by != world.lease.epoch:
        found = f"told by the leader of epoch {told_by}, and {world.lease.epoch} leads now"
        return [not_looked("conditions", found, "wait a moment; then see the log of the controller that leads")]
    wanted, seen = world.body["metadata"].get("generation", 0), world.status.get("observedGeneration", 0)
    lines = [_condition(each) for each in told if not _only_repeats(each)]
    if wanted != seen:
        found = f"they are of generation {seen}, the spec is of {wanted}"
        lines.append(warn("conditions", found, "wait a moment; then see the log of the controller that leads"))
    return lines


def _only_repeats(condition: Mapping[str, Any]) -> bool:
    """`Ready` names the other condition that fails."""
    kinds = {str(kind) for kind in ConditionType}
    return condition.get("type") == ConditionType.READY and condition.get("reason") in kinds


def _condition(condition: Mapping[str, Any]) -> Line:
    kind, status = str(condition.get("type")), condition.get("status")
    about = f"condition {kind}"
    found = f"{condition.get('reason')}: {condition.get('message')}"
    level, remedy = _JUDGED.get(kind, (Level.FAIL, "see the log of the controller that leads"))
    if kind == ConditionType.PAUSED:
        return ok(about, found) if condition.get("reason") == "Running" else warn(about, found, remedy)
    if status == "True":
        return ok(about, found)
    if status == "False":
        return Line(level=level, about=about, found=found, remedy=remedy)
    return not_looked(about, found, "nothing, if it is meant so")


_JUDGED: Mapping[str, tuple[Level, str]] = {
    ConditionType.ACCEPTED: (Level.FAIL, "mend the spec"),
    ConditionType.SCHEMA_CURRENT: (Level.FAIL, "deploy/runbooks/upgrade.md"),
    ConditionType.SIGNALS_FRESH: (Level.FAIL, "see that the trainer runs and reports; deploy/runbooks/store-away.md"),
    ConditionType.CAPACITY_SATISFIED: (Level.WARN, "nothing where capacity is short; else see the pools below"),
    ConditionType.TRAINER_PROTECTED: (Level.FAIL, "deploy/runbooks/trainer-findings.md"),
    ConditionType.INTERRUPTION_SOURCES_HEALTHY: (Level.FAIL, "deploy/runbooks/notice-source-unhealthy.md"),
    ConditionType.SOLE_OWNER: (Level.FAIL, "deploy/runbooks/two-owners.md"),
    ConditionType.PAUSED: (Level.WARN, "set spec.paused: false and spec.dryRun: false when it is to act"),
}
"""How bad it is that a condition does not hold, and where to read on."""
