"""Parts of a pass: each its own time, and processor time beside it."""

from scaler.runtime.laps import Laps
from tests.builders.clock import FakeClock


def test_each_part_has_its_own_time_and_together_they_are_the_whole() -> None:
    clock, cpu_s = FakeClock(), iter([1.0, 1.5])
    laps = Laps(clock, cpu_s=lambda: next(cpu_s))
    clock.pass_time(2.0)
    laps.end("observe_s")
    clock.pass_time(0.5)
    laps.end("decide_s")
    clock.pass_time(9.0)
    assert laps.taken_s == {"observe_s": 2.0, "decide_s": 0.5}
    assert laps.total_s == 2.5
    assert laps.cpu_s == 0.5
