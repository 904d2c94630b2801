"""Every metric name of the controller, and nothing else's.

Names are `headrace_<subsystem>_<name>_<unit>` in base units; counters end in `_total`. Labels are bounded: stage, pool,
phase, reason and the like, never a worker, node, instance or unit. What is not known is left out, never shown as zero.
Gauges, and counters that the ledger keeps, are rendered from the last tick when somebody looks, so that they cannot
disagree with each other.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from scaler.model.capacity import ReplicaPhase
from scaler.model.clock import Clock
from scaler.model.job import LedgerStats
from scaler.model.plan import Plan
from scaler.model.reading import Reading
from scaler.model.snapshot import Signals, Snapshot, StageView
from scaler.model.trainers import CheckCode, Finding, Severity
from scaler.telemetry.readout import Readout

_LOOP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NOTICE_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 120.0)


class Metrics:
    """The registry, the counters that parts of the controller raise, and the collector of everything else."""

    def __init__(self, clock: Clock, readout: Callable[[], Readout]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self.loop_duration = Histogram(
            "headrace_loop_duration_seconds", "Observe, decide, persist.", buckets=_LOOP_BUCKETS_S, registry=registry
        )
        self.decisions = Counter(
            "headrace_decision_reasons_total", "Decisions by reason.", ["stage", "reason"], registry=registry
        )
        self.clamps = Counter(
            "headrace_decision_clamps_total", "Wishes changed by a guard rail.", ["stage", "clamp"], registry=registry
        )
        self.commands = Counter(
            "headrace_command_outcomes_total",
            "Commands by what became of them.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "headrace_launch_refusals_total", "Launches that brought nothing.", ["pool", "result"], registry=registry
        )
        self.notice_to_drain = Histogram(
            "headrace_notice_drain_mark_seconds",
            "From an interruption notice to its worker's drain mark in the ledger.",
            buckets=_NOTICE_BUCKETS_S,
            registry=registry,
        )
        self.notice_to_taint = Histogram(
            "headrace_notice_taint_seconds",
            "From an interruption notice to its node's taint.",
            buckets=_NOTICE_BUCKETS_S,
            registry=registry,
        )
        self.notice_age = Histogram(
            "headrace_notice_age_seconds",
            "Age of an interruption notice when it was first seen.",
            buckets=_NOTICE_BUCKETS_S,
            registry=registry,
        )
        self.notice_to_drained = Histogram(
            "headrace_notice_drained_seconds",
            "From an interruption notice until its worker has handed over.",
            buckets=_NOTICE_BUCKETS_S,
            registry=registry,
        )
        self.drain_budget_left = Histogram(
            "headrace_drain_budget_left_seconds",
            "What was left until the deadline when a noticed worker had handed over.",
            buckets=_NOTICE_BUCKETS_S,
            registry=registry,
        )
        self.reloads = Counter(
            "headrace_config_reloads_total", "Changed configurations by result.", ["result"], registry=registry
        )
        self.trainer_repairs = Counter(
            "headrace_trainer_repairs_total",
            "Repairs of trainers' protections by what became of them.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.trainer_vetoes = Counter(
            "headrace_trainer_vetoes_total",
            "Acts that were refused because they would have touched a trainer.",
            ["kind"],
            registry=registry,
        )
        registry.register(_FleetCollector(clock, readout))

    def decided(self, plan: Plan) -> None:
        """Count a plan's reasons and clamps."""
        for stage in plan.stages:
            self.decisions.labels(stage.stage, stage.reason.code.value).inc()
            for clamp in stage.reason.clamps:
                self.clamps.labels(stage.stage, clamp.code.value).inc()


class _FleetCollector(Collector):
    def __init__(self, clock: Clock, readout: Callable[[], Readout]) -> None:
        self._clock = clock
        self._readout = readout

    def collect(self) -> Iterator[Metric]:
        readout = self._readout()
        yield InfoMetricFamily("headrace_build", "The version that runs.", {"version": _version()})
        yield from self._controller(readout)
        yield from _sources(readout)
        yield from _notice_sources(readout, self._clock.now_s())
        if readout.guard is not None:
            yield _trainer_findings(readout.guard)
        if readout.snapshot is not None:
            yield from _fleet(readout.snapshot, readout.plan)
            yield from _signals(readout.snapshot, self._clock.now_s())
        if readout.stats is not None:
            yield from _ledger(readout.stats)
            yield from _trainer(readout.stats)

    def _controller(self, readout: Readout) -> Iterator[Metric]:
        yield _gauge("headrace_controller_leading", "1 while this controller acts.", float(readout.leading))
        yield _gauge("headrace_controller_synced", "1 once state has been rebuilt.", float(readout.synced))
        if readout.decided_at_monotonic_s is not None:
            age_s = self._clock.monotonic_s() - readout.decided_at_monotonic_s
            yield _gauge("headrace_decision_age_seconds", "Since the last decision.", age_s)


