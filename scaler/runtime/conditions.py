"""What holds of a fleet and what does not, judged from the newest tick alone.

`True` is always the good state but for `Paused`; what cannot be judged is `Unknown`, never `False`. `Ready` is false by the
first of the others that is, in the order of `_READY_NEEDS`, and by pools that cannot be listed or may not be acted on.
Non-goals: since when (`fleet_status` keeps that).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scaler.model.plan import StagePlan
from scaler.model.snapshot import StageView
from scaler.runtime.kube_config import ConfigState
from scaler.telemetry.readout import Readout

_SOURCE_SILENT_S = 120.0
"""A notice has two minutes: a source that was silent for as long may have missed one whole."""


class ConditionType(StrEnum):
    """What is judged."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    SCHEMA_CURRENT = "SchemaCurrent"
    SIGNALS_FRESH = "SignalsFresh"
    CAPACITY_SATISFIED = "CapacitySatisfied"
    TRAINER_PROTECTED = "TrainerProtected"
    INTERRUPTION_SOURCES_HEALTHY = "InterruptionSourcesHealthy"
    SOLE_OWNER = "SoleOwner"
    PAUSED = "Paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`holds` None: nobody can say. `reason` is one word in CamelCase."""

    holds: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside the tick."""

    now_s: float
    identity: str
    """Who acts."""
    has_trainers: bool = False
    trainers_protected: bool | None = None
    """What the guard found; None: it could not look."""
    trainer_findings: Sequence[str] = ()
    """A line each, worst first."""
    foreign_writers: Sequence[str] | None = ()
    """Whatever else writes our counts, a line each; None: it could not be looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    readout: Readout
    config: ConfigState
    around: Surroundings


def judge(readout: Readout, config: ConfigState, around: Surroundings) -> dict[ConditionType, Judgement]:
    """Every condition."""
    facts = _Facts(readout=readout, config=config, around=around)
    found = {kind: rule(facts) for kind, rule in _RULES.items()}
    return {ConditionType.READY: _ready(facts, found), **found}


def _accepted(facts: _Facts) -> Judgement:
    config = facts.config
    if not config.faults:
        return _holds("SpecAccepted", f"generation {config.accepted.generation} is in use")
    lines = "; ".join(config.faults)
    return _fails("SpecRefused", f"generation {config.accepted.generation} stays in use: {lines}")


def _schema_current(facts: _Facts) -> Judgement:
    reasons = {True: "SameSchema", False: "OtherSchema", None: "DefinitionUnread"}
    current = facts.config.schema_current
    return Judgement(holds=current, reason=reasons[current], message=facts.config.schema_message)


def _signals_fresh(facts: _Facts) -> Judgement:
    readout = facts.readout
    if readout.plan is None or not readout.synced:
        return _unknown("NotSynced", "nothing is decided before ledger and pools have answered once")
    memory = dict(readout.plan.memory.stages)
    stale = [
        f"{stage.stage}: {stage.reason.message}"
        for stage in readout.plan.stages
        if stage.stage not in memory or memory[stage.stage].fresh_since_s is None
    ]
    if stale:
        return _fails("Holding", "; ".join(stale))
    return _holds("Fresh", "every signal that sizes a stage is fresh")


def _capacity_satisfied(facts: _Facts) -> Judgement:
    plan = facts.readout.plan
    if plan is None or not facts.readout.synced:
        return _unknown("NotSynced", "nothing is decided before ledger and pools have answered once")
    short = [stage for stage in plan.stages if stage.ready < stage.desired]
    if not short:
        return _holds("Satisfied", "as many replicas are ready as are wanted")
    views = {stage.name: stage for stage in facts.readout.snapshot.stages} if facts.readout.snapshot else {}
    seen = [views[stage.stage] for stage in short if stage.stage in views]
    sizes = "; ".join(map(_short, short))
    held = [line for view in seen for line in _held_pools(view)]
    refused = [line for view in seen for line in _refusals(view)]
    if held or refused:
        told = [*held, *([f"refused of late: {', '.join(refused)}"] if refused else ())]
        return _fails("Refused", "; ".join((sizes, *told)))
    return _fails("Launching" if all(stage.requested >= stage.desired for stage in short) else "Short", sizes)


def _short(stage: StagePlan) -> str:
    clamps = ", ".join(dict.fromkeys(clamp.code.value for clamp in stage.reason.clamps))
    return f"{stage.stage}: {stage.ready} ready of {stage.desired}" + (f" (held back by {clamps})" if clamps else "")


def _held_pools(view: StageView) -> Iterator[str]:
    for pool in view.pools:
        if pool.refused_reason:
            yield f"pool {pool.name}: {pool.refused_reason}"


