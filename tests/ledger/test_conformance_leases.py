"""Promises of units and leases: order, admission, fences, progress, failures."""

import itertools
from collections.abc import Callable

import pytest

from scaler.ledger.audit import audit
from scaler.ledger.contract import NOT_CONFIGURED, CommitOutcome, Ledger, LedgerRefused, UnitState
from scaler.model.work import DropReason, FencingToken, ReleaseReason, Resume, VersionSpan
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    group,
    groups,
    identity,
    ids,
    lease_all,
    release_of,
    run_units,
    settings,
    states,
)
from tests.ledger.factories import LedgerFactory

# --- putting ----------------------------------------------------------------------------------------------------------


def test_a_unit_is_known_for_ever_by_its_id(ledger: Ledger) -> None:
    assert [ledger.put_units(groups(2)), ledger.put_units(groups(3)), ledger.put_units(groups(3))] == [4, 2, 0]


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda ledger: ledger.put_units(groups(1)), id="units"),
        pytest.param(lambda ledger: ledger.stats(), id="counts"),
    ],
)
def test_a_job_nobody_configured_says_who_can(ledger_factory: LedgerFactory, ask: Callable[[Ledger], object]) -> None:
    with pytest.raises(LedgerRefused) as refused:
        ask(ledger_factory.open())
    assert str(refused.value) == NOT_CONFIGURED
    assert "--configure" in NOT_CONFIGURED


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([0], id="one is missing"),
        pytest.param([0, 0], id="one comes twice"),
    ],
)
def test_a_group_comes_whole_or_not_at_all(ledger: Ledger, members: list[int]) -> None:
    whole = group("g", 2)

    with pytest.raises(ValueError, match="group"):
        ledger.put_units([*groups(1), *(whole[index] for index in members)])

    assert ledger.stats().pending == 0


