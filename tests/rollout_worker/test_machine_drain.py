"""Tables of the drain: one path for signal, notice and the ledger's mark."""

import pytest

from rollout_worker import events as ev
from rollout_worker.held import UnitPhase
from rollout_worker.machine import MachineSettings, WorkerMachine
from scaler.model.work import FinishReason, ReleaseReason
from tests.builders.worker import Driven, a_chunk, a_control, a_lease, a_machine, a_unit, of_kind

SIGNAL, NOTICE, LEDGER = ev.DrainSource
UNIT = a_unit(max_tokens=100)
REQUEST = f"{UNIT.unit_id}@1.1"


def drain(driven: Driven, source: ev.DrainSource, in_s: float) -> list[ev.Instruction]:
    if source is LEDGER:
        return driven.beat(a_control(drain_in_s=in_s))
    return driven.order(source, in_s)


def at_ten_tokens_a_second(tokens: int = 20, **settings: float | None) -> Driven:
    """One unit of at most 100 tokens, `tokens` of them generated, at a measured 10 tokens a second."""
    driven = a_machine(a_lease(UNIT), concurrency=1, **settings)
    for _ in range(tokens):
        driven.now_s += 0.1
        driven.chunk(REQUEST)
    driven.beat()
    return driven


def hand_over(driven: Driven) -> list[ev.LedgerCall]:
    """All calls until there is none, each answered."""
    calls = []
    while (call := driven.idle()) is not None:
        calls.append(call)
        driven.answer(call)
    return calls


@pytest.mark.parametrize("source", ev.DrainSource)
def test_draining_it_leases_nothing(source: ev.DrainSource) -> None:
    driven = a_machine()
    drain(driven, source, 60.0)
    assert not isinstance(driven.idle(), ev.AskLeases)


@pytest.mark.parametrize("source", ev.DrainSource)
def test_what_fits_is_finished(source: ev.DrainSource) -> None:
    driven = at_ten_tokens_a_second()
    said = drain(driven, source, 20.0)  # 8 s of work in the 16 s before the margin
    assert of_kind(said, ev.Abort) == []
    driven.chunk(REQUEST, a_chunk(1, finish=FinishReason.STOP))
    assert isinstance(driven.idle(), ev.SendCommits)


@pytest.mark.parametrize("source", ev.DrainSource)
def test_what_does_not_fit_is_released_at_once_with_all_its_tokens(source: ev.DrainSource) -> None:
    driven = at_ten_tokens_a_second()
    driven.chunk(REQUEST, a_chunk(3))
    said = drain(driven, source, 7.0)
    assert of_kind(said, ev.Abort) == [ev.Abort(REQUEST)]
    call = driven.idle()
    assert isinstance(call, ev.SendReleases)
    (release,) = call.releases
    assert release.reason is ReleaseReason.DRAIN
    published = driven.machine.units[UNIT.unit_id].published
    assert published + (len(release.progress.tokens) if release.progress else 0) == 23


@pytest.mark.parametrize("source", ev.DrainSource)
def test_a_deadline_that_has_passed_releases_at_once(source: ev.DrainSource) -> None:
    driven = at_ten_tokens_a_second(99)
    drain(driven, source, -5.0)
    assert driven.machine.in_phase(UnitPhase.GENERATING) == []
    assert [type(call) for call in hand_over(driven)] == [ev.SendReleases, ev.SayGoodbye]


def test_a_unit_whose_speed_is_unknown_is_released() -> None:
    driven = a_machine(a_lease(UNIT))
    assert ev.Abort(REQUEST) in driven.order(SIGNAL, 1000.0)


def test_a_unit_that_stalls_is_released_before_the_margin() -> None:
    driven = at_ten_tokens_a_second(90)  # 1 s of work left
    driven.order(NOTICE, 120.0)
    driven.later(108.9)
    assert driven.machine.in_phase(UnitPhase.GENERATING) != []
    driven.later(0.2)  # 10.9 s before the deadline, and the margin is 10 s
    assert driven.machine.in_phase(UnitPhase.GENERATING) == []


def test_a_compressed_deadline_keeps_a_compressed_margin() -> None:
    driven = at_ten_tokens_a_second(90)  # 1 s of work left, the margin of 2 s is 0.4 s
    assert of_kind(driven.order(NOTICE, 2.0), ev.Abort) == []
    assert of_kind(driven.later(0.7), ev.Abort) == [ev.Abort(REQUEST)]


