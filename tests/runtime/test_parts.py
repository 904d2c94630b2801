"""Clock, lock, journal, health: the small parts that the daemon stands on."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.model.plan import Memory, Plan, StageMemory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent
from scaler.runtime.clock import SystemClock
from scaler.runtime.health import alive, ready
from scaler.runtime.journal import Journal, JournalError, Turn
from scaler.runtime.leadership import LeaderLock, holder
from scaler.telemetry.readout import Readout
from tests.builders.clock import FakeClock
from tests.builders.fleet import a_launch, a_spec


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite")


def _reopened(journal: Journal, folder: Path) -> Journal:
    journal.close()
    return Journal(folder / "journal.sqlite")


def test_what_was_written_is_there_for_the_next_controller(journal: Journal, tmp_path: Path) -> None:
    stage = StageMemory(last_up_at_s=5.0, desired=3, policy=(("rate_per_s", 1.5),))
    memory = Memory(stages=(("rollout", stage),), next_intent=9)
    intent = Intent(command=a_launch(), decided_at_s=1.0)
    order = DrainOrder(
        stage="rollout",
        pool="pool",
        replica_id="r",
        instance_ids=("i",),
        deadline_s=9.0,
        reason="notice",
        noticed_at_s=1.0,
    )
    journal.write(Turn(at_s=1.0, memory=memory, intents=(intent,), orders=(order,)))
    journal = _reopened(journal, tmp_path)
    assert (journal.memory(), journal.intents(), journal.orders()) == (memory, (intent,), (order,))
    journal.write(Turn(at_s=2.0, memory=memory, intents_over=(intent.token,), orders_over=("r",)))
    journal = _reopened(journal, tmp_path)
    assert (journal.intents(), journal.orders()) == ((), ())
    journal.close()


def test_epochs_rise_with_every_start_also_when_the_clock_goes_back(journal: Journal) -> None:
    epochs = [journal.raise_epoch(now_s) for now_s in (1000.0, 500.0, 2000.0, 2000.0)]
    assert epochs == [1000, 1001, 2000, 2001]
    journal.close()


def test_a_memory_that_another_version_wrote_keeps_its_token_counter(journal: Journal) -> None:
    journal._set_fact("memory", '{"stages": "what is this", "next_intent": 17}')
    assert journal.memory() == Memory(next_intent=17)
    journal.close()


def test_decisions_are_bounded_and_newest_first(journal: Journal) -> None:
    for number in range(1100):
        stage = {"stage": "s", "desired": number, "requested": 0, "observed": 0, "ready": 0,
                 "reason": {"code": "steady", "clamps": []}}  # fmt: skip
        journal.write(Turn(at_s=float(number), memory=Memory(), decision={"stages": [stage], "commands": []}))
    found = journal.decisions(2000)
    assert len(found) == 1000
    assert [each["at_s"] for each in found[:2]] == [1099.0, 1098.0]
    journal.close()


def test_a_journal_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_text(
        "this is no database, but some text that is long enough to be read as a page"
    )
    with pytest.raises(JournalError, match=r"journal\.sqlite"):
        Journal(tmp_path / "journal.sqlite")


async def test_of_two_controllers_one_leads_and_the_other_follows_within_a_moment(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = (LeaderLock(tmp_path / "lock", clock) for _ in range(2))
    assert first.try_acquire()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(second.acquire())
        await clock.advance(60.0)
        assert (waiting.done(), second.leading) == (False, False)
        first.release()
        await clock.advance(1.0)
        assert waiting.done()
    assert second.leading
    second.release()


def test_who_leads_is_told_without_taking_the_lock(tmp_path: Path) -> None:
    lock = LeaderLock(tmp_path / "lock", FakeClock())
    assert holder(tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists(), "a look makes nothing"
    with lock:
        assert lock.try_acquire()
        assert holder(tmp_path / "lock") == str(os.getpid())
    assert holder(tmp_path / "lock") is None, "the file stays, and nobody holds it"


def _readout(clock: FakeClock, *, look_again_in_s: float = 10.0) -> Readout:
    plan = Plan(commands=(), look_again_in_s=look_again_in_s, stages=())
    return Readout(
        leading=True, synced=True, spec=a_spec(), plan=plan, decided_at_monotonic_s=clock.monotonic_s(), ledger_ok=True
    )


@pytest.mark.parametrize(
    ("look_again_in_s", "age_s", "ok"),
    [
        pytest.param(10.0, 74.0, True, id="three intervals and some grace are allowed"),
        pytest.param(10.0, 76.0, False, id="and no more"),
        pytest.param(60.0, 220.0, True, id="a plan that looks again later is waited for longer"),
    ],
)
def test_a_controller_that_does_not_decide_is_taken_for_dead(look_again_in_s: float, age_s: float, ok: bool) -> None:
    clock = FakeClock()
    readout = _readout(clock, look_again_in_s=look_again_in_s)
    clock.pass_time(age_s)
    assert alive(readout, 0.0, clock).ok is ok


def test_a_controller_that_never_decides_is_taken_for_dead_and_a_standby_is_not() -> None:
    clock = FakeClock()
    clock.pass_time(61.0)
    assert not alive(Readout(leading=True), 0.0, clock).ok
    assert alive(Readout(leading=False), 0.0, clock).ok


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"leading": False}, "standby", id="another one leads"),
        pytest.param({"synced": False, "pools_away": {"p": 2}}, "pool p", id="a pool has not answered"),
        pytest.param({"synced": False, "ledger_ok": False, "ledger_error": "boom"}, "boom", id="the ledger has not"),
    ],
)
def test_readiness_says_what_is_missing(change: dict[str, object], why: str) -> None:
    readout = _readout(FakeClock())
    assert ready(readout).ok
    verdict = ready(replace(readout, **change))  # type: ignore[arg-type]
    assert not verdict.ok
    assert why in verdict.message


async def test_sleepers_of_the_fake_clock_wake_in_order_at_their_own_times() -> None:
    clock, woken = FakeClock(0.0), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now_s()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 3.0), ("a", 1.0), ("b", 3.0)):
            group.create_task(sleeper(name, seconds))
        await clock.advance(5.0)
    assert woken == [("a", 1.0), ("c", 3.0), ("b", 3.0)]
    assert clock.now_s() == 5.0


async def test_the_system_clock_goes_on() -> None:
    clock = SystemClock()
    before_s = clock.monotonic_s()
    await clock.sleep(0.01)
    assert clock.monotonic_s() > before_s
    assert clock.now_s() > 1_600_000_000
