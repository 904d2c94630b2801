"""What the commands of the simulator have in common: the world that their arguments name, and faults as lines."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scaler.commands.outputs import OutputError
from scaler.config.faults import ConfigError
from scaler.simulate.loading import ScenarioFile, check_length, load_scenario, lost_prices, open_trace
from scaler.simulate.policy_file import is_path, load_policy
from scaler.simulate.scenario import Scenario
from scaler.simulate.scenario_yaml import LEAST_HOURS
from scaler.traces.trace import CapacityTrace, TraceError

WRONG_INPUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """One world, as its arguments name it. `hours` None: the scenario's own; `trace` None: what the scenario generates."""

    scenario: str
    policy: str
    trace: str | None = None
    start_h: float = 0.0
    hours: float | None = None
    seed: int = 0
    ignore_dips: bool = False


def world_of(options: WorldOptions) -> Scenario:
    """The world. `ConfigError` or `TraceError` where an argument names none; what a trace lacks is told on stderr."""
    found = load_scenario(options.scenario)
    policy = load_policy(options.policy)
    trace = None if options.trace is None else open_trace(options.trace, ignore_dips=options.ignore_dips)
    wanted_h = found.hours if options.hours is None else options.hours
    if trace is not None:
        check_length(trace, wanted_h)
    tell_lost_prices(options.scenario, found, trace)
    scenario = found.bind(policy, trace=trace, start_h=options.start_h, hours=options.hours, seed=options.seed)
    tell_short(options.hours, [found])
    if trace is not None:
        _tell_lacks(trace, scenario, wanted_h)
        tell_gaps(trace, [(options.start_h, options.start_h + wanted_h)])
    return scenario


def tell_lost_prices(name: str, scenario: ScenarioFile, trace: CapacityTrace | None) -> None:
    """Tell on stderr which zones' prices the capacity has no use for: a slip in a zone's name, mostly."""
    generated = scenario.spec.generated
    regions = generated.regions if trace is None and generated is not None else ()
    zones = [zone for region in regions for zone in region.zones] if trace is None else trace.names
    lost = lost_prices(scenario.spec, zones)
    if lost and is_path(name):  # shipped ones have prices for many traces
        where = "what it generates" if trace is None else trace.source
        words = f"no zone of {where} ({', '.join(zones)}) starts with {', '.join(lost)}"
        default = f"zones without a price of their own cost {scenario.spec.spot.price_usd_per_h:g}"
        print(f"{name}: zonePricesUsdPerH: {words}; {default}", file=sys.stderr)


def tell_short(hours: float | None, scenarios: Sequence[ScenarioFile]) -> None:
    """Tell on stderr that fewer hours were asked for than a scenario may have; a recording is as long as it is."""
    if hours is not None and hours < LEAST_HOURS and not all(one.spec.replay for one in scenarios):
        words = "that says more of the first and last hours than of a policy"
        print(f"--hours {hours:g}: {words}; {LEAST_HOURS:g} are the least to judge by", file=sys.stderr)


def _tell_lacks(trace: CapacityTrace, scenario: Scenario, wanted_h: float) -> None:
    hours = scenario.end_s / 3600
    if hours < wanted_h:
        print(f"{trace.source}: the run is {hours:.2f} h, all that the trace has from there on", file=sys.stderr)


def tell_gaps(trace: CapacityTrace, windows_h: Collection[tuple[float, float]]) -> None:
    """Tell on stderr each gap of a trace that lies, in part at least, in one of these windows: (from, to) in hours."""
    for gap in trace.gaps:
        if any(gap.start_s < to_h * 3600 and gap.end_s > from_h * 3600 for from_h, to_h in windows_h):
            lasted_s = gap.end_s - gap.start_s
            words = f"{lasted_s:g} s without rows before it; the last value holds"
            print(f"{trace.source}:{gap.line}: {words}", file=sys.stderr)


def line_of(error: Exception) -> str:
    """An error as a person reads it: a file and what is wrong with it, in place of a number of the system's."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def told(action: Callable[[], int]) -> int:
    """What the action returns; wrong input, and a file that cannot be written, become a line each on stderr, and 2."""
    try:
        return action()
    except ConfigError as error:
        lines = [str(fault) for fault in error.faults]
    except (TraceError, OutputError) as error:
        lines = [str(error)]
    for line in lines:
        print(line, file=sys.stderr)
    return WRONG_INPUT
