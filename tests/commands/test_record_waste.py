"""Where the tokens of a run went: what its ledger and its workers' counters say of three workers and two groups."""

import pytest

from scaler.commands.record_waste import Holds, Taken, Waste
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent, Scalar

END_S = 100.0


def event(at_s: float, kind: EventKind, worker: str | None, **data: Scalar) -> HistoryEvent:
    """About the unit, or the group, that `subject` names."""
    subject = str(data.pop("subject", "g1.0/0"))
    return HistoryEvent(seq=round(at_s), at_s=at_s, kind=kind, worker=worker, entries=(HistoryEntry(subject, data),))


def leased(at_s: float, worker: str, progress: int = 0) -> HistoryEvent:
    return event(at_s, EventKind.LEASED, worker, progress=progress)


def expired(at_s: float, progress: int) -> HistoryEvent:
    """By the ledger itself, which names no worker."""
    return event(at_s, EventKind.RELEASED, None, progress=progress)


def committed(at_s: float, worker: str, tokens: int) -> HistoryEvent:
    return event(at_s, EventKind.COMMITTED, worker, tokens=tokens)


def dropped(at_s: float) -> HistoryEvent:
    return event(at_s, EventKind.GROUP_DROPPED, None, subject="g1.0", reason="stale")


def wasted(generated: dict[str, int], *events: HistoryEvent, **taken: Taken) -> Waste:
    holds = Holds()
    for one in events:
        holds.take(one)
    return holds.waste(generated, taken, END_S)


KILLED = Taken(at_s=20.0, noticed=False)


def test_what_a_killed_worker_had_not_published_is_lost() -> None:
    events = leased(10, "a"), expired(24, 30), leased(25, "b", 30), committed(40, "b", 50)
    assert wasted({"a": 37, "b": 20}, *events, a=KILLED) == Waste(tokens=7, tokens_lost=7, kills_at_work=1)


def test_what_was_kept_for_a_group_that_is_dropped_is_given_up() -> None:
    events = leased(10, "a"), expired(24, 30), dropped(30)
    assert wasted({"a": 37}, *events, a=KILLED) == Waste(tokens=37, tokens_lost=7, kills_at_work=1)


def test_also_while_somebody_goes_on_with_it() -> None:
    events = leased(10, "a"), expired(24, 30), leased(25, "b", 30), dropped(30)
    assert wasted({"a": 37, "b": 4}, *events, a=KILLED) == Waste(tokens=41, tokens_lost=7, kills_at_work=1)


def test_what_waits_to_be_continued_is_not_wasted() -> None:
    assert wasted({"a": 30}, leased(10, "a"), expired(24, 30), a=KILLED).tokens == 0


def test_what_comes_after_the_run_is_not_counted() -> None:
    late = Taken(at_s=END_S + 1, noticed=False)
    events = leased(10, "a"), expired(END_S + 5, 30), dropped(END_S + 6)
    assert wasted({"a": 37}, *events, a=late) == Waste(tokens=0, tokens_lost=0, kills_at_work=0)


@pytest.mark.parametrize(
    ("end", "kills"), [(KILLED, 1), (Taken(at_s=5.0, noticed=False), 0), (Taken(at_s=20.0, noticed=True), 0)]
)
def test_a_kill_counts_without_notice_and_at_work(end: Taken, kills: int) -> None:
    assert wasted({"a": 30}, leased(10, "a"), expired(24, 30), a=end).kills_at_work == kills
