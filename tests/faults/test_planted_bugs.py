"""Each planted bug is found by the schedules; how many that takes is in the JUnit report, as a property of each test."""

from collections.abc import Callable

import pytest

from tests.faults.bugs import BUGS
from tests.faults.planting import PlantedBug
from tests.faults.runner import run_schedule

SCHEDULES = 2000
FROM = {"a batch that comes again is filtered again": 160, "the disruption budget is ignored": 55}
"""Where the search of the slowest begins: from 0 it takes 162 and 60 schedules, half the time of all bugs together."""


@pytest.mark.timeout(600)  # one that takes two hundred schedules takes half a minute of an idle core
@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: f"{bug.area}: {bug.name}")
def test_the_schedules_find(
    bug: PlantedBug, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    bug.plant(monkeypatch)
    first = FROM.get(bug.name, 0)
    for seed in range(first, first + SCHEDULES):
        verdict = run_schedule(seed)
        if verdict.broken:
            record_property("schedules", seed + 1)
            record_property("broken", verdict.broken[0].rule)
            return
    pytest.fail(f"{SCHEDULES} schedules did not notice: {bug.name}")