def _sources(readout: Readout) -> Iterator[Metric]:
    yield _gauge(
        "headrace_journal_available", "1 while turns are durable; else no launches.", float(readout.journal_ok)
    )
    yield _gauge("headrace_ledger_available", "1 while the ledger can be read.", float(readout.ledger_ok))
    refuses = "1 while the ledger answers that it may not be used: no rights, another version, no rules yet."
    yield _gauge("headrace_ledger_refusing", refuses, float(readout.ledger_refuses))
    yield _counter("headrace_ledger_errors", "Readings of the ledger that failed.", readout.ledger_errors)
    away = GaugeMetricFamily("headrace_pool_failed_lists", "Lists in a row that a pool has failed.", labels=["pool"])
    for pool, failures in readout.pools_away.items():
        away.add_metric([pool], failures)
    yield away


_NOTICE_COUNTERS = (
    ("received", "Notices seen for the first time."),
    ("duplicates", "Notices that told nothing new."),
    ("foreign", "Notices about other people's instances."),
    ("unknown", "Notices about instances that nobody here knew in time."),
    ("malformed", "Messages that were no notice."),
    ("ignored", "Messages that asked for nothing."),
    ("expired", "Messages that became void before their action was recorded."),
    ("dead_lettered", "Messages moved to the dead-letter queue."),
)


def _notice_sources(readout: Readout, now_s: float) -> Iterator[Metric]:
    for name, text in _NOTICE_COUNTERS:
        family = CounterMetricFamily(f"headrace_notice_{name}", text, labels=["source"])
        for source, health in readout.notices.items():
            family.add_metric([source], getattr(health, name))
        yield family
    available = GaugeMetricFamily("headrace_notice_available", "1 while nothing is wrong.", labels=["source"])
    answered = GaugeMetricFamily("headrace_notice_answer_age_seconds", "Since it last answered.", labels=["source"])
    queued = GaugeMetricFamily(
        "headrace_notice_queue_age_seconds", "Of the oldest message whose action is not recorded.", labels=["source"]
    )
    for source, health in readout.notices.items():
        available.add_metric([source], float(health.answered_at_s is not None and not health.error))
        if health.answered_at_s is not None:
            answered.add_metric([source], max(0.0, now_s - health.answered_at_s))
        if health.queue_age_s is not None:
            queued.add_metric([source], health.queue_age_s)
    yield from (available, answered, queued)


def _trainer_findings(findings: Iterable[Finding]) -> Metric:
    """Zeros too: an alert needs the series before the first finding."""
    family = GaugeMetricFamily(
        "headrace_trainer_findings",
        "What the trainers' guard finds wrong or cannot see.",
        labels=["check", "severity"],
    )
    tally = Tally((finding.check, finding.severity) for finding in findings)
    for check in CheckCode:
        for severity in Severity:
            family.add_metric([check.value, severity.value], tally[check, severity])
    return family


def _fleet(snapshot: Snapshot, plan: Plan | None) -> Iterator[Metric]:
    phases = GaugeMetricFamily("headrace_fleet_phase_replicas", "Replicas by phase.", labels=["stage", "pool", "phase"])
    for stage in snapshot.stages:
        _add_phases(phases, stage)
    yield phases
    stages = plan.stages if plan else ()
    for name, text in (
        ("desired", "Replicas wanted, after guard rails."),
        ("requested", "Replicas asked for that count as capacity."),
        ("observed", "Replicas that exist."),
        ("ready", "Replicas that generate."),
    ):
        yield _by_stage(
            f"headrace_fleet_{name}_replicas", text, ((each.stage, float(getattr(each, name))) for each in stages)
        )
    yield _by_stage(
        "headrace_fleet_spend_usd_per_hour", "Rent.", ((each.stage, each.spend_usd_per_h) for each in stages)
    )


def _add_phases(family: GaugeMetricFamily, stage: StageView) -> None:
    tally = Tally((view.pool, view.phase) for view in stage.replicas)
    for pool in stage.pools:
        for phase in ReplicaPhase:
            family.add_metric([stage.name, pool.name, phase.value], tally[pool.name, phase])


