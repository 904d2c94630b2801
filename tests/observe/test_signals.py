"""Signals from the ledger: each reading has the time at which it was true, on the controller's clock."""

from scaler.model.reading import MISSING, Freshness
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.registry import open_source
from scaler.observe.signals import SignalSource, SourceContext
from tests.builders.clock import FakeClock
from tests.builders.fleet import FakeLedger, InlineCalls


def _source(ledger: FakeLedger) -> tuple[LedgerWatch, SignalSource]:
    watch = LedgerWatch(InlineCalls(ledger), ledger.clock)
    return watch, open_source("ledger", SourceContext(ledger=watch, clock=ledger.clock, averaged_over_s=60.0))


async def test_depths_are_as_old_as_the_question_whatever_the_stores_clock_says() -> None:
    clock = FakeClock()
    ledger = FakeLedger(clock, ahead_s=5000.0)
    watch, source = _source(ledger)
    await watch.poll()
    await source.poll()
    signals = source.signals("rollout")
    assert signals.buffered_samples.at_s == clock.now_s()
    assert (signals.buffered_samples.value, signals.ready_groups.value, signals.queue_age_s.value) == (16, 4, 2.5)
    assert (signals.batch_samples, signals.max_staleness) == (8, 1)


async def test_the_trainers_rate_is_as_old_as_its_report() -> None:
    ledger = FakeLedger(FakeClock(), ahead_s=-300.0)
    watch, source = _source(ledger)
    for _ in range(4):
        await watch.poll()
        await source.poll()
        ledger.changes = {"trainer_at_s": ledger.clock.now_s() - 300.0 - 45.0}
    rate = source.signals("rollout").unblocked_rate_per_s
    now_s = ledger.clock.now_s()
    assert now_s - (rate.at_s or 0) == 45.0
    assert rate.freshness(now_s, 30.0) is Freshness.STALE
    assert source.signals("rollout").buffered_samples.freshness(now_s, 30.0) is Freshness.FRESH


async def test_without_a_trainer_a_version_or_commits_these_are_missing_and_not_zero() -> None:
    ledger = FakeLedger(
        FakeClock(), changes={"trainer": None, "version": None, "accepted": 0, "oldest_ready_age_s": None}
    )
    watch, source = _source(ledger)
    await watch.poll()
    await source.poll()
    signals = source.signals("rollout")
    assert signals.unblocked_rate_per_s == signals.policy_version == signals.acceptance_ratio == MISSING
    assert signals.goodput_per_replica_per_s == MISSING
    assert signals.queue_age_s.value == 0.0, "an empty queue has no age"


async def test_before_the_first_answer_and_for_other_stages_everything_is_missing() -> None:
    ledger = FakeLedger(FakeClock(), away=True)
    watch, source = _source(ledger)
    assert not await watch.poll()
    await source.poll()
    assert source.signals("rollout").buffered_samples == MISSING
    ledger.away = False
    assert await watch.poll()
    await source.poll()
    assert source.signals("reward").buffered_samples == MISSING


async def test_a_batch_in_training_is_not_in_the_buffer() -> None:
    watch, source = _source(FakeLedger(FakeClock(), changes={"buffered": 24, "consumed": 40, "accepted": 32}))
    await watch.poll()
    await source.poll()
    assert source.signals("rollout").buffered_samples.value == 16
