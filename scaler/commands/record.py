"""`headrace record`: a fleet's history of capacity as a trace, and its measured rates as a scenario.

From a fleet's file, or the folder that holds its `fleet.yaml`: all that is recorded there. From a controller's address: what it
says from now on, until told to stop; it is asked every few seconds, and while it is away the last it said holds.

Only spot is recorded: on-demand capacity is a quota, which the fleet's file does not know. A series is called as its zone where
no other offering has that zone.
"""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scaler.commands.outputs import check_writable, write_text, writing
from scaler.commands.record_folder import Kept, kept_in, signs_of
from scaler.commands.record_rates import Meter, Rates
from scaler.commands.record_scenario import scenario_text
from scaler.commands.record_status import ControllerAway, Follower
from scaler.commands.record_waste import Taken
from scaler.commands.worlds import WRONG_INPUT, told
from scaler.config.convert import ledger_url
from scaler.ledger.audit import events_of
from scaler.ledger.contract import LedgerRefused, LedgerUnavailable
from scaler.ledger.registry import open_for_reading
from scaler.model.capacity import CapacityType
from scaler.traces.offering_events import dump
from scaler.traces.signs import Sign, recorded_trace
from scaler.traces.trace import TraceError

NO_ANSWER = 3
HEAD = """\
# Recorded by `headrace record` from {source}, {begun} on.
# What was held, and where a launch was refused or an instance taken: no more than that. More may have been there where
# nobody asked for it; when it came back between a refusal and the next grant is not known, half way is written.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """What a person asked for."""

    source: str
    out: Path
    scenario: Path | None = None
    trainer_usd_per_h: float = 0.0
    every_s: float = 5.0
    hours: float | None = None
    as_json: bool = False


def run_record(options: RecordOptions) -> int:
    """0: written; 2: nothing to record, or a file that is there or cannot be written; 3: nobody answers."""
    files = [file for file in (options.out, options.scenario) if file is not None]
    there = [file for file in files if file.exists()]
    if there:
        print(f"{there[0]}: is there already; name another file", file=sys.stderr)
        return WRONG_INPUT
    try:
        return told(lambda: _record(options, files))
    except ControllerAway as error:
        print(error, file=sys.stderr)
        return NO_ANSWER
    except (LedgerUnavailable, LedgerRefused) as error:
        print(f"{options.source}: its ledger: {error}", file=sys.stderr)
        return NO_ANSWER if isinstance(error, LedgerUnavailable) else WRONG_INPUT


def _record(options: RecordOptions, files: Sequence[Path]) -> int:
    check_writable(*files)
    if options.source.startswith(("http://", "https://")):
        return _follow(options)
    kept = kept_in(Path(options.source))
    rates = measured(kept)
    signs = signs_of(kept.changes())
    names = series_names(_spot_ids(kept, signs))
    _write(options.out, {names[each]: signs[each] for each in names}, rates.start_s, rates.end_s, options.source)
    print(json.dumps(_figures(kept, rates), indent=1) if options.as_json else _line(kept, rates))
    if options.scenario is not None:
        write_text(options.scenario, scenario_text(kept, rates, names, options.trainer_usd_per_h))
    return 0


def _figures(kept: Kept, rates: Rates) -> dict[str, float | None]:
    """What a replay is held against, under the names that `headrace simulate` gives it; of the run alone, not what came after."""
    workers = {record.instance_id: record.worker for record in kept.instances}
    taken = {
        workers[loss.instance_id]: Taken(at_s=loss.at_s, noticed=loss.noticed)
        for loss in kept.interruptions
        if loss.instance_id in workers
    }
    waste = rates.holds.waste(kept.generated, taken, rates.end_s)
    return {
        "hours": (rates.end_s - rates.start_s) / 3600,
        "policy_updates": rates.updates,
        "trainer_wait_ratio": rates.wait_ratio,
        "interruptions": sum(rates.start_s <= loss.at_s <= rates.end_s for loss in kept.interruptions),
        "kills_at_work": waste.kills_at_work,
        "tokens_generated": sum(kept.generated.values()),
        "tokens_wasted": waste.tokens,
        "tokens_lost": waste.tokens_lost,
        "tokens_at_risk": kept.tokens_at_risk,
    }


def _line(kept: Kept, rates: Rates) -> str:
    figures = _figures(kept, rates)
    return (
        f"{figures['policy_updates']:.0f} policy updates in {rates.end_s - rates.start_s:.1f} s, trainer waiting "
        f"{rates.wait_ratio:.1%}, {figures['interruptions']:.0f} interruptions, {figures['tokens_wasted']:.0f} tokens wasted"
    )


def measured(kept: Kept) -> Rates:
    """The rates of a run, from its ledger."""
    ledger = open_for_reading(ledger_url(kept.fleet), kept.fleet.job_name)
    try:
        meter = Meter(group_size=kept.fleet.spec.job.group_size)
        meter.feed(events_of(ledger))
        return meter.rates(kept.instances, str(kept.file))
    finally:
        ledger.close()


def series_names(offering_ids: Sequence[str]) -> dict[str, str]:
    """A series' name for each offering id: its zone, or with the instance type where that is not enough."""
    parts = {each: each.split("/") for each in offering_ids}
    zones = Counter(zone for _, zone, _ in parts.values())
    return {each: zone if zones[zone] == 1 else f"{kind}.{zone}" for each, (kind, zone, _) in parts.items()}


def _spot_ids(kept: Kept, signs: Mapping[str, Sequence[Sign]]) -> list[str]:
    offered = (o for stage in kept.fleet.spec.stages for pool in stage.pools for o in pool.offerings)
    spot = {offering.offering_id for offering in offered if offering.capacity_type is CapacityType.SPOT}
    return sorted(spot & signs.keys())


def _write(out: Path, signs: Mapping[str, Sequence[Sign]], start_s: float, end_s: float, source: str) -> None:
    trace = recorded_trace(signs, start_s, end_s, source)
    begun = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(start_s))
    scratch = out.with_name(f".{out.name}.part")
    with writing(out):
        scratch.write_text(HEAD.format(source=source, begun=begun) + dump(trace))
        scratch.replace(out)


def _follow(options: RecordOptions) -> int:
    if options.scenario is not None:
        words = "rates are measured from the ledger: name the fleet's file or its folder"
        raise TraceError(options.source, None, words)
    follower = Follower(options.source)
    follower.look()  # says at once where nobody is
    until_s = None if options.hours is None else follower.start_s + options.hours * 3600
    with _until_told() as stopped:
        while not stopped() and (until_s is None or follower.end_s < until_s):
            time.sleep(options.every_s)
            if follower.try_look():
                _write_followed(options, follower)
    _write_followed(options, follower)
    return 0


def _write_followed(options: RecordOptions, follower: Follower) -> None:
    """Written again at every look, so that whatever ends the recorder, the file is whole."""
    signs = follower.signs()
    spot = [each for each in signs if each.endswith(f"/{CapacityType.SPOT}")]
    names = series_names(spot)
    if spot and follower.end_s > follower.start_s:
        series = {names[each]: signs[each] for each in spot}
        _write(options.out, series, follower.start_s, follower.end_s, options.source)


@contextmanager
def _until_told() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came."""
    told_to: list[int] = []
    before = {n: signal.signal(n, lambda number, _: told_to.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(told_to)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