def test_jobs_in_one_store_do_not_mix(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    other = ledger_factory.open("other")
    other.configure(settings(group_size=3))
    other.register(identity("w9"))
    ledger.put_units(groups(2))
    other.put_units(groups(1, size=3))
    run_units(other, "w9", 1)

    assert (ledger.stats().pending, other.stats().pending, other.stats().buffered) == (4, 2, 1)
    assert states(ledger) == {UnitState.PENDING: 4}
    assert lease_all(other, "w1", 1) == ()
    assert [record.identity.worker for record in ledger.workers()] == ["w1"]


# --- order and admission ----------------------------------------------------------------------------------------------


def test_units_are_leased_in_the_order_they_were_put(ledger: Ledger) -> None:
    ledger.put_units([*group("b"), *group("a")])
    ledger.put_units(group("c"))

    assert ids(lease_all(ledger, "w1", 5)) == ["b.0/0", "b.0/1", "a.0/0", "a.0/1", "c.0/0"]


def test_a_group_may_be_named_like_a_unit_of_another(ledger: Ledger) -> None:
    put = [*group("a"), *group("a.0/0"), *group("a.0")]
    ledger.put_units(put)

    leases = lease_all(ledger, "w1", 6)

    assert [lease.unit for lease in leases] == put
    assert ledger.commit("w1", [commit_of(lease) for lease in leases]) == (CommitOutcome.COMMITTED,) * 6
    assert ledger.stats().ready_groups == 3


def test_half_done_groups_go_before_fresh_ones_the_oldest_first(ledger: Ledger) -> None:
    ledger.put_units(groups(5))
    first = lease_all(ledger, "w1", 1)
    second = lease_all(ledger, "w1", 2)
    third = lease_all(ledger, "w1", 2)
    assert ids(first + second + third) == ["g0.0/0", "g0.0/1", "g1.0/0", "g1.0/1", "g2.0/0"]
    ledger.release("w1", [release_of(lease) for lease in (third[0], second[1], first[0])])

    assert ids(lease_all(ledger, "w1", 4)) == ["g0.0/0", "g1.0/0", "g1.0/1", "g2.0/1"]


def test_a_leased_unit_carries_everything_that_was_put(ledger: Ledger) -> None:
    put = groups(1)
    ledger.put_units(put)

    leases = lease_all(ledger, "w1", 2)

    assert [lease.unit for lease in leases] == put
    assert {(lease.owner, lease.attempt, lease.progress.tokens) for lease in leases} == {("w1", 1, ())}


@pytest.mark.parametrize(
    ("staleness", "concurrent", "leased"),
    [
        pytest.param(0, 100, 4, id="on-policy: one batch"),
        pytest.param(1, 100, 8, id="one batch more for each version of staleness"),
        pytest.param(1, 3, 3, id="concurrency bounds"),
    ],
)
def test_admission_bounds_what_is_in_flight(ledger: Ledger, staleness: int, concurrent: int, leased: int) -> None:
    ledger.configure(settings(max_staleness=staleness, max_concurrent=concurrent))
    ledger.put_units(groups(10))

    assert ledger.stats().admissible == leased
    assert len(lease_all(ledger, "w1", 100)) == leased
    assert ledger.stats().admissible == 0


def test_what_is_committed_and_not_acknowledged_keeps_its_place(ledger: Ledger) -> None:
    ledger.configure(settings(max_staleness=0))
    ledger.put_units(groups(4))
    run_units(ledger, "w1", 4)
    epoch = ledger.attach_trainer("t")
    assert lease_all(ledger, "w1", 4) == ()

    batch = ledger.take_batch(epoch, 2, 0, 0)
    assert batch is not None
    assert lease_all(ledger, "w1", 4) == ()
    ledger.ack_batch(epoch, [batch.batch_id])

    assert len(lease_all(ledger, "w1", 4)) == 4


@pytest.mark.parametrize("worker", ["nobody", "gone", "draining"])
def test_a_worker_that_should_not_work_gets_no_lease(ledger: Ledger, worker: str) -> None:
    ledger.put_units(groups(1))
    ledger.register(identity("gone"))
    ledger.release_worker("gone", ReleaseReason.DRAIN)
    ledger.register(identity("draining"))
    ledger.drain("draining", 2_000_000.0, "spot", 1)

    assert lease_all(ledger, worker, 1) == ()


# --- fences -----------------------------------------------------------------------------------------------------------


def test_a_commit_is_refused_once_the_fence_is_passed_on(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    (first,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(first)])
    (second,) = lease_all(ledger, "w1", 1)

    assert ledger.commit("w1", [commit_of(first)]) == (CommitOutcome.REFUSED,)
    assert ledger.commit("w1", [commit_of(second)]) == (CommitOutcome.COMMITTED,)
    assert ledger.commit("w1", [commit_of(second), commit_of(first)]) == (CommitOutcome.ALREADY, CommitOutcome.REFUSED)
    assert ledger.stats().buffered == 1


def test_a_commit_after_the_lease_ran_out_counts_until_the_unit_is_leased_again(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    ledger.put_units(groups(1))
    late, later = lease_all(ledger, "w1", 2)
    ledger_factory.now_s += TTL_S + 1
    assert ledger.expire() == 2

    assert ledger.commit("w1", [commit_of(late)]) == (CommitOutcome.COMMITTED,)
    lease_all(ledger, "w1", 1)
    assert ledger.commit("w1", [commit_of(later)]) == (CommitOutcome.REFUSED,)
    assert (ledger.stats().buffered, ledger.stats().running) == (1, 1)


def test_commits_in_one_call_are_judged_one_by_one(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    one, two = lease_all(ledger, "w1", 2)
    stranger = commit_of(one).__class__(
        unit_id="g7.0/0", fencing_token=FencingToken(1, 1), sample=commit_of(one, 1).sample
    )
    assert stranger.unit_id != stranger.sample.unit_id
    with pytest.raises(ValueError, match="g7"):
        ledger.commit("w1", [stranger])

    outcomes = ledger.commit("w1", [commit_of(one), commit_of(one), commit_of(two)])

    assert outcomes == (CommitOutcome.COMMITTED, CommitOutcome.ALREADY, CommitOutcome.COMMITTED)
    assert (ledger.stats().buffered, ledger.stats().ready_groups) == (2, 1)


def test_units_of_one_lease_are_committed_together_whatever_became_of_them(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    ledger.put_units(groups(2, size=4))
    leases = lease_all(ledger, "w1", 8)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 3)) for lease in leases[1:3]], READY, TTL_S)
    ledger.release("w1", [release_of(lease) for lease in leases[5:7]])
    ledger.commit("w1", [commit_of(leases[7])])

    outcomes = ledger.commit("w1", [commit_of(lease, tokens=4 + n) for n, lease in enumerate(leases)])

    assert outcomes == (*(CommitOutcome.COMMITTED,) * 7, CommitOutcome.ALREADY)
    stats = ledger.stats()
    assert (stats.pending, stats.running, stats.buffered, stats.ready_groups) == (0, 0, 8, 2)
    assert stats.tokens.committed == sum(range(4, 11)) + 4
    assert audit(ledger).findings == ()
    ledger_factory.now_s += TTL_S + 1
    assert (ledger.expire(), lease_all(ledger, "w1", 8)) == (0, ())


