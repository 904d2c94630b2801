"""Filtering and refilling: bounded, and never down to nothing. Redistribution: measured from what workers say."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.model.job import DrainMark, JobSettings, WorkerIdentity, WorkerRecord, WorkerStatus
from scaler.model.work import GroupSamples
from tests.builders.in_process_worker import PausingClock
from tests.builders.memory_ledger import MemoryLedger
from tests.builders.samples import group, sample
from tests.builders.training import ShortRepeat
from trainer.intake import Intake, IntakeSettings, longest_generation_s, score, useless
from trainer.ledger_calls import LedgerCalls
from trainer.record import append_line
from trainer.supply import PromptSupply
from trainer.timing import PhaseTimer, RedistributionWatch

JOB = JobSettings(group_size=2, batch_groups=2, max_staleness=1)
FLAT, SPREAD = (0.5, 0.5), (0.2, 0.8)


def scored(name: str, rewards: tuple[float, ...]) -> GroupSamples:
    return group(name, [sample([1], reward=reward) for reward in rewards])


class Buffer:
    """A ledger whose complete groups are what the test says, in order."""

    def __init__(self, *rewards: tuple[float, ...]) -> None:
        self.ledger = MemoryLedger(JOB)
        self.clock = PausingClock()
        for i, values in enumerate(rewards):
            self.add(f"b{i}", values)
        self.intake = Intake(
            calls=LedgerCalls(ledger=self.ledger.as_ledger(), clock=self.clock, stop=threading.Event()),
            task=ShortRepeat(),
            supply=PromptSupply(task=ShortRepeat(), seed=0, group_size=2, time_bound_s=60.0),
            job=JOB,
            settings=IntakeSettings(),
            watch=RedistributionWatch(),
            next_prompt=0,
        )

    def add(self, name: str, rewards: tuple[float, ...]) -> None:
        made = scored(name, rewards)
        self.ledger.put_units(made.units)
        self.ledger.samples |= {u.unit_id: s for u, s in zip(made.units, made.samples, strict=True)}

    def take(self) -> tuple[list[str], int]:
        """Groups of the batch, and how many were sent back."""
        timer = PhaseTimer(self.clock, 0, lambda step, phase: None)
        taken = self.intake.next_batch(self.ledger.attach_trainer("t"), 0, timer)
        assert len(taken.rewards) == len(taken.batch.groups)
        assert taken.batch.groups == self.ledger.batches[1].groups
        return [each.group_id for each in taken.batch.groups], taken.groups_filtered


@pytest.mark.parametrize(
    ("buffer", "batch", "filtered"),
    [
        pytest.param([SPREAD, SPREAD], ["b0", "b1"], 0, id="all of use"),
        pytest.param([SPREAD, FLAT, SPREAD], ["b0", "b2"], 1, id="one sent back and replaced"),
        pytest.param([FLAT, SPREAD, FLAT, SPREAD], ["b1", "b3"], 2, id="the replacement sent back too"),
        pytest.param([FLAT, FLAT, FLAT, FLAT, SPREAD], ["b2", "b3"], 2, id="a bounded number of rounds"),
        pytest.param([FLAT, SPREAD], ["b1"], 1, id="nothing to replace it with: what there is"),
        pytest.param([FLAT, FLAT], ["b1"], 1, id="never down to nothing"),
    ],
)
def test_groups_without_spread_are_sent_back(buffer: list[tuple[float, ...]], batch: list[str], filtered: int) -> None:
    assert Buffer(*buffer).take() == (batch, filtered)


def test_the_wait_for_a_replacement_is_bounded() -> None:
    buffer = Buffer(FLAT, SPREAD)
    began_s = buffer.clock.time_s
    buffer.take()
    assert buffer.clock.pauses > 1
    assert buffer.clock.time_s - began_s < 2 * IntakeSettings().refill_wait_s + 1


def test_a_replacement_that_comes_late_but_in_time_is_taken() -> None:
    buffer = Buffer(FLAT, SPREAD)
    buffer.clock.during = lambda: buffer.add("late", SPREAD) if buffer.clock.pauses == 5 else None
    assert buffer.take() == (["b1", "late"], 1)


def test_a_batch_that_comes_again_is_taken_as_it_is() -> None:
    buffer = Buffer(FLAT, SPREAD, SPREAD)
    assert buffer.ledger.take_batch(buffer.ledger.attach_trainer("killed"), 2, 0, 1) is not None
    assert buffer.take() == (["b0", "b1"], 0)


def test_while_waiting_the_stock_is_kept_up() -> None:
    buffer = Buffer(SPREAD)
    buffer.clock.during = lambda: buffer.add("late", SPREAD) if buffer.clock.pauses == 30 else None
    buffer.take()
    assert buffer.ledger.stats().pending >= (JOB.max_staleness + 2) * JOB.batch_samples
    assert 1 < buffer.ledger.calls.count("stats") < 10


def test_rewards_that_samples_carry_are_kept() -> None:
    assert score(ShortRepeat(), scored("g", (0.25, 0.75))) == (0.25, 0.75)


def test_only_the_last_flat_group_stays_when_all_are_flat() -> None:
    groups = [scored(name, FLAT) for name in "abc"]
    assert useless(groups, dict.fromkeys("abc", FLAT)) == ["a", "b"]


def worker(version: int | None, *, ready: bool = True, gone: bool = False, draining: bool = False) -> WorkerRecord:
    return WorkerRecord(
        identity=WorkerIdentity(worker="w", replica_id="r"),
        incarnation=1,
        registered_at_s=0.0,
        last_seen_at_s=0.0,
        status=WorkerStatus(ready=ready, version=version),
        drain=DrainMark(deadline_s=0.0, reason="", epoch=1) if draining else None,
        leases=0,
        committed_samples=0,
        gone=gone,
    )


@pytest.mark.parametrize(
    ("workers", "seconds"),
    [
        pytest.param([worker(3), worker(3)], 4.0, id="all have it"),
        pytest.param([worker(4)], 4.0, id="a newer one counts"),
        pytest.param([worker(3), worker(2)], None, id="one is behind"),
        pytest.param([worker(3), worker(2, gone=True)], 4.0, id="who is gone does not count"),
        pytest.param([worker(3), worker(2, draining=True)], 4.0, id="who drains does not count"),
        pytest.param([worker(3), worker(None, ready=False)], 4.0, id="who is not ready does not count"),
        pytest.param([], None, id="nobody there says nothing"),
    ],
)
def test_redistribution_ends_when_every_ready_worker_has_the_version(
    workers: list[WorkerRecord], seconds: float | None
) -> None:
    watch = RedistributionWatch()
    watch.published(3, 10.0)
    watch.observe(workers, 14.0)
    watch.observe(workers, 20.0)
    assert watch.last_s == seconds


def test_a_line_is_added_whole(tmp_path: Path) -> None:
    for text in ("one", "two"):
        append_line(tmp_path / "log", text)
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_generation_is_as_long_as_its_longest_sample() -> None:
    buffer = Buffer(SPREAD, SPREAD)
    for number, unit_id in enumerate(sorted(buffer.ledger.samples)[:2]):
        timed = replace(buffer.ledger.samples[unit_id], generation_s=3.0 + number)
        buffer.ledger.samples[unit_id] = timed
    timer = PhaseTimer(buffer.clock, 0, lambda step, phase: None)
    taken = buffer.intake.next_batch(buffer.ledger.attach_trainer("t"), 0, timer)
    assert longest_generation_s(taken) == 4.0
