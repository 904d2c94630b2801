"""`headrace compare`: policies side by side over windows of traces, and the optimum beside them."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaler.commands.compare_verdict import sentences
from scaler.commands.outputs import OutputError, check_writable, writing
from scaler.commands.processes import Workers, workers
from scaler.commands.tables import table_of
from scaler.commands.worlds import WRONG_INPUT, line_of, tell_gaps, tell_lost_prices, tell_short
from scaler.config.faults import ConfigError
from scaler.simulate.compare import DEFAULT_POLICY, Comparison, Group, Row, compare, rows_of
from scaler.simulate.jobs import Job, Place
from scaler.simulate.loading import LATEST_H, ScenarioFile, check_length, load_scenario, open_trace
from scaler.simulate.policy_file import PolicyChoice, load_policy
from scaler.simulate.windows import LEAST_STEP, Split, Window, most_windows, windows_of
from scaler.traces.trace import CapacityTrace, TraceError

_SHOWN = ("cost_usd_per_1k_samples", "ratio", "ratio_before_refunds", "trainer_wait_ratio", "gap_share")

MOST_RUNS = 10_000
"""Windows, and seeds of one: more, a second or so each, are a slip of the finger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What is compared where. `hours` None: each scenario's own. Without traces, each scenario generates its capacity."""

    policies: tuple[str, ...]
    scenarios: tuple[str, ...]
    traces: tuple[str, ...] = ()
    windows: int = 5
    hours: float | None = None
    seeds: int = 1
    split: Split = Split.ALL
    ignore_dips: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the answer goes beside standard output."""

    as_json: bool = False
    csv: Path | None = None
    report: Path | None = None


def grid_of(
    policies: str,
    scenarios: str,
    traces: Sequence[str],
    windows: int,
    hours: float | None,
    seeds: int,
    split: Split,
    *,
    ignore_dips: bool,
) -> Grid:
    """From the command line: names with commas between."""
    return Grid(
        policies=tuple(filter(None, policies.split(","))),
        scenarios=tuple(filter(None, scenarios.split(","))),
        traces=tuple(traces),
        windows=windows,
        hours=hours,
        seeds=seeds,
        split=split,
        ignore_dips=ignore_dips,
    )


def run_compare(grid: Grid, output: Output, *, baseline: str | None, jobs: int, store: Path | None) -> int:
    """Compare and print. 0: done; 2: a policy, scenario, trace or window that is none, or a file that cannot be written."""
    try:
        check_writable(output.csv, output.report)
        policies = load_policies(grid.policies)
        places = places_of(grid)
        with workers(jobs) as at_work:
            comparison = compare_over(places, policies, grid.seeds, at_work, baseline=baseline, store=store)
        _write(comparison, policies, output)
    except (ConfigError, TraceError, OutputError, ValueError, OSError) as error:
        print(line_of(error), file=sys.stderr)
        return WRONG_INPUT
    answer = {"settings": asdict(grid), **comparison.to_json()}
    print(json.dumps(answer, indent=1, allow_nan=False) if output.as_json else _for_people(comparison))
    return 0


def load_policies(names: Sequence[str]) -> tuple[PolicyChoice, ...]:
    """The policies of these names or files, each name once."""
    policies = tuple(load_policy(name) for name in names)
    doubled = {policy.name for policy in policies if sum(policy.name == other.name for other in policies) > 1}
    if doubled or not policies:
        raise ValueError(f"policies need names of their own: {', '.join(sorted(doubled)) or 'none is given'}")
    return policies


def places_of(grid: Grid, *, tell_oddities: bool = True) -> tuple[Place, ...]:
    """Every window of every trace for every scenario; what is odd about them goes to stderr.

    `tell_oddities`: what is odd about a scenario's prices and about `hours`, too.

    Raises:
        ValueError: there is nothing to run, or two scenarios or traces could not be told apart.
    """
    _check_amounts(grid)
    files = {scenario: load_scenario(scenario) for scenario in grid.scenarios}
    _check_apart("scenarios", [(files[scenario].name, scenario) for scenario in grid.scenarios])
    _check_apart("traces", [(_same_trace(trace), trace) for trace in grid.traces])
    opened: dict[str | None, CapacityTrace | None] = {None: None}  # generated
    if grid.traces:
        opened = {trace: open_trace(trace, ignore_dips=grid.ignore_dips) for trace in grid.traces}
    places = tuple(
        place
        for scenario in grid.scenarios
        for trace, capacity in opened.items()
        for place in _places(grid, scenario, files[scenario], trace, capacity, tell_prices=tell_oddities)
    )
    for trace, capacity in opened.items():
        if capacity is not None:
            tell_gaps(capacity, [(one.start_h, one.start_h + one.hours) for one in places if one.trace == trace])
    if tell_oddities:
        tell_short(grid.hours, list(files.values()))
    return places


def _check_amounts(grid: Grid) -> None:
    for option, number in (("windows", grid.windows), ("seeds", grid.seeds)):
        if not 1 <= number <= MOST_RUNS:
            raise ValueError(f"--{option} {number}: write 1 to {MOST_RUNS}")
    if grid.hours is not None and not 0 < grid.hours <= LATEST_H:
        raise ValueError(f"--hours {grid.hours:g}: a window is longer than 0 h, and at most {LATEST_H:g} h")
    if not grid.scenarios:
        raise ValueError("no scenario is named (--scenarios)")


def _check_apart(what: str, named: Sequence[tuple[str, str]]) -> None:
    """`named`: (name in results, as it was given). What shares a name would be pooled as if it were one."""
    for name in dict.fromkeys(name for name, _ in named):
        given = [each for own, each in named if own == name]
        if len(given) > 1:
            raise ValueError(f"{what} need names of their own: {name} is {' and '.join(given)}")


def _same_trace(text: str) -> str:
    """The same for every way to write a trace's file, with its zones."""
    file, mark, zones = (text, "", "") if "#" not in text or Path(text).exists() else text.rpartition("#")
    return f"{Path(file).resolve()}{mark}{zones}"


