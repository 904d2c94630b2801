"""The controller on this machine: whether one runs, with which configuration, and what it decided last."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scaler.commands.doctor_checks import http_probes
from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok, warn
from scaler.commands.doctor_checks.local_world import LocalWorld, may_create_in, nearest
from scaler.commands.validate import summary
from scaler.config.last_good import Start
from scaler.model.plan import ReasonCode

_HOLDS = "hold_"
"""How the codes of decisions begin that were none, for lack of something."""


async def configuration(world: LocalWorld) -> Sequence[Line]:
    """As `headrace validate` says, and what the running controller made of it."""
    remedy = "mend the file; until then the controller goes on with what it accepted last"
    lines = _faults(world.start, remedy) or [
        ok(f"configuration {world.path}", summary(world.fleet).removeprefix("ok: "))
    ]
    told = (world.status or {}).get("config", {})
    if not world.start.faults and told.get("ok") is False:
        lines += [fail("configuration in use", each, remedy) for each in told["faults"]]
    spec = world.fleet.spec
    if spec.dry_run:
        lines.append(warn("dryRun", "it decides and carries nothing out", "set spec.dryRun: false"))
    if spec.paused:
        lines.append(warn("paused", "no scaling; noticed drains go on", "set spec.paused: false"))
    return lines


def _faults(start: Start, remedy: str) -> list[Line]:
    return [fail("configuration", str(fault), remedy) for fault in start.faults]


async def controller(world: LocalWorld) -> Sequence[Line]:
    """Who leads, and what is heard of it."""
    about = f"controller ({world.files.lock})"
    if world.leader is None:
        folder = world.files.folder
        lines = [warn(about, "none runs", f"headrace run -f {world.path}")]
        if not may_create_in(nearest(folder)):
            lines.append(fail(f"state folder {folder}", "may not be written", "allow it, or set HEADRACE_STATE_DIR"))
    else:
        lines = [ok(about, f"process {world.leader} leads")]
    return [*lines, *http_probes.lines_of(world.heard, world.leader is not None), *_identity(world), *_journal(world)]


def _identity(world: LocalWorld) -> Iterator[Line]:
    told = (world.status or {}).get("fleet")
    name = world.fleet.metadata.name
    if told is not None and told != name:
        why = f"the controller there is of fleet {told}, not of {name}"
        yield fail(world.heard.url, why, "give each fleet an address of its own (spec.http.listen)")
    elif told is not None and world.leader is None:
        why = f"a controller of fleet {name} runs there, started with another file or state folder"
        yield warn(world.heard.url, why, f"name its file; or end it before {world.path} takes its place")


def _journal(world: LocalWorld) -> Iterator[Line]:
    told = (world.status or {}).get("sources", {}).get("journal", {})
    if told.get("ok") is False:
        found = "cannot be written; until it can, drains go on and nothing is launched"
        yield fail(f"journal {world.files.journal}", found, "make room on its disk; see journal_away in the log")


async def decisions(world: LocalWorld) -> Sequence[Line]:
    """Sizes and reason of each stage, as last decided."""
    status = world.status
    if status is None or not status["synced"]:
        why = "no controller has told of one" if status is None else "nothing is decided before all have answered once"
        return [not_looked("decision", why, "see the lines on the controller, the ledger and pools")]
    return [_decision(stage) for stage in status.get("stages", ())]


def _decision(stage: Mapping[str, Any]) -> Line:
    about = f"decision of stage {stage['stage']}"
    reason = stage.get("reason")
    if reason is None:
        return not_looked(about, "none yet", "wait for the next turn")
    sizes = ", ".join(f"{word} {stage[word]}" for word in ("desired", "requested", "observed", "ready"))
    found = f"{sizes}; {reason['code']}: {reason['message']}"
    if str(reason["code"]).startswith(_HOLDS):
        return fail(about, found, _REMEDIES.get(reason["code"], "see the signals and pools below"))
    return ok(about, found)


_REMEDIES: Mapping[str, str] = {
    ReasonCode.HOLD_SIGNAL_MISSING: "see that the trainer runs and reports to this ledger and job",
    ReasonCode.HOLD_SIGNAL_STALE: "see that the trainer runs, and that the ledger answers",
    ReasonCode.HOLD_POOL_REFUSED: "do what the pool's line says",
    ReasonCode.HOLD_PARTIAL_LIST: "see the pool's line",
}