def test_an_old_fence_neither_extends_nor_releases(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    (old,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(old)])
    (new,) = lease_all(ledger, "w1", 1)

    assert ledger.heartbeat("w1", [beat_of(old, delta(0, 2))], READY, TTL_S).lost == (old.unit.unit_id,)
    assert ledger.release("w1", [release_of(old)]) == (False,)
    assert ledger.release("w1", [release_of(new)]) == (True,)
    assert lease_all(ledger, "w1", 1)[0].progress.tokens == ()


def test_each_holder_of_a_unit_has_a_higher_token(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    tokens = []
    for _ in range(4):
        (lease,) = lease_all(ledger, "w1", 1)
        ledger.release("w1", [release_of(lease)])
        tokens.append(lease.fencing_token)

    assert all(earlier < later for earlier, later in itertools.pairwise(tokens))


# --- expiry and progress ----------------------------------------------------------------------------------------------


def test_the_stores_clock_ends_a_lease_and_a_heartbeat_keeps_it(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.put_units(groups(1))
    kept, left = lease_all(ledger, "w1", 2)
    ledger_factory.now_s += TTL_S - 1
    ledger.heartbeat("w1", [beat_of(kept)], READY, TTL_S)
    ledger_factory.now_s += 2

    assert ledger.expire() == 1
    assert ids(lease_all(ledger, "w1", 2)) == [left.unit.unit_id]
    ledger_factory.now_s += TTL_S
    assert ledger.heartbeat("w1", [], READY, TTL_S).store_now_s == ledger_factory.now_s


def test_bug_014_an_expired_unit_continues_from_its_published_tokens(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    ledger.register(identity("w2"))
    ledger.put_units(groups(1))
    (first,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(first, delta(0, 3, version=1))], READY, TTL_S)
    ledger.heartbeat("w1", [beat_of(first, delta(3, 2, version=2))], READY, TTL_S)
    ledger_factory.now_s += TTL_S + 1

    again = lease_all(ledger, "w2", 1)[0]

    assert (again.unit, again.attempt, again.progress.tokens) == (first.unit, 2, (0, 1, 2, 3, 4))
    assert again.progress.logprobs == (-0.5,) * 5
    assert again.progress.spans == (VersionSpan(0, 3, 1), VersionSpan(3, 5, 2))
    stats = ledger.stats()
    assert (stats.tokens.salvaged, stats.interruptions_salvaged, stats.tokens.discarded) == (5, 1, 0)


def test_repeated_and_overlapping_progress_is_taken_once(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    (lease,) = lease_all(ledger, "w1", 1)
    for start, count in ((0, 3), (0, 3), (1, 4), (5, 0)):
        assert ledger.heartbeat("w1", [beat_of(lease, delta(start, count))], READY, TTL_S).lost == ()
    ledger.release("w1", [release_of(lease, progress=delta(4, 3))])

    assert lease_all(ledger, "w1", 1)[0].progress.tokens == tuple(range(7))


def test_progress_with_a_gap_is_refused_and_changes_nothing(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.put_units(groups(1))
    (lease,) = lease_all(ledger, "w1", 1)
    ledger_factory.now_s += TTL_S - 1

    control = ledger.heartbeat("w1", [beat_of(lease, delta(2, 3))], READY, TTL_S)

    assert control.lost == (lease.unit.unit_id,)
    ledger_factory.now_s += 2
    again = lease_all(ledger, "w1", 1)[0]
    assert (again.unit.unit_id, again.progress.tokens) == (lease.unit.unit_id, ())


@pytest.mark.parametrize(
    ("resume", "kept", "discarded"),
    [(Resume.TOKEN, 3, 0), (Resume.TURN, 3, 0), (Resume.RESTART, 0, 3)],
    ids=str,
)
def test_what_is_kept_depends_on_what_resume_means(ledger: Ledger, resume: Resume, kept: int, discarded: int) -> None:
    ledger.put_units(groups(1, resume=resume))
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 3))], READY, TTL_S)
    ledger.release("w1", [release_of(lease)])

    assert len(lease_all(ledger, "w1", 1)[0].progress.tokens) == kept
    tokens = ledger.stats().tokens
    assert (tokens.discarded, tokens.salvaged) == (discarded, kept)


