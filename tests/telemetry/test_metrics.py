"""Metrics: names by the rules, labels bounded, nothing unknown shown as zero."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import structlog
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scaler.interruptions.base import SourceHealth
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Clamp, ClampCode, Plan, Reason, ReasonCode, StagePlan
from scaler.model.reading import Reading
from scaler.model.snapshot import OfferingView, PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.telemetry.logs import configure_logs
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet import OFFERING, a_spec, some_stats

UNITS = (
    "_seconds", "_samples", "_groups", "_steps", "_step", "_units", "_replicas", "_ratio", "_per_second", "_per_hour",
    "_total", "_info", "_tokens", "_leading", "_synced", "_available", "_refusing", "_lists", "_findings",
)  # fmt: skip
LABELS = {
    "stage",
    "pool",
    "phase",
    "reason",
    "le_tokens",
    "le",
    "signal",
    "source",
    "kind",
    "outcome",
    "result",
    "clamp",
    "version",
    "check",
    "severity",
}


def a_readout(clock: FakeClock) -> Readout:
    """The middle of a fleet's life."""
    at_s = clock.now_s() - 2.0
    signals = Signals(buffered_samples=Reading(16.0, at_s), unblocked_rate_per_s=Reading(2.0, at_s), batch_samples=8)
    replica = ReplicaView(replica_id="r", pool="pool", offering_id=OFFERING.offering_id, phase=ReplicaPhase.READY)
    pool = PoolView(name="pool", offerings=(OfferingView(offering=OFFERING),), listed_at_s=at_s)
    stage = StageView(name="rollout", signals=signals, pools=(pool,), replicas=(replica,))
    reason = Reason(
        code=ReasonCode.SIZE_UP, message="m", clamps=(Clamp(code=ClampCode.CEILING, wanted=9.0, allowed=5.0),)
    )
    plan = StagePlan(stage="rollout", desired=5, requested=4, observed=3, ready=1, reason=reason, policy="p")
    return Readout(
        leading=True,
        synced=True,
        decided_at_monotonic_s=clock.monotonic_s(),
        spec=a_spec(),
        snapshot=Snapshot(now_s=at_s, fleet="fleet", stages=(stage,)),
        plan=Plan(commands=(), look_again_in_s=1.0, stages=(plan,)),
        stats=some_stats(at_s, dropped={"stale": {"64": 3}, "filtered": {"128": 2}}),
        ledger_ok=True,
        notices={"local": SourceHealth(answered_at_s=at_s, received=7, malformed=2, duplicates=1)},
        guard=(),
    )


@pytest.fixture
def metrics() -> Metrics:
    clock = FakeClock()
    readout = a_readout(clock)
    metrics = Metrics(clock, lambda: readout)
    assert readout.plan is not None
    metrics.decided(readout.plan)
    metrics.commands.labels("launch", "done").inc()
    metrics.refusals.labels("pool", "quota").inc()
    metrics.reloads.labels("accepted").inc()
    clock.pass_time(3.0)
    return metrics


def _samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_bug_098_every_name_says_its_unit_and_every_label_is_bounded(metrics: Metrics) -> None:
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        assert re.fullmatch(r"headrace_[a-z]+_[a-z_]+", family.name)
        for sample in family.samples:
            assert sample.labels.keys() <= LABELS
            base = re.sub(r"_(bucket|sum|count)$", "", sample.name)
            assert base.endswith(UNITS), sample.name
            assert family.documentation


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("headrace_fleet_desired_replicas", {"stage": "rollout"}, 5),
        ("headrace_fleet_phase_replicas", {"stage": "rollout", "pool": "pool", "phase": "ready"}, 1),
        ("headrace_buffer_depth_steps", {"stage": "rollout"}, 2),
        ("headrace_buffer_depth_seconds", {"stage": "rollout"}, 8),
        ("headrace_signal_age_seconds", {"stage": "rollout", "signal": "buffer_depth_samples"}, 5),
        ("headrace_decision_age_seconds", {}, 3),
        ("headrace_decision_clamps_total", {"stage": "rollout", "clamp": "ceiling"}, 1),
        ("headrace_ledger_dropped_samples_total", {"reason": "stale", "le_tokens": "64"}, 3),
        ("headrace_ledger_salvaged_tokens_total", {}, 20),
        ("headrace_notice_malformed_total", {"source": "local"}, 2),
        ("headrace_trainer_wait_ratio", {}, 0.25),
        ("headrace_trainer_phase_seconds", {"phase": "train"}, 4),
    ],
)
def test_values(metrics: Metrics, name: str, labels: dict[str, str], value: float) -> None:
    assert _samples(metrics)[name, frozenset(labels.items())] == value


@pytest.mark.parametrize("refuses", [False, True])
def test_a_ledger_that_refuses_is_told_from_one_that_is_away(refuses: bool) -> None:
    readout = replace(a_readout(FakeClock()), ledger_ok=False, ledger_refuses=refuses)
    found = _samples(Metrics(FakeClock(), lambda: readout))
    assert found["headrace_ledger_available", frozenset()] == 0
    assert found["headrace_ledger_refusing", frozenset()] == refuses


def test_what_is_not_known_is_left_out(metrics: Metrics) -> None:
    names = {name for name, _ in _samples(metrics)}
    assert "headrace_rate_goodput_samples_per_second" not in names
    assert "headrace_queue_age_seconds" not in names
    empty = {name for name, _ in _samples(Metrics(FakeClock(), Readout))}
    assert not {name for name in empty if name.startswith(("headrace_buffer", "headrace_fleet", "headrace_trainer"))}


@pytest.fixture
def plain_logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("plain_logs")
def test_logs_are_json_with_a_constant_event_where_nobody_reads_along() -> None:
    out = io.StringIO()
    configure_logs(out)
    structlog.get_logger().warning("pool_away", pool="p")
    line = json.loads(out.getvalue())
    assert (line["event"], line["pool"], line["level"]) == ("pool_away", "p", "warning")


@pytest.mark.usefixtures("plain_logs")
@pytest.mark.parametrize(("level", "told"), [("debug", True), ("DEBUG", True), ("", False), ("loud", False)])
def test_what_repeats_with_every_turn_is_told_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, level: str, told: bool
) -> None:
    monkeypatch.setenv("HEADRACE_LOG", level)
    out = io.StringIO()
    configure_logs(out)
    structlog.get_logger().debug("turn", turn_s=0.1)
    assert ("turn_s" in out.getvalue()) is told