def _places(
    grid: Grid,
    scenario: str,
    file: ScenarioFile,
    trace: str | None,
    opened: CapacityTrace | None,
    *,
    tell_prices: bool,
) -> Iterator[Place]:
    hours = file.hours if grid.hours is None else grid.hours
    if opened is not None:
        check_length(opened, hours)
    if tell_prices:
        tell_lost_prices(scenario, file, opened)
    for number, window in enumerate(_windows(grid, opened, hours)):
        yield Place(
            scenario=scenario,
            trace=trace,
            window=number,
            start_h=window.start_h,
            hours=window.hours,
            ignore_dips=grid.ignore_dips,
        )


def _windows(grid: Grid, trace: CapacityTrace | None, hours: float) -> Sequence[Window]:
    if trace is None:  # each has a capacity of its own
        return [windows_of(hours, hours, grid.windows)[0] for _ in range(grid.windows)]
    length_h = trace.end_s / 3600
    most = most_windows(length_h, hours, grid.split)
    found = windows_of(length_h, hours, min(grid.windows, most), grid.split)
    part = "it" if grid.split is Split.ALL else f"its part for {grid.split}"
    if found[0].hours < hours:
        print(f"{trace.source}: {part} lasts {found[0].hours:.2f} h, so one window of that length", file=sys.stderr)
    elif most < grid.windows:
        alike = f"of more each would share over {1 - LEAST_STEP:.0%} of its hours with the next"
        print(f"{trace.source}: {part} has {most} windows of {hours:g} h, not {grid.windows}: {alike}", file=sys.stderr)
    return found


def compare_over(
    places: Sequence[Place],
    policies: Sequence[PolicyChoice],
    seeds: int,
    at_work: Workers,
    *,
    baseline: str | None = None,
    store: Path | None = None,
) -> Comparison:
    """Run every policy and the optimum in every place, and compare."""
    names = [policy.name for policy in policies]
    if baseline is not None and baseline not in names:
        raise ValueError(f"the baseline {baseline!r} is none of the policies {', '.join(names)}")
    optimum = {place: Job(place=place) for place in places}
    runs = {
        place: {p.name: [Job(place=place, policy=p, seed=seed) for seed in range(seeds)] for p in policies}
        for place in places
    }
    every = [job for place in places for job in (optimum[place], *(j for js in runs[place].values() for j in js))]
    found = at_work.run(every, store, "comparing")
    rows: list[Row] = []
    for place in places:
        figures = {name: [found[job] for job in of_seeds] for name, of_seeds in runs[place].items()}
        rows += rows_of(place, found[optimum[place]], figures)
    defaults = [policy.name for policy in policies if policy.sizing.name == DEFAULT_POLICY]
    return compare(rows, baseline, defaults)


def _write(comparison: Comparison, policies: Sequence[PolicyChoice], output: Output) -> None:
    if output.csv is not None:
        _write_csv(output.csv, [row.to_json() for row in comparison.rows])
    if output.report is not None:
        from scaler.commands.compare_report import write_comparison

        write_comparison(output.report, comparison, policies)


def _write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with writing(file), file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _for_people(comparison: Comparison) -> str:
    traces = short_names({row.place.trace for row in comparison.rows if row.place.trace})
    parts = (
        table_of([_short(row, traces) for row in comparison.rows]),
        table_of([_line(group) for group in comparison.groups]),
        f"baseline {comparison.baseline}; intervals hold 95 %",
        "\n".join(sentences(comparison)),
    )
    return "\n\n".join(parts)


def short_names(traces: Iterable[str]) -> dict[str, str]:
    """Each trace by as much of the end of its path as tells it from the others: mostly the file's name."""
    ends = {trace: Path(trace).parts for trace in traces}
    return {
        trace: _short_name(parts, [other for other in ends.values() if other != parts]) for trace, parts in ends.items()
    }


def _short_name(parts: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    length = 1
    while length < len(parts) and any(other[-length:] == parts[-length:] for other in others):
        length += 1
    return str(Path(*parts[-length:]))


def _short(row: Row, traces: Mapping[str, str]) -> dict[str, str]:
    place = row.place
    return {
        "scenario": row.scenario,
        "trace": traces[place.trace] if place.trace else "generated",
        "start_h": f"{place.start_h:.1f}",
        "regime": row.regime,
        "policy": row.policy,
        "usd_per_1k": f"{row.cost_usd_per_1k_samples:.2f}",
        "ratio": f"{row.ratio:.3f}",
        "before_refunds": f"{row.ratio_before_refunds:.3f}",
        "waiting": f"{row.trainer_wait_ratio:.1%}",
        "interruptions": f"{row.figures.get('interruptions', 0.0):.0f}",
    }


def _line(group: Group) -> dict[str, str]:
    numbers = group.to_json()
    estimates = {name: _estimate(numbers, name) for name in _SHOWN}
    head = {"scenario": group.scenario, "regime": group.regime, "windows": str(group.windows), "policy": group.policy}
    return {
        **head,
        **estimates,
        "bound_wait_ratio": f"{group.bound_wait_ratio:.3f}",
        "least_wait_ratio": f"{group.least_wait_ratio:.3f}",
    }


def _estimate(numbers: Mapping[str, float | None], name: str) -> str:
    value, low, high = (numbers[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return "-"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} .. {high:.3f})"
