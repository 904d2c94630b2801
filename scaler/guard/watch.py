"""The trainers' guard at work: look, judge, repair what is allowed, and say so; once every reconcile interval.

Policy: repairs are made by the leader only, and not while the fleet is paused or dry-run; looking and refusing go on always.
Invariants: a look that fails changes nothing that is protected; findings that could not be made are `UNKNOWN`, never gone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from scaler.act.trainer_repairs import RepairOutcome, RepairResult, TrainerRepairs
from scaler.decide.trainers import guard, protected
from scaler.guard.protect import Protector
from scaler.model.clock import Clock
from scaler.model.spec import FleetSpec
from scaler.model.trainer_facts import TrainerFacts
from scaler.model.trainers import CheckCode, Finding, GuardSettings, Severity, SubjectKind, TrainerSpec
from scaler.observe.trainers import TrainerObserver

log = structlog.get_logger()

_MENDED = frozenset({RepairOutcome.DONE, RepairOutcome.ALREADY})
_COMES_AGAIN = frozenset({RepairOutcome.LIMITED, RepairOutcome.PRECONDITION})


def trainers_of(spec: FleetSpec) -> tuple[TrainerSpec, ...]:
    """The fleet's trainers, each with its namespace: the fleet's, or Kubernetes' own default where that has none."""
    own = spec.namespace or "default"
    return tuple(trainer if trainer.namespace else replace(trainer, namespace=own) for trainer in spec.trainers)


class GuardWatch:
    """See the module's docstring. `leads`: whether this controller acts."""

    def __init__(
        self,
        *,
        clock: Clock,
        observer: TrainerObserver,
        repairs: TrainerRepairs,
        protector: Protector,
        spec: Callable[[], FleetSpec],
        places: Callable[[], Mapping[str, str]],
        leads: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._repairs = repairs
        self._protector = protector
        self._spec = spec
        self._places = places
        self._leads = leads
        self.findings: tuple[Finding, ...] | None = None
        """Of the last look; None before the first, and where there are no trainers."""

    @property
    def protected(self) -> bool | None:
        """As `scaler.decide.trainers.protected`; None too where there are no findings yet."""
        return None if self.findings is None else protected(self.findings)

    async def run(self) -> None:
        """Look every interval; never returns."""
        while True:
            try:
                await self.look()
            except Exception as error:
                log.exception("trainer_guard_broken")
                self.findings = tuple(_blind(trainer, error) for trainer in trainers_of(self._spec()))
            await self._clock.sleep(self._spec().interval_s)

    async def look(self) -> None:
        """One look: all facts, all findings, and the repairs that are allowed."""
        spec = self._spec()
        trainers = trainers_of(spec)
        facts = await self._observer.read(trainers)
        self._protector.learn(facts)
        findings = tuple(finding for pair in zip(trainers, facts, strict=True) for finding in self._judge(*pair))
        if self._leads() and not (spec.paused or spec.dry_run):
            findings = self._after(findings, await self._repairs.carry_out(findings))
        self._tell(findings)
        self.findings = findings if trainers else None

    def _judge(self, trainer: TrainerSpec, facts: TrainerFacts) -> tuple[Finding, ...]:
        settings = GuardSettings(trainer=trainer, rollout_places=self._places())
        return guard(facts, settings, self._clock.now_s())

    def _after(self, findings: Sequence[Finding], results: Iterable[RepairResult]) -> tuple[Finding, ...]:
        """What was mended is found no more; what could not be is an alarm that says why."""
        by_finding = {result.finding: result for result in results}
        if any(result.outcome in _MENDED for result in by_finding.values()):
            self._observer.hurry()
        left = []
        for finding in findings:
            result = by_finding.get(finding)
            if result is None or result.outcome in _COMES_AGAIN:
                left.append(finding)
            elif result.outcome not in _MENDED:
                why = f"{finding.message} (repair {result.outcome}{': ' if result.message else ''}{result.message})"
                left.append(replace(finding, severity=Severity.ALARM, message=why, repair=None, repair_kind=None))
        return tuple(left)

    def _tell(self, findings: Sequence[Finding]) -> None:
        before = {_name(finding) for finding in self.findings or ()}
        for finding in findings:
            if _name(finding) not in before:
                log.warning("trainer_finding", **_shown(finding))
        still = {_name(finding) for finding in findings}
        for finding in self.findings or ():
            if _name(finding) not in still:
                log.info("trainer_finding_over", **_shown(finding))


def _blind(trainer: TrainerSpec, error: Exception) -> Finding:
    return Finding(
        check=CheckCode.PODS,
        trainer=trainer.name,
        subject_kind=SubjectKind.TRAINER,
        subject=trainer.name,
        severity=Severity.UNKNOWN,
        message=f"the guard itself failed ({error!r}), so nothing is known: see the log, and report it",
    )


def _name(finding: Finding) -> tuple[str, ...]:
    return finding.trainer, finding.check, finding.subject_kind, finding.subject, finding.severity


def _shown(finding: Finding) -> dict[str, str]:
    return {
        "trainer": finding.trainer,
        "check": finding.check.value,
        "severity": finding.severity.value,
        "subject": f"{finding.subject_kind.value} {finding.subject}",
        "message": finding.message,
    }