@pytest.mark.parametrize("source", [SIGNAL, NOTICE])
def test_handed_over_it_says_goodbye_and_ends(source: ev.DrainSource) -> None:
    driven = at_ten_tokens_a_second()
    driven.order(source, 5.0)
    assert [type(call) for call in hand_over(driven)] == [ev.SendReleases, ev.SayGoodbye]
    assert of_kind(driven.said, ev.Exit) == [ev.Exit(handed_over=True)]


def test_drained_by_the_ledger_alone_it_says_goodbye_and_stays_idle_until_it_is_stopped() -> None:
    driven = at_ten_tokens_a_second()
    drain(driven, LEDGER, 5.0)
    assert isinstance(hand_over_marked(driven), ev.SayGoodbye)
    driven.later(3600.0)
    assert driven.idle() is None
    assert of_kind(driven.said, ev.Exit) == []
    assert of_kind(driven.order(SIGNAL, 30.0), ev.Exit) == [ev.Exit(handed_over=True)]


def hand_over_marked(driven: Driven) -> ev.LedgerCall | None:
    """The last call before it falls silent, while the ledger's mark stands."""
    last = None
    while (call := driven.idle()) is not None:
        last = call
        driven.beat(a_control(drain_in_s=5.0)) if isinstance(call, ev.SendBeats) else driven.answer(call)
    return last


def test_the_earliest_of_several_deadlines_binds() -> None:
    for first, second in [(20.0, 7.0), (7.0, 20.0)]:
        driven = at_ten_tokens_a_second()
        driven.order(SIGNAL, first)
        driven.order(NOTICE, second)
        assert driven.machine.in_phase(UnitPhase.GENERATING) == []


def test_a_later_notice_does_not_put_off_an_earlier_one() -> None:
    driven = at_ten_tokens_a_second()
    driven.order(NOTICE, 20.0)
    driven.later(3.0)
    driven.order(NOTICE, 1000.0)
    driven.later(6.0)
    assert driven.machine.in_phase(UnitPhase.GENERATING) == []


def test_an_undrain_brings_it_back() -> None:
    driven = a_machine()
    drain(driven, LEDGER, 60.0)
    driven.beat(a_control())
    assert driven.idle() == ev.AskLeases(8)


@pytest.mark.parametrize("source", [SIGNAL, NOTICE])
def test_an_undrain_does_not_bring_back_what_something_else_drains(source: ev.DrainSource) -> None:
    driven = a_machine(a_lease(UNIT))
    drain(driven, LEDGER, 60.0)
    driven.order(source, 60.0)
    driven.beat(a_control())
    assert not any(isinstance(call, ev.AskLeases) for call in hand_over(driven))


def test_leases_that_arrive_after_the_order_are_released_untouched() -> None:
    driven = a_machine()
    driven.order(SIGNAL, 60.0)
    said = driven.grant(a_lease(UNIT, done=4))
    assert of_kind(said, ev.Generate) == []
    call = driven.idle()
    assert isinstance(call, ev.SendReleases)
    assert call.releases[0].progress is None


def test_while_the_ledger_is_away_it_keeps_trying_and_ends_at_the_deadline_with_the_work_unsaved() -> None:
    driven = at_ten_tokens_a_second()
    driven.order(SIGNAL, 6.0)
    for _ in range(5):
        driven.later(1.0)
        assert isinstance(driven.idle(), ev.SendBeats | ev.SendReleases)
        assert of_kind(driven.said, ev.Exit) == []
    driven.later(1.0)
    assert of_kind(driven.said, ev.Exit) == [ev.Exit(handed_over=False)]


def test_a_signal_before_it_is_registered_ends_it_at_once() -> None:
    driven = Driven(WorkerMachine(MachineSettings()))
    assert of_kind(driven.order(SIGNAL, 30.0), ev.Exit) == [ev.Exit(handed_over=True)]


def test_the_stores_clock_need_not_be_ours() -> None:
    driven = at_ten_tokens_a_second(90)
    driven.now_s += 1.0
    driven.beat(a_control(drain_in_s=120.0))  # the store says 5000 s + 120 s
    finish_by_s = driven.machine.drains.finish_by_s
    assert finish_by_s == pytest.approx(driven.now_s + 110.0)