_SIGNALS: tuple[tuple[str, str, Callable[[Signals], Reading]], ...] = (
    ("headrace_buffer_depth_samples", "Committed, not consumed.", lambda s: s.buffered_samples),
    ("headrace_buffer_depth_groups", "Complete groups in the buffer.", lambda s: s.ready_groups),
    ("headrace_queue_pending_units", "Units neither leased nor committed.", lambda s: s.pending_units),
    ("headrace_queue_running_units", "Units leased.", lambda s: s.running_units),
    ("headrace_queue_age_seconds", "Age of the oldest complete group.", lambda s: s.queue_age_s),
    (
        "headrace_rate_unblocked_samples_per_second",
        "What the consumer would take if it never waited.",
        lambda s: s.unblocked_rate_per_s,
    ),
    (
        "headrace_rate_goodput_samples_per_second",
        "Accepted samples of one ready replica.",
        lambda s: s.goodput_per_replica_per_s,
    ),
    ("headrace_rate_acceptance_ratio", "Accepted over decided samples.", lambda s: s.acceptance_ratio),
    ("headrace_policy_version_step", "Newest published policy version.", lambda s: s.policy_version),
)


def _signals(snapshot: Snapshot, now_s: float) -> Iterator[Metric]:
    ages = GaugeMetricFamily("headrace_signal_age_seconds", "Age of a signal.", labels=["stage", "signal"])
    for name, text, pick in _SIGNALS:
        family = GaugeMetricFamily(name, text, labels=["stage"])
        for stage in snapshot.stages:
            reading = pick(stage.signals)
            if reading.value is not None and reading.at_s is not None:
                family.add_metric([stage.name], reading.value)
                ages.add_metric([stage.name, name.removeprefix("headrace_")], max(0.0, now_s - reading.at_s))
        yield family
    yield ages
    yield from _depths(snapshot)


def _depths(snapshot: Snapshot) -> Iterator[Metric]:
    signals = {stage.name: stage.signals for stage in snapshot.stages}
    yield _by_stage(
        "headrace_buffer_depth_steps",
        "Buffer depth in batches.",
        (
            (name, each.buffered_samples.value / max(1, each.batch_samples))
            for name, each in signals.items()
            if each.buffered_samples.value is not None
        ),
    )
    yield _by_stage(
        "headrace_buffer_depth_seconds",
        "Buffer depth in seconds of unblocked consumption.",
        (
            (name, each.buffered_samples.value / each.unblocked_rate_per_s.value)
            for name, each in signals.items()
            if each.buffered_samples.value is not None and each.unblocked_rate_per_s.value
        ),
    )


def _ledger(stats: LedgerStats) -> Iterator[Metric]:
    yield _counter("headrace_ledger_committed_tokens", "Tokens in committed samples.", stats.tokens.committed)
    yield _counter("headrace_ledger_salvaged_tokens", "Tokens handed over by lost holders.", stats.tokens.salvaged)
    yield _counter("headrace_ledger_discarded_tokens", "Tokens thrown away.", stats.tokens.discarded)
    yield _counter("headrace_ledger_accepted_samples", "Samples trained on.", stats.accepted)
    yield _counter("headrace_ledger_dead_lettered_units", "Units that failed for good.", stats.dead_lettered)
    yield _counter("headrace_ledger_salvages", "Hand-overs that carried tokens.", stats.interruptions_salvaged)
    dropped = CounterMetricFamily(
        "headrace_ledger_dropped_samples",
        "Samples dropped, by length (upper bound, tokens).",
        labels=["reason", "le_tokens"],
    )
    for reason, lengths in stats.dropped.items():
        for bucket, count in lengths.items():
            dropped.add_metric([reason, bucket], count)
    yield dropped


def _trainer(stats: LedgerStats) -> Iterator[Metric]:
    if stats.trainer is None:
        return
    yield _gauge("headrace_trainer_step", "Policy updates.", stats.trainer.step)
    if stats.trainer.wait_ratio is not None:
        yield _gauge("headrace_trainer_wait_ratio", "Share of its time that it waits.", stats.trainer.wait_ratio)
    phases = GaugeMetricFamily("headrace_trainer_phase_seconds", "Phases of the last iteration.", labels=["phase"])
    for phase, seconds in stats.trainer.phase_s.items():
        phases.add_metric([phase.value], seconds)
    yield phases


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _by_stage(name: str, text: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["stage"])
    for stage, value in values:
        family.add_metric([stage], value)
    return family


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "unknown"
