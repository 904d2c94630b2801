"""`--report` of `headrace simulate`: the page of one world, with the optimum beside the run."""

import sys
from pathlib import Path

from scaler.commands.worlds import WRONG_INPUT
from scaler.simulate.report import Case, Optimum, Report, facts_of, shown_run, write_report
from scaler.simulate.result import Run
from scaler.simulate.scenario import Scenario


def write_run(path: Path, scenario: Scenario, run: Run) -> int:
    """Write the page of one run, the optimum beside it. 0: done; 2: the file cannot be written, told on stderr."""
    summary = run.summary
    case = Case(facts=facts_of(scenario), runs=(shown_run(scenario, run),), optimum=shown_optimum(scenario))
    return save(path, Report(title=f"{summary.policy} in {summary.scenario}, {summary.hours:g} hours", cases=(case,)))


def shown_optimum(scenario: Scenario) -> Optimum:
    """The optimum of a scenario, solved now, with what its plan holds over time; it may take some seconds a day."""
    from scaler.simulate.optimum import solve

    bound = solve(scenario)
    return Optimum(figures=bound.to_json(), status=bound.status, timeline=bound.timeline)


def save(path: Path, report: Report) -> int:
    """Write a page. 0: done; 2: the file cannot be written, told on stderr."""
    try:
        write_report(path, report)
    except OSError as error:
        print(f"{path}: cannot be written: {error.strerror}", file=sys.stderr)
        return WRONG_INPUT
    print(f"report: {path}", file=sys.stderr)
    return 0
