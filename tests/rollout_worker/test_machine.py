"""Tables of the worker's machine: what it says to what it hears."""

import pytest

from rollout_worker import events as ev
from rollout_worker.held import UnitPhase
from rollout_worker.machine import MachineSettings, WorkerMachine
from scaler.ledger.contract import CommitOutcome
from scaler.model.work import FinishReason, ProgressDelta, ReleaseReason, Resume, VersionSpan
from tests.builders.worker import Driven, a_chunk, a_control, a_lease, a_machine, a_unit, of_kind

UNIT = a_unit()
REQUEST = f"{UNIT.unit_id}@1.1"


def test_the_first_call_registers_and_the_next_says_that_it_is_not_ready() -> None:
    driven = Driven(WorkerMachine(MachineSettings()))
    assert driven.idle() == ev.Register()
    driven.hear(ev.Registered(at_s=0))
    call = driven.idle()
    assert isinstance(call, ev.SendBeats)
    assert call.status.ready is False


@pytest.mark.parametrize(
    ("healthy", "version", "minimum", "ready"),
    [
        pytest.param(True, 3, 3, True, id="healthy and at the minimum version"),
        pytest.param(True, 2, 3, False, id="a version too old"),
        pytest.param(True, None, None, False, id="no weights at all"),
        pytest.param(False, 3, 3, False, id="unhealthy"),
        pytest.param(True, 0, None, True, id="any version where no minimum is set"),
    ],
)
def test_ready_only_when_healthy_and_at_the_minimum_version_and_no_lease_before(
    healthy: bool, version: int | None, minimum: int | None, ready: bool
) -> None:
    driven = a_machine(min_version=minimum)
    driven.hear(ev.EngineSeen(at_s=0, healthy=healthy, version=version))
    assert driven.machine.status().ready is ready
    assert (driven.idle() == ev.AskLeases(8)) is ready


def test_asks_for_as_many_units_as_it_has_free_places() -> None:
    driven = a_machine(a_lease(a_unit(index=0)), a_lease(a_unit(index=1)), concurrency=5)
    assert driven.idle() == ev.AskLeases(3)


def test_a_lease_call_that_grants_nothing_is_repeated_after_a_growing_wait() -> None:
    driven = a_machine(heartbeat_s=2.0, lease_wait_initial_s=0.25, lease_wait_max_s=1.0)
    waits_s = []
    for _ in range(5):
        driven.grant()
        start_s = driven.now_s
        while not isinstance(driven.idle(), ev.AskLeases):
            driven.now_s += 0.125
            driven.beat()
        waits_s.append(driven.now_s - start_s)
    assert waits_s == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_a_unit_that_comes_with_progress_continues_after_it() -> None:
    driven = a_machine()
    (generate,) = of_kind(driven.grant(a_lease(UNIT, done=3)), ev.Generate)
    assert generate.request.prefix == (0, 1, 2)
    assert generate.request.max_tokens == UNIT.max_tokens


def test_a_unit_whose_progress_reaches_its_bound_is_committed_without_the_engine() -> None:
    driven = a_machine()
    said = driven.grant(a_lease(a_unit(max_tokens=3), done=3))
    assert of_kind(said, ev.Generate) == []
    call = driven.idle()
    assert isinstance(call, ev.SendCommits)
    assert call.commits[0].sample.finish_reason is FinishReason.TOKEN_BOUND


def test_progress_goes_out_at_the_token_bound_and_not_before() -> None:
    driven = a_machine(a_lease(UNIT, done=2), publish_tokens=4, concurrency=1)
    driven.chunk(REQUEST, a_chunk(3))
    assert driven.idle() is None
    driven.chunk(REQUEST, a_chunk(1, version=2))
    call = driven.idle()
    assert isinstance(call, ev.SendBeats)
    assert call.beats[0].progress == ProgressDelta(
        start=2, tokens=(5,) * 4, logprobs=(-0.5,) * 4, spans=(VersionSpan(2, 5, 1), VersionSpan(5, 6, 2))
    )


def test_progress_goes_out_at_the_time_bound() -> None:
    driven = a_machine(a_lease(UNIT), publish_interval_s=0.3, concurrency=1)
    driven.chunk(REQUEST)
    driven.later(0.2)
    assert driven.idle() is None
    driven.later(0.2)
    assert isinstance(driven.idle(), ev.SendBeats)


