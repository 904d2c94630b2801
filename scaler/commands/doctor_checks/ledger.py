"""The job's ledger: its store, its clock, its units, the trainer's word, and what signals can be had from it.

Everything is read through the ledger's own interface, opened for reading, so that nothing is created and no epoch raised. On
Valkey the functions that read are loaded first where this version's are missing, as every client does.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok, warn
from scaler.commands.doctor_checks.stores import look_at, shown
from scaler.config.convert import ledger_url, local_providers, settings_of
from scaler.config.faults import ConfigError
from scaler.config.schema import RolloutFleet
from scaler.ledger.contract import NOT_CONFIGURED, DeadLetter, Ledger, LedgerError, LedgerRefused
from scaler.ledger.registry import open_for_reading
from scaler.model.clock import Clock
from scaler.model.job import WorkerRecord
from scaler.model.reading import Freshness
from scaler.model.units import format_duration
from scaler.observe.ledger_watch import LedgerReading, LedgerWatch
from scaler.runtime.ledger_thread import LedgerThread
from scaler.runtime.sources import signal_sources

_MOST_AHEAD_S = 5.0
"""Deadlines are told with a margin of some seconds; a greater distance is taken into account, and somebody should know."""
_NO_JOB = "there is no job"
"""How every engine begins that refuses to read a job that nobody has opened yet."""
_SILENT_WORKER_S = 60.0


async def ledger_lines(fleet: RolloutFleet, clock: Clock) -> Sequence[Line]:
    """Store, job and signals."""
    try:
        url = ledger_url(fleet)
    except ConfigError as error:
        return [not_looked("ledger", str(error), "look from where that file is: in the controller's pod")]
    store = await asyncio.to_thread(look_at, url, _made_at_start(fleet))
    lines = [store]
    if store.remedy:
        return lines
    thread = LedgerThread(lambda: open_for_reading(url, fleet.job_name))
    try:
        watch = LedgerWatch(thread, clock)
        try:
            dead, had_workers = await thread.call(lambda ledger: (ledger.dead_letters(), _had_workers(ledger)))
        except LedgerError as error:
            return [*lines, _away(url, fleet.job_name, error)]
        if not await watch.poll() or watch.reading is None:
            return [*lines, _unread(fleet.job_name, str(watch.last_error))]
        return [
            *lines,
            *_job(fleet, watch.reading, dead),
            *_workers(watch.reading, had_workers=had_workers),
            *await _signals(fleet, watch, clock),
        ]
    finally:
        thread.close()


def _made_at_start(fleet: RolloutFleet) -> frozenset[Path]:
    """The folders of local pools and all above them: an actor makes its own before it does anything."""
    roots = [Path(provider.state_dir) for provider in local_providers(fleet).values()]
    return frozenset(folder for root in roots for folder in (root, *root.parents))


def _away(url: str, job: str, error: LedgerError) -> Line:
    about = f"job {job} in {shown(url)}"
    if isinstance(error, LedgerRefused) and str(error).startswith(_NO_JOB):
        remedy = "the first to come opens it: controller, trainer or worker; all must name the same store and job"
        return warn(about, str(error), remedy)
    return fail(about, f"{type(error).__name__}: {error}", "see that the store answers, and what its users may do")


def _unread(job: str, error: str) -> Line:
    """A job that nobody has configured is how every dry run begins: who can set its rules is said; the store is well."""
    about = f"job {job}"
    if NOT_CONFIGURED in error:
        remedy = "start the trainer with --configure and the fleet's numbers, or a controller with spec.dryRun: false"
        return fail(about, "nobody has set the job's rules, so nothing is decided", remedy)
    return fail(about, error, "see the store")


def _job(fleet: RolloutFleet, reading: LedgerReading, dead: Sequence[DeadLetter]) -> Iterator[Line]:
    stats = reading.stats
    about = f"job {fleet.job_name}"
    units = f"{stats.pending} units pending, {stats.running} running, {stats.buffer_depth} samples in the buffer"
    yield ok(about, f"{units}, {stats.accepted} trained on; store epoch {stats.store_epoch}, version {stats.version}")
    if stats.settings != settings_of(fleet.spec.job):
        yield warn(f"rules of {about}", "the ledger's are not the fleet's", "a controller that is no dry run sets them")
    ahead_s = reading.store_ahead_s
    distance = f"{ahead_s:+.1f} s from ours"
    if abs(ahead_s) > _MOST_AHEAD_S:
        yield warn("clock of the store", distance, "set the clocks (chrony, systemd-timesyncd)")
    else:
        yield ok("clock of the store", distance)
    if dead:
        worst = dead[-1]
        found = f"{len(dead)} units failed for good; the last, {worst.unit_id}: {worst.error}"
        yield warn("dead letters", found, "look for what these units have in common; more of them drop whole groups")
    else:
        yield ok("dead letters", "none")


def _had_workers(ledger: Ledger) -> bool:
    """Those that ended are listed for an hour only; of others the oldest history that is kept knows."""
    return bool(ledger.workers()) or any(event.worker is not None for event in ledger.history())


def _workers(reading: LedgerReading, *, had_workers: bool) -> Iterator[Line]:
    """Some are always lost without a word where capacity is taken; it is a fault of theirs only if all are silent."""
    now_s = reading.stats.at_s
    here = [each for each in reading.workers if not each.gone]
    heard = [each for each in here if now_s - each.last_seen_at_s <= _SILENT_WORKER_S]
    if heard:
        ready, draining = sum(each.status.ready for each in heard), sum(each.drain is not None for each in heard)
        lost = f", {len(here) - len(heard)} silent" if len(heard) < len(here) else ""
        yield ok("workers", f"{len(heard)} at work, {ready} ready, {draining} draining{lost}")
    elif here:
        yield warn("workers", f"none is heard: {len(here)} silent, the last for {_since(here, now_s)}", _NO_GOODBYE)
    elif reading.workers:
        ended = f"none is left: {len(reading.workers)} ended within the last hour, the last {_since(reading.workers, now_s)} ago"
        yield warn("workers", ended, _ENDED)
    elif had_workers:
        yield warn("workers", "none is left: all ended more than an hour ago", _ENDED)
    else:
        remedy = "see that they start, by what they print, and name this store and job"
        yield warn("workers", "none has registered with the ledger", remedy)


_NO_GOODBYE = "see whether they still run, and their logs"
_ENDED = "as it should be where the fleet was stopped; else see the lines on the controller, the decision and pools"


def _since(workers: Sequence[WorkerRecord], now_s: float) -> str:
    """How long ago the last of them was heard."""
    since_s = max(0.0, now_s - max(each.last_seen_at_s for each in workers))
    unit_s = 1.0 if since_s < 120.0 else 60.0 if since_s < 7200.0 else 3600.0
    return format_duration(round(since_s / unit_s) * unit_s)


async def _signals(fleet: RolloutFleet, watch: LedgerWatch, clock: Clock) -> list[Line]:
    """The one that no look of the controller's can replace; whether it is needed is the policy's to say, in the decision."""
    lines = []
    sources = signal_sources(fleet, watch, clock)
    for stage in fleet.spec.stages:
        name = stage.name.value
        await sources[name].poll()
        rate = sources[name].signals(name).unblocked_rate_per_s
        about, freshness = f"trainer's rate for stage {name}", rate.freshness(clock.now_s(), stage.signals.max_age_s)
        if rate.value is None or rate.at_s is None:
            lines.append(warn(about, "missing: no trainer has reported", "see that it runs, with this store and job"))
            continue
        found = f"{rate.value:g} samples/s if never blocked, told {max(0.0, clock.now_s() - rate.at_s):.0f} s ago"
        if freshness is Freshness.FRESH:
            lines.append(ok(about, found))
        else:
            allowed = f"{stage.signals.max_age_s:g} s are allowed"
            lines.append(warn(about, f"{freshness}: {found}, and {allowed}", "see that the trainer runs and reports"))
    return lines
