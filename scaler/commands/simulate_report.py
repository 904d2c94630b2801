"""`--report` of `headrace simulate`: the page of one world."""

import sys
from pathlib import Path

from scaler.commands.worlds import WRONG_INPUT
from scaler.simulate.report import Case, Report, facts_of, shown_run, write_report
from scaler.simulate.result import Run
from scaler.simulate.scenario import Scenario


def write_run(path: Path, scenario: Scenario, run: Run) -> int:
    """Write the page of one run. 0: done; 2: the file cannot be written, told on stderr."""
    return save(path, report_of(scenario, run))


def report_of(scenario: Scenario, run: Run) -> Report:
    """What the page shows."""
    summary = run.summary
    return Report(
        title=f"{summary.policy} in {summary.scenario}, {summary.hours:g} hours",
        cases=(Case(facts=facts_of(scenario), runs=(shown_run(scenario, run),)),),
    )


def save(path: Path, report: Report) -> int:
    """Write a page. 0: done; 2: the file cannot be written, told on stderr."""
    try:
        write_report(path, report)
    except OSError as error:
        print(f"{path}: cannot be written: {error.strerror}", file=sys.stderr)
        return WRONG_INPUT
    print(f"report: {path}", file=sys.stderr)
    return 0