def test_progress_not_acknowledged_goes_out_again_from_the_same_place() -> None:
    driven = a_machine(a_lease(UNIT), publish_tokens=2, concurrency=1)
    driven.chunk(REQUEST, a_chunk(2))
    first = driven.idle()
    driven.chunk(REQUEST, a_chunk(1))
    again = driven.idle()
    assert isinstance(first, ev.SendBeats)
    assert isinstance(again, ev.SendBeats)
    assert [call.beats[0].progress.start for call in (first, again) if call.beats[0].progress] == [0, 0]
    driven.answer(again)
    assert driven.machine.status().unpublished_tokens == 0


def test_a_heartbeat_keeps_every_lease_although_nothing_is_new() -> None:
    driven = a_machine(a_lease(UNIT), heartbeat_s=1.0, concurrency=1)
    driven.later(0.9)
    assert driven.idle() is None
    driven.later(0.2)
    call = driven.idle()
    assert isinstance(call, ev.SendBeats)
    assert [(beat.unit_id, beat.progress) for beat in call.beats] == [(UNIT.unit_id, None)]


@pytest.mark.parametrize("resume", [Resume.TURN, Resume.RESTART])
def test_half_a_turn_and_what_a_restart_throws_away_are_not_published(resume: Resume) -> None:
    unit = a_unit(resume=resume)
    driven = a_machine(a_lease(unit), publish_tokens=1, concurrency=1)
    driven.chunk(REQUEST, a_chunk(5))
    assert driven.idle() is None
    driven.order(ev.DrainSource.SIGNAL, 0.0)
    call = driven.idle()
    assert isinstance(call, ev.SendReleases)
    assert call.releases[0].progress is None


def test_without_progress_nothing_is_published_or_handed_over() -> None:
    driven = a_machine(a_lease(UNIT), publish_progress=False, publish_tokens=1, concurrency=1)
    driven.chunk(REQUEST, a_chunk(5))
    assert driven.idle() is None
    driven.later(1.0)
    beat = driven.idle()
    assert isinstance(beat, ev.SendBeats)
    assert beat.beats[0].progress is None
    assert beat.status.unpublished_tokens == 5
    driven.answer(beat)
    driven.order(ev.DrainSource.SIGNAL, 0.0)
    call = driven.idle()
    assert isinstance(call, ev.SendReleases)
    assert call.releases[0].progress is None


def test_a_finished_unit_is_committed_whole_with_its_spans() -> None:
    driven = a_machine(a_lease(UNIT, done=2), concurrency=1)
    driven.chunk(REQUEST, a_chunk(2, version=1))
    driven.chunk(REQUEST, a_chunk(1, version=4, finish=FinishReason.STOP))
    call = driven.idle()
    assert isinstance(call, ev.SendCommits)
    (commit,) = call.commits
    assert commit.sample.tokens == (0, 1, 5, 5, 5)
    assert commit.sample.spans == (VersionSpan(0, 4, 1), VersionSpan(4, 5, 4))
    assert commit.sample.finish_reason is FinishReason.STOP
    driven.answer(call)
    assert driven.machine.units == {}


def test_a_commit_of_unknown_fate_comes_up_again() -> None:
    driven = a_machine(a_lease(UNIT), concurrency=1)
    driven.chunk(REQUEST, a_chunk(1, finish=FinishReason.STOP))
    first = driven.idle()
    driven.later(0.1)
    calls = [first, driven.idle()]
    assert all(isinstance(call, ev.SendCommits) for call in calls)


def test_a_refused_commit_is_forgotten_and_told() -> None:
    driven = a_machine(a_lease(UNIT), concurrency=1)
    driven.chunk(REQUEST, a_chunk(1, finish=FinishReason.STOP))
    driven.answer(driven.idle(), CommitOutcome.REFUSED)
    assert driven.machine.units == {}
    assert of_kind(driven.said, ev.Tell)[-1].event == "commit_refused"


def test_an_engine_that_passes_the_token_bound_is_stopped_at_it() -> None:
    driven = a_machine(a_lease(a_unit(max_tokens=4)), concurrency=1)
    said = driven.chunk(REQUEST, a_chunk(9))
    assert ev.Abort(REQUEST) in said
    call = driven.idle()
    assert isinstance(call, ev.SendCommits)
    assert len(call.commits[0].sample.tokens) == 4
    assert call.commits[0].sample.finish_reason is FinishReason.TOKEN_BOUND


def test_the_time_bound_is_a_result() -> None:
    driven = a_machine(a_lease(a_unit(time_bound_s=5.0)), concurrency=1)
    driven.chunk(REQUEST, a_chunk(3))
    driven.later(4.9)
    assert driven.machine.in_phase(UnitPhase.TO_COMMIT) == []
    assert ev.Abort(REQUEST) in driven.later(0.2)
    (unit,) = driven.machine.in_phase(UnitPhase.TO_COMMIT)
    assert unit.commit().sample.finish_reason is FinishReason.TIME_BOUND
    assert len(unit.commit().sample.tokens) == 3