def test_a_journal_of_several_hundred_kilobytes_comes_back_whole(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    (lease,) = lease_all(ledger, "w1", 1)
    for start in (0, 20_000, 40_000):
        ledger.heartbeat("w1", [beat_of(lease, delta(start, 20_000))], READY, TTL_S)
    ledger.release("w1", [release_of(lease)])

    again = lease_all(ledger, "w1", 1)[0]

    assert again.progress.tokens == tuple(range(60_000))


# --- back-off and failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [ReleaseReason.INFRASTRUCTURE, ReleaseReason.UNIT_FAILURE], ids=str)
def test_trouble_backs_off_twice_as_long_each_time(
    ledger: Ledger, ledger_factory: LedgerFactory, reason: ReleaseReason
) -> None:
    ledger.put_units(groups(1))
    for wait_s in (1.0, 2.0):
        (lease,) = lease_all(ledger, "w1", 1)
        ledger.release("w1", [release_of(lease, reason)])
        assert ledger.stats().backing_off == 1
        (other,) = lease_all(ledger, "w1", 2)
        assert other.unit.unit_id != lease.unit.unit_id
        ledger.release("w1", [release_of(other)])
        ledger_factory.now_s += wait_s - 0.5
        assert ids(lease_all(ledger, "w1", 2)) == [other.unit.unit_id]
        ledger.release_worker("w1", ReleaseReason.DRAIN)
        ledger.register(identity("w1"))
        ledger_factory.now_s += 0.6

    assert ids(lease_all(ledger, "w1", 1)) == [lease.unit.unit_id]
    assert ledger.stats().backing_off == 0


@pytest.mark.parametrize("reason", [ReleaseReason.DRAIN, ReleaseReason.WORKER_LOST, ReleaseReason.ABANDONED], ids=str)
def test_bug_078_loss_of_capacity_costs_no_retry_and_no_wait(ledger: Ledger, reason: ReleaseReason) -> None:
    ledger.put_units(groups(1))
    for _ in range(10):
        (lease,) = lease_all(ledger, "w1", 1)
        assert ledger.release("w1", [release_of(lease, reason)]) == (True,)
    (lease,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(lease, ReleaseReason.UNIT_FAILURE)])

    assert (ledger.stats().dead_lettered, ledger.stats().pending) == (0, 2)


def fail_for_good(ledger: Ledger, factory: LedgerFactory, unit_id: str, limit: int = 3) -> None:
    """Let a unit fail until it is dead-lettered; other units that are leased meanwhile go back."""
    for _ in range(limit):
        leases = {lease.unit.unit_id: lease for lease in lease_all(ledger, "w1", 100)}
        failed = leases.pop(unit_id)
        ledger.release("w1", [release_of(failed, ReleaseReason.UNIT_FAILURE, error="no such tool")])
        ledger.release("w1", [release_of(lease) for lease in leases.values()])
        factory.now_s += 60


def test_a_unit_that_fails_to_its_limit_is_dead_lettered_and_its_group_drawn_again(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    put = groups(1)
    ledger.put_units(put)

    fail_for_good(ledger, ledger_factory, "g0.0/1")

    (letter,) = ledger.dead_letters()
    assert (letter.unit_id, letter.failures, letter.error) == ("g0.0/1", 3, "no such tool")
    assert states(ledger) == {UnitState.DEAD_LETTERED: 1, UnitState.DROPPED: 1, UnitState.PENDING: 2}
    stats = ledger.stats()
    assert (stats.dead_lettered, stats.pending, stats.dropped) == (1, 2, {DropReason.DEAD_LETTERED: {"1": 1}})
    again = [lease.unit for lease in lease_all(ledger, "w1", 2)]
    assert [unit.unit_id for unit in again] == ["g0.1/0", "g0.1/1"]
    assert [(unit.prompt, unit.payload) for unit in again] == [(unit.prompt, unit.payload) for unit in put]


def test_a_group_is_drawn_again_only_so_often_for_dead_letters(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.put_units(groups(1))
    fail_for_good(ledger, ledger_factory, "g0.0/1")
    fail_for_good(ledger, ledger_factory, "g0.1/0")

    assert states(ledger) == {UnitState.DEAD_LETTERED: 2, UnitState.DROPPED: 2}
    assert (ledger.stats().pending, ledger.stats().running, ledger.stats().admissible) == (0, 0, 8)


def test_a_dead_letter_takes_its_groups_samples_and_leases_with_it(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    ledger.configure(settings(group_size=3, unit_failure_limit=1, group_redraw_limit=0))
    ledger.put_units(groups(1, size=3))
    done, held, failed = lease_all(ledger, "w1", 3)
    ledger.commit("w1", [commit_of(done, tokens=5)])
    ledger.release("w1", [release_of(failed, ReleaseReason.UNIT_FAILURE, error="boom")])

    assert (ledger.stats().buffered, ledger.stats().running, ledger.stats().pending) == (0, 0, 0)
    control = ledger.heartbeat("w1", [beat_of(held)], READY, TTL_S)
    assert held.unit.unit_id in control.abandon + control.lost
    assert ledger.commit("w1", [commit_of(held)]) == (CommitOutcome.REFUSED,)
    assert ledger.commit("w1", [commit_of(done, tokens=5)]) == (CommitOutcome.ALREADY,)
    assert ledger.put_units(groups(1, size=3)) == 0
