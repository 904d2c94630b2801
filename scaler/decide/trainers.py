"""The trainers' guard as a judgement: facts of one trainer in, findings with bounded repairs out.

Policy: each protection of research "deepep-efa" section 4.3, and each danger of 4.2, is one row. A row whose sources could not
be read is a finding of its own, `UNKNOWN`: a guard that sees nothing must not say that all is well. A repair that the operator
did not allow stays an alarm. Non-goals: scaling a trainer, ending or moving anything of it; seeing inside the job.
"""

from collections.abc import Iterable, Iterator

from scaler.decide.trainer_checks import capacity, disruption, health, scheduling
from scaler.decide.trainer_checks.case import Case, Found, Row
from scaler.model.trainer_facts import TrainerFacts
from scaler.model.trainers import Finding, GuardSettings, Severity, SubjectKind

TABLE: tuple[Row, ...] = (*scheduling.ROWS, *capacity.ROWS, *disruption.ROWS, *health.ROWS)
_ORDER = tuple(Severity)
_UNPROTECTED = frozenset({Severity.ALARM, Severity.REPAIRABLE})


def guard(facts: TrainerFacts, settings: GuardSettings, now_s: float) -> tuple[Finding, ...]:
    """Everything wrong with one trainer at `now_s` (controller's clock), the worst first."""
    case = Case(facts=facts, settings=settings, now_s=now_s)
    found = [finding for row in TABLE if row.code not in settings.trainer.ignore for finding in _judged(row, case)]
    return tuple(sorted(found, key=lambda each: (_ORDER.index(each.severity), each.check, each.subject, each.message)))


def protected(findings: Iterable[Finding]) -> bool | None:
    """True: all protections were seen. False: one is missing. None: none is seen to be missing, but not all could be seen."""
    severities = {finding.severity for finding in findings}
    if severities & _UNPROTECTED:
        return False
    return None if Severity.UNKNOWN in severities else True


def _judged(row: Row, case: Case) -> Iterator[Finding]:
    blind = sorted(row.needs & case.facts.unread.keys())
    if not blind:
        yield from (_finding(row, case, found) for found in row.judge(case))
        return
    why = "; ".join(f"{source} ({case.facts.unread[source]})" for source in blind)
    yield _finding(
        row,
        case,
        Found(
            kind=SubjectKind.TRAINER,
            subject=case.settings.trainer.name,
            message=f"not known, since this could not be read: {why}: allow it, or add {row.code} to ignore",
            severity=Severity.UNKNOWN,
        ),
    )


def _finding(row: Row, case: Case, found: Found) -> Finding:
    trainer = case.settings.trainer
    allowed = found.repair is not None and found.repair_kind in trainer.repair
    return Finding(
        check=row.code,
        trainer=trainer.name,
        subject_kind=found.kind,
        subject=found.subject,
        severity=Severity.REPAIRABLE if allowed else found.severity,
        message=found.message,
        repair=found.repair if allowed else None,
        repair_kind=found.repair_kind if allowed else None,
    )
