"""Goodput and acceptance from counters: idleness is no slowness, and what is thrown away does not count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.model.job import DrainMark, WorkerRecord
from scaler.observe.averages import Acceptance, DecayingRatio, Goodput
from tests.builders.fleet import a_worker, some_stats

MARK = DrainMark(deadline_s=0.0, reason="size_down", epoch=1)


def _goodput(readings: list[tuple[float, list[WorkerRecord]]]) -> float | None:
    goodput = Goodput(averaged_over_s=60.0)
    for at_s, workers in readings:
        goodput.update(workers, at_s)
    return goodput.per_replica_per_s


def _busy(committed: int, **changes: int) -> WorkerRecord:
    return a_worker("i", committed=committed, running=changes.get("running", 4), capacity=4)


def test_two_replicas_that_commit_two_a_second_are_worth_one_each() -> None:
    readings = [
        (t, [a_worker("i", committed=int(t), running=4), a_worker("j", committed=int(t), running=4)])
        for t in (0.0, 10.0, 20.0, 30.0)
    ]
    assert _goodput(readings) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "readings",
    [
        pytest.param([(0.0, [_busy(0)])], id="one look"),
        pytest.param([(0.0, [_busy(0)]), (10.0, [_busy(0)]), (20.0, [_busy(0)])], id="nothing was committed yet"),
        pytest.param([(0.0, [_busy(50)]), (10.0, [_busy(60)])], id="the first commits only start the measurement"),
    ],
)
def test_goodput_is_unknown_and_not_zero_before_it_can_be_measured(
    readings: list[tuple[float, list[WorkerRecord]]],
) -> None:
    assert _goodput(readings) is None


def test_workers_that_idle_because_the_buffer_is_full_do_not_look_slow() -> None:
    busy = [(float(t), [_busy(t)]) for t in range(0, 60, 10)]
    idle = [(float(t), [_busy(50, running=0)]) for t in range(60, 600, 10)]
    assert _goodput(busy + idle) == pytest.approx(_goodput(busy))


def test_a_half_busy_replica_counts_half() -> None:
    readings = [(float(t), [_busy(t // 2, running=2)]) for t in range(0, 200, 10)]
    assert _goodput(readings) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(a_worker("j", ready=False, running=4), id="loading"),
        pytest.param(a_worker("j", drain=MARK, running=4), id="draining"),
        pytest.param(a_worker("j", gone=True, running=4), id="gone"),
    ],
)
def test_a_replica_that_is_not_ready_costs_no_goodput(other: WorkerRecord) -> None:
    readings = [(float(t), [_busy(t), other]) for t in range(0, 60, 10)]
    assert _goodput(readings) == pytest.approx(1.0)


def test_a_worker_that_comes_back_as_a_new_process_starts_its_count_anew() -> None:
    readings = [(0.0, [_busy(100)]), (10.0, [_busy(110)]), (20.0, [_busy(2)]), (30.0, [_busy(12)])]
    assert 0 < (_goodput(readings) or 0) <= 1.0


def test_a_clock_that_steps_back_changes_nothing() -> None:
    steady = [(0.0, [_busy(0)]), (10.0, [_busy(10)]), (20.0, [_busy(20)])]
    assert _goodput([*steady, (5.0, [_busy(30)])]) == _goodput(steady)


def test_acceptance_counts_what_was_decided_and_not_what_waits() -> None:
    acceptance = Acceptance()
    acceptance.update(some_stats(0.0, accepted=0, buffered=64))
    assert acceptance.ratio is None
    acceptance.update(some_stats(1.0, accepted=6, dropped={"filtered": {"64": 1}, "stale": {"128": 1}}, buffered=64))
    assert acceptance.ratio == pytest.approx(0.75)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 10), st.floats(0, 5)), min_size=1))
def test_a_ratio_of_sums_stays_between_the_least_and_the_greatest_of_its_steps(
    steps: list[tuple[float, float, float]],
) -> None:
    ratio = DecayingRatio()
    for part, whole, forget in steps:
        ratio.add(part, whole, forget)
    each = [part / whole for part, whole, _ in steps]
    assert ratio.value is not None
    assert min(each) - 1e-9 <= ratio.value <= max(each) + 1e-9
