"""Trainers: found, and protected, as the guard judges them. Nothing is repaired."""

from collections.abc import Mapping, Sequence

from scaler.commands.doctor_checks.base import Level, Line, not_looked, ok
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.config.convert import to_spec
from scaler.decide.trainers import guard
from scaler.guard.watch import trainers_of
from scaler.model.trainers import Finding, GuardSettings, Severity
from scaler.model.words import some_of
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


_NAMED = 3
"""Of those that the same is wrong with: a trainer has dozens of nodes, all made from one template."""


async def trainers(world: ClusterWorld) -> Sequence[Line]:
    """A line for each thing that is wrong, with what it is wrong with, and one for each trainer that nothing is wrong with."""
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
        lines += lines_of(findings)
        if not findings:
            lines.append(ok(f"trainer {spec.name}", f"{len(seen.pods)} pods, and nothing would take them away"))
    return lines


def lines_of(findings: Sequence[Finding]) -> list[Line]:
    """One for each thing that is wrong, however many it is wrong with."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        alike.setdefault((each.trainer, each.check, each.subject_kind, each.severity, each.message), []).append(each)
    return [_line(those[0], [each.subject for each in those]) for those in alike.values()]


def _line(finding: Finding, subjects: Sequence[str]) -> Line:
    return Line(
        level=_LEVELS[finding.severity],
        about=f"trainer {finding.trainer}, {finding.check}",
        found=f"{finding.subject_kind} {some_of(subjects, _NAMED)}: {finding.message}",
        remedy=_REMEDIES[finding.severity],
    )
