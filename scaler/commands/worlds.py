"""What the commands of the simulator have in common: the world that their arguments name, and faults as lines."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from scaler.commands.outputs import OutputError
from scaler.config.faults import ConfigError
from scaler.simulate.loading import load_scenario, open_trace
from scaler.simulate.policy_file import load_policy
from scaler.simulate.scenario import Scenario
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
    scenario = found.bind(policy, trace=trace, start_h=options.start_h, hours=options.hours, seed=options.seed)
    if trace is not None:
        _tell_lacks(trace, scenario, found.hours if options.hours is None else options.hours)
    return scenario


def _tell_lacks(trace: CapacityTrace, scenario: Scenario, wanted_h: float) -> None:
    hours = scenario.end_s / 3600
    if hours < wanted_h:
        print(f"{trace.source}: the run is {hours:.2f} h, all that the trace has from there on", file=sys.stderr)
    for gap in trace.gaps:
        lasted_s = gap.end_s - gap.start_s
        print(
            f"{trace.source}:{gap.line}: {lasted_s:g} s without rows before it; the last value holds", file=sys.stderr
        )


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
