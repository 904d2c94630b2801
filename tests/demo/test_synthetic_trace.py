"""The shipped trace does what its header says, for fleets that want all of it and fleets that want less."""

from itertools import pairwise
from pathlib import Path

import pytest

import scaler.demo
from scaler.traces.registry import load_trace
from scaler.traces.trace import CapacityTrace

SHIPPED = Path(scaler.demo.__file__).parent / "traces" / "synthetic.csv"


def losses(trace: CapacityTrace, wanted: int, relaunch_every_s: int, until_s: int) -> int:
    """What a fleet loses that holds `wanted` where it can, cheapest zone first, and looks again every so often."""
    held, lost = dict.fromkeys(trace.names, 0), 0
    for second in range(until_s):
        for series in trace.series:
            excess = max(0, held[series.name] - series.at(second))
            held[series.name] -= excess
            lost += excess
            if second % relaunch_every_s == 0:
                missing = wanted - sum(held.values())
                held[series.name] += min(missing, series.at(second) - held[series.name])
    return lost


def test_it_says_that_it_is_synthetic_and_how_it_was_made() -> None:
    header = SHIPPED.read_text().split("time_s")[0]
    assert "Synthetic: nothing here was measured" in header
    assert "How it was made" in header


def test_the_numbers_in_its_header_are_right() -> None:
    trace = load_trace(SHIPPED)
    first = trace.window(0, 100 / 3600)
    assert trace.end_s == 240.0
    assert sum(series.losses() for series in first.series) == 17
    assert sum(series.losses() for series in trace.series) == 46
    together = trace.merged("all").one("all").counts
    assert (min(together), max(together)) == (1, 6)


@pytest.mark.parametrize(("wanted", "relaunch_every_s", "at_least"), [(6, 1, 17), (6, 3, 16), (4, 1, 10), (4, 3, 10)])
def test_a_fleet_that_follows_it_loses_enough_in_100_s(wanted: int, relaunch_every_s: int, at_least: int) -> None:
    assert losses(load_trace(SHIPPED), wanted, relaunch_every_s, until_s=100) >= at_least


def test_after_every_burst_there_is_plenty_for_at_least_eight_seconds() -> None:
    steps = list(load_trace(SHIPPED).merged("all").one("all").changes())
    full = [end_s - start_s for (start_s, count), (end_s, _) in pairwise(steps) if count == 6]
    assert len(full) >= 13
    assert min(full) >= 8
