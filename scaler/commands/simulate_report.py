"""`--report` of `headrace simulate`: the page of one world, with the optimum beside the run."""

import sys
from dataclasses import replace
from pathlib import Path

from scaler.commands.outputs import writing
from scaler.simulate.report import Case, Optimum, Report, facts_of, shown_run, write_report
from scaler.simulate.report.amounts import number
from scaler.simulate.result import Run
from scaler.simulate.scenario import Scenario


def write_run(path: Path, scenario: Scenario, run: Run) -> None:
    """Write the page of one run, and again once the optimum is solved, which may take minutes for a week of many zones.

    Raises:
        OutputError: the file cannot be written.
    """
    title = f"{run.summary.policy} in {run.summary.scenario}, {number(run.summary.hours, 4)} hours"
    case = Case(facts=facts_of(scenario), runs=(shown_run(scenario, run),))
    _write(path, Report(title=title, cases=(case,)))
    print(f"{path} is written; solving the optimum to put beside the run", file=sys.stderr)
    _write(path, Report(title=title, cases=(replace(case, optimum=shown_optimum(scenario)),)))


def _write(path: Path, report: Report) -> None:
    with writing(path):
        write_report(path, report)


def shown_optimum(scenario: Scenario) -> Optimum:
    """The optimum of a scenario, solved now, with what its plan holds over time."""
    from scaler.simulate.optimum import solve, stock_of

    bound, stock = solve(scenario), stock_of(scenario)
    return Optimum(figures=bound.to_json(), status=bound.status, timeline=bound.timeline, stock_most_samples=stock.most)
