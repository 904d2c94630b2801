"""How drains keep to their budgets: each notice once, and nothing that this process did not see."""

from dataclasses import replace

import pytest

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.runtime.drain_times import DrainTimes
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.snapshots import NOW_S, a_hint, a_notice, a_replica, a_world_of

READY, DRAINING, GONE = ReplicaPhase.READY, ReplicaPhase.DRAINING, ReplicaPhase.TERMINATING


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(FakeClock(), Readout)


def counted(metrics: Metrics) -> tuple[float, float, float]:
    """Observations of age, time to drained, budget left."""
    found = []
    for histogram in (metrics.notice_age, metrics.notice_to_drained, metrics.drain_budget_left):
        samples = [sample for family in histogram.collect() for sample in family.samples]
        found.append(sum(sample.value for sample in samples if sample.name.endswith("_count")))
    return found[0], found[1], found[2]


def total(metrics: Metrics, which: str) -> float:
    samples = [sample for family in getattr(metrics, which).collect() for sample in family.samples]
    return float(sum(sample.value for sample in samples if sample.name.endswith("_sum")))


def at(seconds: float, *replicas: ReplicaView, synced: bool = True) -> Snapshot:
    return replace(a_world_of(replicas), now_s=NOW_S + seconds, synced=synced)


def noticed(phase: ReplicaPhase, *, kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, units: int = 0) -> ReplicaView:
    return a_replica(phase=phase, running_units=units, notice=a_notice(kind=kind))


def test_a_drain_is_measured_from_its_notice_to_the_hand_over_once(metrics: Metrics) -> None:
    times = DrainTimes(metrics)
    times.look(at(0, a_replica()))
    times.look(at(2, noticed(READY, units=3)))
    times.look(at(3, noticed(DRAINING, units=3)))
    assert counted(metrics) == (1, 0, 0)
    for seconds in (40.0, 41.0, 42.0):
        times.look(at(seconds, noticed(ReplicaPhase.DRAINED)))
    times.look(at(43, noticed(GONE)))
    assert counted(metrics) == (1, 1, 1)
    assert [total(metrics, name) for name in ("notice_age", "notice_to_drained", "drain_budget_left")] == [2, 40, 80]


def test_what_this_process_did_not_see_it_does_not_make_up(metrics: Metrics) -> None:
    times = DrainTimes(metrics)
    times.look(at(60, noticed(ReplicaPhase.DRAINED), a_replica("r1", DRAINING, notice=a_notice("i-r1"))))
    times.look(at(61, noticed(ReplicaPhase.DRAINED), a_replica("r1", DRAINING, notice=a_notice("i-r1"))))
    assert counted(metrics) == (0, 0, 0), "both were noticed before this process began"
    times.look(at(70, noticed(ReplicaPhase.DRAINED), a_replica("r1", ReplicaPhase.DRAINED, notice=a_notice("i-r1"))))
    assert counted(metrics) == (0, 1, 1), "the end of this one it did see"


def test_a_replica_that_had_handed_over_before_tells_nothing_of_how_long_that_takes(metrics: Metrics) -> None:
    times = DrainTimes(metrics)
    times.look(at(0, a_replica(phase=ReplicaPhase.DRAINED, drain_reason="size_down")))
    times.look(at(5, noticed(ReplicaPhase.DRAINED)))
    assert counted(metrics) == (1, 0, 0)


def test_another_kind_of_notice_is_another_drain_and_a_hint_is_none(metrics: Metrics) -> None:
    times = DrainTimes(metrics)
    times.look(at(0, a_replica(notice=a_hint())))
    times.look(at(1, noticed(READY, kind=NoticeKind.SCHEDULED_CHANGE)))
    times.look(at(2, noticed(READY)))
    assert counted(metrics) == (2, 0, 0)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_times_that_are_none_are_not_observed(metrics: Metrics, odd: float) -> None:
    times = DrainTimes(metrics)
    times.look(at(0))
    times.look(at(1, a_replica(notice=a_notice(noticed_at_s=odd, deadline_s=odd))))
    times.look(at(2, a_replica(phase=ReplicaPhase.DRAINED, notice=a_notice(noticed_at_s=odd, deadline_s=odd))))
    assert counted(metrics) == (0, 0, 0)


def test_one_that_went_with_work_in_its_hands_was_not_drained(metrics: Metrics) -> None:
    times = DrainTimes(metrics)
    times.look(at(0))
    times.look(at(1, noticed(DRAINING, units=2)))
    times.look(at(2, noticed(GONE, units=2)))
    times.look(at(3))
    assert counted(metrics) == (1, 0, 0)
