"""Trainers: found, and protected, as the guard judges them. Nothing is repaired."""

from collections.abc import Mapping, Sequence

from scaler.commands.doctor_checks.base import Level, Line, not_looked, ok
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.config.convert import to_spec
from scaler.decide.trainers import guard
from scaler.guard.watch import trainers_of
from scaler.model.trainers import Finding, GuardSettings, Severity
from scaler.observe.trainers import Ports, TrainerObserver
from scaler.runtime.cluster.pools import places_of

_LEVELS: Mapping[Severity, Level] = {
    Severity.ALARM: Level.FAIL,
    Severity.REPAIRABLE: Level.WARN,
    Severity.UNKNOWN: Level.NOT_LOOKED,
    Severity.WARN: Level.WARN,
}
_REMEDIES: Mapping[Severity, str] = {
    Severity.ALARM: "as it says; deploy/runbooks/trainer-findings.md",
    Severity.REPAIRABLE: "the guard mends it, unless the fleet is paused or a dry run",
    Severity.UNKNOWN: "look with more rights; trainers.watch in the chart's values gives them to the controller",
    Severity.WARN: "deploy/runbooks/trainer-findings.md",
}


async def trainers(world: ClusterWorld) -> Sequence[Line]:
    """A line for each finding, and one for each trainer without any."""
    fleet = world.fleet
    if fleet is None or not fleet.spec.trainers:
        return [] if fleet is not None else [not_looked("trainers", "the fleet is not known", "see its line")]
    if trouble := await world.listed():
        return [not_looked("trainers", trouble, "look with more rights")]
    specs = trainers_of(to_spec(fleet))
    ports = Ports(kube=world.kube, nodes=world.nodes, pods=world.pods, aws=world.access.aws, clock=world.clock)
    facts = await TrainerObserver(ports).read(specs)
    lines = []
    for spec, seen in zip(specs, facts, strict=True):
        findings = guard(seen, GuardSettings(trainer=spec, rollout_places=places_of(fleet)), world.clock.now_s())
        lines += [_line(each) for each in findings]
        if not findings:
            lines.append(ok(f"trainer {spec.name}", f"{len(seen.pods)} pods, and nothing would take them away"))
    return lines


def _line(finding: Finding) -> Line:
    return Line(
        level=_LEVELS[finding.severity],
        about=f"trainer {finding.trainer}, {finding.check}",
        found=f"{finding.subject_kind} {finding.subject}: {finding.message}",
        remedy=_REMEDIES[finding.severity],
    )
