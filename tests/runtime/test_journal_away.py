"""A journal on a full disk: the loop goes on without launches, and what could not be written is written once, later."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scaler.model.plan import Memory
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.intents import Intent
from scaler.runtime.journal import Journal, JournalError, Turn
from tests.builders.controller import World, a_controller
from tests.builders.fleet import a_drain, a_launch, a_notice, a_worker, an_instance, worker_of

ORDER = DrainOrder(
    stage="rollout", pool="pool", replica_id="r", instance_ids=("i",), deadline_s=9.0, reason="notice", noticed_at_s=1.0
)
MANY = tuple(Intent(command=a_launch(f"t{number}"), decided_at_s=float(number)) for number in range(500))
"""More than fits into the pages that are there."""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


@contextmanager
def a_full_disk(journal: Journal) -> Iterator[None]:
    """The file may not grow: SQLite says that the disk is full as soon as a page more is needed."""
    journal._db.execute("PRAGMA max_page_count = 1")  # it takes no less than there are
    yield
    journal._db.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def no_file_grows(folder: Path) -> Iterator[None]:
    """The system takes no byte beyond what the longest file has: what is written fails only at the commit."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    longest = max(file.stat().st_size for file in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def a_decision(desired: int, *commands: str) -> dict[str, object]:
    stage = {"stage": "s", "desired": desired, "requested": 0, "observed": 0, "ready": 0,
             "reason": {"code": "steady", "clamps": []}}  # fmt: skip
    return {"stages": [stage], "commands": list(commands)}


async def test_what_a_full_disk_did_not_take_is_written_once_with_the_first_turn_that_it_takes(
    journal: Journal,
) -> None:
    before = await journal.commit(Turn(at_s=1.0, memory=Memory(), decision=a_decision(1), orders=(ORDER,)))
    again = replace(ORDER, deadline_s=20.0)
    with capture_logs() as logs, a_full_disk(journal):
        for turn in (
            Turn(
                at_s=2.0,
                memory=Memory(next_intent=3),
                intents=MANY,
                decision=a_decision(2, "drain"),
                orders_over=("r",),
            ),
            Turn(at_s=3.0, memory=Memory(next_intent=4), decision=a_decision(3), outcomes=((1, {"kind": "drain"}),)),
            Turn(
                at_s=4.0,
                memory=Memory(next_intent=4),
                decision=a_decision(3),
                intents_over=(MANY[0].token,),
                orders=(again,),
            ),
        ):
            written = await journal.commit(turn)
            assert (written.seq, written.durable) == (before.seq, False)
        assert (journal.intents(), journal.orders(), journal.memory()) == ((), (ORDER,), Memory()), "all or nothing"
    with capture_logs() as later:
        written = await journal.commit(Turn(at_s=5.0, memory=Memory(next_intent=5), decision=a_decision(4)))
        await journal.commit(Turn(at_s=6.0, memory=Memory(next_intent=5), decision=a_decision(4)))
    assert written.durable
    assert (journal.intents(), journal.orders(), journal.memory()) == (MANY[1:], (again,), Memory(next_intent=5))
    found = [(each["seq"], each["at_s"], each["stages"][0]["desired"]) for each in reversed(journal.decisions(9))]
    assert found == [(1, 1.0, 1), (2, 2.0, 2), (3, 4.0, 3), (4, 5.0, 4)], "those that repeat are one"
    assert [each["outcomes"] for each in journal.decisions(9)] == [[], [], [], [{"kind": "drain"}]]
    assert [each["event"] for each in (*logs, *later)] == ["journal_away", "journal_back"]
    assert "full" in logs[0]["error"]


async def test_a_commit_that_the_system_refuses_leaves_nothing_open(journal: Journal, tmp_path: Path) -> None:
    await journal.commit(Turn(at_s=1.0, memory=Memory()))
    with no_file_grows(tmp_path):
        written = [await journal.commit(Turn(at_s=2.0, memory=Memory(), intents=MANY)) for _ in range(2)]
    assert [each.durable for each in written] == [False, False]
    assert (await journal.commit(Turn(at_s=3.0, memory=Memory()))).durable
    assert journal.intents() == MANY


def test_a_start_on_a_full_disk_is_refused_in_one_line(journal: Journal, tmp_path: Path) -> None:
    with no_file_grows(tmp_path), pytest.raises(JournalError, match=r"journal\.sqlite"):
        [journal.raise_epoch(float(now_s)) for now_s in range(1000)]


async def test_a_fleet_whose_journal_is_on_a_full_disk_drains_and_launches_once_it_is_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.pool.put(an_instance("i"))
    world.ledger.put(a_worker("i", leases=1))
    notice = a_notice("i", world.clock.now_s())
    world.notices.notices = (notice,)
    launches = tuple(a_launch(f"t{number}") for number in range(100))
    world.script.plans = [(*launches, a_drain("i", world.clock.now_s() + 120, notice=notice))]
    async with a_controller(world) as running:
        with a_full_disk(running.journal):
            await running.turn()
            await running.turn()
        assert world.pool.launches == []
        assert running.count("headrace_journal_available") == 0
        assert world.ledger.records[worker_of("i")].drain is not None, "a drain waits for no journal"
        assert world.notices.let_go == frozenset()
        for _ in range(3):
            await running.turn()
        assert sorted(world.pool.launches) == sorted(each.token for each in launches)
        assert running.journal.intents() == ()
        assert running.count("headrace_journal_available") == 1
    async with a_controller(world) as second:
        await second.turn()
        assert len(world.pool.launches) == len(launches)
        assert len(second.replicas) == len(launches) + 1
