"""`python -m tests.faults --seed N [--trace-events]`: run a schedule again; exit code 1 where it breaks a promise."""

# ruff: noqa: T201 - a command, for people

import argparse
import sys
from collections.abc import Sequence

from tests.faults.runner import run_schedule
from tests.faults.schedule import draw_schedule


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the schedules asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Run random fault schedules again.")
    parser.add_argument("--seed", type=int, required=True, help="the schedule, or the first of several")
    parser.add_argument("--count", type=int, default=1, help="how many schedules, seed after seed")
    parser.add_argument("--trace-events", action="store_true", help="print every event, and which promise broke at it")
    options = parser.parse_args(arguments)
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        if options.trace_events:
            for fault in draw_schedule(seed).faults:
                print(f"planned {fault.at_s:8.2f} {fault.kind}")
        verdict = run_schedule(seed, print if options.trace_events else None)
        failed += bool(verdict.broken)
        if verdict.broken or options.count == 1:
            print(f"{verdict}\n    {verdict.events} events in {verdict.lasted_s:.0f} s of its time")
            for broken in verdict.broken:
                print(f"    {broken}")
    print(f"{options.count - failed} of {options.count} kept every promise")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