def test_what_an_aborted_generation_still_says_is_not_taken() -> None:
    driven = a_machine(a_lease(a_unit(time_bound_s=5.0)), concurrency=1)
    driven.later(6.0)
    driven.chunk(REQUEST, a_chunk(3))
    (unit,) = driven.machine.in_phase(UnitPhase.TO_COMMIT)
    assert unit.tokens == []
    assert driven.machine.tokens_generated == 3


@pytest.mark.parametrize("reason", [ReleaseReason.INFRASTRUCTURE, ReleaseReason.UNIT_FAILURE])
def test_a_failed_generation_is_released_with_its_reason_error_and_tokens(reason: ReleaseReason) -> None:
    driven = a_machine(a_lease(UNIT), concurrency=1)
    driven.chunk(REQUEST, a_chunk(3))
    driven.fail(REQUEST, ev.GenerationFailed(at_s=0, request_id=REQUEST, reason=reason, error="boom"))
    call = driven.idle()
    assert isinstance(call, ev.SendReleases)
    (release,) = call.releases
    assert (release.reason, release.error) == (reason, "boom")
    assert release.progress is not None
    assert len(release.progress.tokens) == 3


def test_an_engine_failure_makes_it_wait_before_the_next_lease_and_a_units_own_does_not() -> None:
    for reason, call in [(ReleaseReason.INFRASTRUCTURE, None), (ReleaseReason.UNIT_FAILURE, ev.AskLeases(1))]:
        driven = a_machine(a_lease(UNIT), concurrency=1)
        driven.fail(REQUEST, ev.GenerationFailed(at_s=0, request_id=REQUEST, reason=reason, error="boom"))
        driven.answer(driven.idle())
        assert driven.idle() == call


def test_an_abandoned_unit_is_stopped_and_released_as_abandoned() -> None:
    driven = a_machine(a_lease(UNIT), concurrency=1)
    assert ev.Abort(REQUEST) in driven.beat(a_control(abandon=(UNIT.unit_id,)))
    call = driven.idle()
    assert isinstance(call, ev.SendReleases)
    assert call.releases[0].reason is ReleaseReason.ABANDONED


def test_a_finished_unit_that_is_abandoned_is_not_committed() -> None:
    driven = a_machine(a_lease(UNIT), concurrency=1)
    driven.chunk(REQUEST, a_chunk(1, finish=FinishReason.STOP))
    driven.beat(a_control(abandon=(UNIT.unit_id,)))
    assert isinstance(driven.idle(), ev.SendReleases)


def test_a_lost_unit_is_stopped_and_forgotten() -> None:
    driven = a_machine(a_lease(UNIT), concurrency=1)
    assert ev.Abort(REQUEST) in driven.beat(a_control(lost=(UNIT.unit_id,)))
    assert driven.machine.units == {}
    assert driven.idle() == ev.AskLeases(1)


def test_a_unit_that_comes_straight_back_under_a_new_fence_replaces_the_old_hold() -> None:
    driven = a_machine(a_lease(UNIT), concurrency=2)
    driven.chunk(REQUEST, a_chunk(3))
    said = driven.grant(a_lease(UNIT, fence=2, done=1))
    assert ev.Abort(REQUEST) in said
    assert [generate.request.prefix for generate in of_kind(said, ev.Generate)] == [(0,)]
    driven.chunk(REQUEST, a_chunk(1))
    assert len(driven.machine.units[UNIT.unit_id].tokens) == 1


def test_a_newer_published_version_makes_it_look_for_weights() -> None:
    driven = a_machine()
    assert ev.LookForWeights() in driven.beat(a_control(version=2))
    assert ev.LookForWeights() not in driven.beat(a_control(version=1))


def test_overdue_heartbeats_come_before_all_then_releases_commits_and_leases() -> None:
    leases = [a_lease(a_unit(index=i)) for i in range(3)]
    driven = a_machine(*leases, concurrency=3)
    driven.chunk("g.0/1@1.1", a_chunk(1, finish=FinishReason.STOP))
    request = "g.0/2@1.1"
    driven.fail(
        request, ev.GenerationFailed(at_s=0, request_id=request, reason=ReleaseReason.UNIT_FAILURE, error="boom")
    )
    driven.later(2.0)
    kinds = []
    for _ in range(3):
        call = driven.idle()
        kinds.append(type(call))
        driven.answer(call)
    assert kinds == [ev.SendBeats, ev.SendReleases, ev.SendCommits]
    assert driven.idle() == ev.AskLeases(2)