def _refusals(view: StageView) -> Iterator[str]:
    for pool in view.pools:
        for offering in pool.offerings:
            if offering.refused_at_s is not None and offering.refusals:
                words = f" ({offering.refused_because})" if offering.refused_because else ""
                yield f"{pool.name} {offering.offering.offering_id}{words}"


def _trainer_protected(facts: _Facts) -> Judgement:
    around = facts.around
    if not around.has_trainers:
        return _unknown("NoTrainers", "the fleet names no trainers to guard")
    lines = "; ".join(around.trainer_findings)
    if around.trainers_protected is None:
        return _unknown("NotLooked", lines or "the guard has not been able to look")
    if around.trainers_protected:
        return _holds("Protected", lines or "nothing would take a trainer away")
    return _fails("Exposed", lines or "something would take a trainer away")


def _sources_healthy(facts: _Facts) -> Judgement:
    sources = facts.readout.notices
    if not sources:
        return _unknown("NoSources", "no source of interruption notices is configured")
    now_s = facts.around.now_s
    silent = [
        name
        for name, health in sorted(sources.items())
        if health.answered_at_s is None or now_s - health.answered_at_s > _SOURCE_SILENT_S
    ]
    if silent:
        return _fails("Silent", f"no answer for {_SOURCE_SILENT_S:.0f} s from {', '.join(silent)}")
    return _holds("Answering", f"{len(sources)} of {len(sources)} sources answer")


def _sole_owner(facts: _Facts) -> Judgement:
    writers = facts.around.foreign_writers
    if writers is None:
        return _unknown("NotLooked", "other writers could not be looked for")
    if writers:
        return _fails("OtherWriter", "; ".join(writers))
    return _holds("SoleOwner", "nothing else writes the counts of the fleet")


def _paused(facts: _Facts) -> Judgement:
    config = facts.config
    if config.paused:
        return _holds("Paused", "no scaling and no repairs; noticed drains go on")
    if config.dry_run:
        return _fails("DryRun", "not paused, but a dry run: decisions are told and not carried out")
    return _fails("Running", "decisions are carried out")


_RULES: dict[ConditionType, Callable[[_Facts], Judgement]] = {
    ConditionType.ACCEPTED: _accepted,
    ConditionType.SCHEMA_CURRENT: _schema_current,
    ConditionType.SIGNALS_FRESH: _signals_fresh,
    ConditionType.CAPACITY_SATISFIED: _capacity_satisfied,
    ConditionType.TRAINER_PROTECTED: _trainer_protected,
    ConditionType.INTERRUPTION_SOURCES_HEALTHY: _sources_healthy,
    ConditionType.SOLE_OWNER: _sole_owner,
    ConditionType.PAUSED: _paused,
}
_READY_NEEDS = (
    ConditionType.SCHEMA_CURRENT,
    ConditionType.ACCEPTED,
    ConditionType.SOLE_OWNER,
    ConditionType.SIGNALS_FRESH,
    ConditionType.INTERRUPTION_SOURCES_HEALTHY,
    ConditionType.TRAINER_PROTECTED,
)


def _ready(facts: _Facts, found: dict[ConditionType, Judgement]) -> Judgement:
    readout = facts.readout
    if not readout.leading:
        return _unknown("NotLeading", "this controller does not act")
    if not readout.synced:
        return _fails("NotSynced", "ledger and pools have not answered yet")
    if readout.ledger_refuses:
        return _fails("LedgerRefuses", f"the ledger may not be used as it is: {readout.ledger_error}")
    if not readout.ledger_ok:
        return _fails("LedgerAway", f"the ledger does not answer: {readout.ledger_error}")
    for kind in _READY_NEEDS:
        if found[kind].holds is False:
            return _fails(kind.value, found[kind].message)
    return _pools_usable(readout) or _holds("Deciding", "the fleet is sized as configured")


def _pools_usable(readout: Readout) -> Judgement | None:
    """What speaks against it; None: every pool is listed and may be acted on."""
    away = sorted(readout.pools_away)
    if away:
        return _fails("PoolsAway", f"no complete list of late from {', '.join(away)}")
    held = [line for view in (readout.snapshot.stages if readout.snapshot else ()) for line in _held_pools(view)]
    return _fails("PoolsHeld", "; ".join(held)) if held else None


def _holds(reason: str, message: str) -> Judgement:
    return Judgement(holds=True, reason=reason, message=message)


def _fails(reason: str, message: str) -> Judgement:
    return Judgement(holds=False, reason=reason, message=message)


def _unknown(reason: str, message: str) -> Judgement:
    return Judgement(holds=None, reason=reason, message=message)
