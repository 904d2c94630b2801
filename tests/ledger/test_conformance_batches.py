"""Promises of batches, staleness, versions and trainers."""

from collections.abc import Sequence

import pytest

from scaler.ledger.contract import Commit, CommitOutcome, Ledger, StaleEpoch, UnitState
from scaler.model.job import OnStale, Phase, TrainerReport
from scaler.model.work import Batch, DropReason, ReleaseReason, Resume, Sample, VersionSpan
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    group,
    groups,
    ids,
    lease_all,
    release_of,
    run_units,
    sample,
    settings,
    states,
    version,
)
from tests.ledger.factories import LedgerFactory


def names(batch: Batch | None) -> list[str]:
    """The groups of a batch, in order."""
    assert batch is not None
    return [f"{group.group_id}.{group.group_epoch}" for group in batch.groups]


def fill(ledger: Ledger, count: int, *, first: int = 0, version: int = 0) -> None:
    """Put and commit whole groups."""
    ledger.put_units(groups(count, first=first))
    run_units(ledger, "w1", 2 * count, version=version)


# --- taking and acknowledging -----------------------------------------------------------------------------------------


def test_a_batch_has_whole_groups_the_oldest_complete_first(ledger: Ledger) -> None:
    ledger.put_units(groups(3))
    leases = lease_all(ledger, "w1", 6)
    for place in (2, 3, 0, 4, 5):
        ledger.commit("w1", [commit_of(leases[place])])
    epoch = ledger.attach_trainer("t")

    assert ledger.take_batch(epoch, 3, 0, 1) is None
    assert names(ledger.take_batch(epoch, 2, 0, 1)) == ["g1.0", "g2.0"]


def test_of_units_side_by_side_that_are_committed_at_once_those_count_that_are_still_held(ledger: Ledger) -> None:
    ledger.put_units(group("g0", 4))
    leases = lease_all(ledger, "w1", 4)
    ledger.release("w1", [release_of(leases[1])])
    (again,) = lease_all(ledger, "w1", 1)

    outcomes = ledger.commit("w1", [commit_of(lease, tokens) for tokens, lease in enumerate(leases, 3)])
    assert outcomes == tuple(
        CommitOutcome.REFUSED if lease is leases[1] else CommitOutcome.COMMITTED for lease in leases
    )
    assert ledger.commit("w1", [commit_of(again, 9)]) == (CommitOutcome.COMMITTED,)

    batch = ledger.take_batch(ledger.attach_trainer("t"), 1, 0, 1)
    assert batch is not None
    assert [len(one.tokens) for one in batch.groups[0].samples] == [3, 9, 5, 6]
    assert [one.unit_id for one in batch.groups[0].samples] == ids(leases)


def test_a_batch_brings_back_units_samples_and_attempts(ledger: Ledger) -> None:
    put = groups(1)
    ledger.put_units(put)
    (first,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(first)])
    one, two = lease_all(ledger, "w1", 2)
    rich = Sample(
        unit_id=two.unit.unit_id,
        tokens=(7, 8, 9),
        logprobs=(-0.25, -0.5, -1.0),
        spans=(VersionSpan(0, 2, 0), VersionSpan(2, 3, 1)),
        finish_reason=sample("x").finish_reason,
        mask=(1, 0, 1),
        reward=None,
    )
    ledger.commit("w1", [commit_of(one)])
    ledger.commit("w1", [Commit(unit_id=two.unit.unit_id, fencing_token=two.fencing_token, sample=rich)])
    batch = ledger.take_batch(ledger.attach_trainer("t"), 1, 0, 1)
    assert batch is not None

    (group,) = batch.groups
    assert (list(group.units), group.attempts) == (put, (2, 1))
    assert group.samples == (sample(one.unit.unit_id), rich)


def test_an_unacknowledged_batch_comes_again_unchanged_whatever_is_asked(ledger: Ledger) -> None:
    fill(ledger, 3)
    first = ledger.take_batch(ledger.attach_trainer("t"), 2, 0, 1)
    assert first is not None
    epoch = ledger.attach_trainer("t")

    for arguments in ((2, 0, 1), (1, 9, 0)):
        again = ledger.take_batch(epoch, *arguments)
        assert again is not None
        assert (again.batch_id, again.groups, again.redelivered) == (first.batch_id, first.groups, True)


def test_an_acknowledged_batch_is_consumed_and_the_next_one_is_new(ledger: Ledger) -> None:
    fill(ledger, 4)
    epoch = ledger.attach_trainer("t")
    first = ledger.take_batch(epoch, 2, 0, 1)
    assert first is not None
    assert (first.batch_id, ledger.stats().ready_groups, ledger.stats().buffered) == (1, 2, 8)
    assert (ledger.stats().consumed, ledger.stats().accepted) == (4, 0)

    assert ledger.ack_batch(epoch, [first.batch_id, 99, first.batch_id]) == 1
    assert ledger.ack_batch(epoch, [first.batch_id]) == 0

    second = ledger.take_batch(epoch, 2, 0, 1)
    assert second is not None
    assert (second.batch_id, second.redelivered, names(second)) == (2, False, ["g2.0", "g3.0"])
    stats = ledger.stats()
    assert (stats.buffered, stats.consumed, stats.accepted, stats.ready_groups) == (4, 8, 4, 0)
    assert states(ledger) == {UnitState.CONSUMED: 4, UnitState.COMMITTED: 4}


def test_an_older_trainer_is_refused_everything(ledger: Ledger) -> None:
    fill(ledger, 2)
    old = ledger.attach_trainer("old")
    batch = ledger.take_batch(old, 2, 0, 1)
    assert batch is not None
    new = ledger.attach_trainer("new")
    assert new > old
    news = TrainerReport(step=1, unblocked_samples_per_s=1.0, phase=Phase.TRAIN)

    for call in (
        lambda: ledger.take_batch(old, 2, 0, 1),
        lambda: ledger.take_more(old, batch.batch_id, ["g0"]),
        lambda: ledger.ack_batch(old, [batch.batch_id]),
        lambda: ledger.publish(old, version(1)),
        lambda: ledger.report(old, news),
    ):
        with pytest.raises(StaleEpoch):
            call()

    assert states(ledger) == {UnitState.COMMITTED: 4}
    assert names(ledger.take_batch(new, 2, 0, 1)) == ["g0.0", "g1.0"]


# --- filtering --------------------------------------------------------------------------------------------------------


def test_rejected_groups_are_replaced_and_the_new_batch_is_what_comes_again(ledger: Ledger) -> None:
    fill(ledger, 4)
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 2, 0, 1)
    assert batch is not None

    more = ledger.take_more(epoch, batch.batch_id, ["g0"])

    assert more is not None
    assert (more.batch_id, sorted(names(more))) == (batch.batch_id, ["g1.0", "g2.0"])
    again = ledger.take_batch(epoch, 2, 0, 1)
    assert again is not None
    assert again.groups == more.groups
    assert ledger.stats().dropped == {DropReason.FILTERED: {"4": 2}}
    assert (ledger.stats().consumed, ledger.stats().buffered, ledger.stats().tokens.discarded) == (4, 6, 8)


def test_rejections_stand_and_free_their_places_while_nothing_can_replace_them(ledger: Ledger) -> None:
    ledger.configure(settings(max_staleness=0))
    fill(ledger, 2)
    ledger.put_units(groups(2, first=2))
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 2, 0, 0)
    assert batch is not None
    assert ledger.take_more(epoch, batch.batch_id, ["g0"]) is None
    assert names(ledger.take_batch(epoch, 2, 0, 0)) == ["g1.0"]

    run_units(ledger, "w1", 100)

    assert names(ledger.take_more(epoch, batch.batch_id, [])) == ["g1.0", "g2.0"]
    assert names(ledger.take_more(epoch, batch.batch_id, ["g0"])) == ["g1.0", "g2.0"]
    assert ledger.ack_batch(epoch, [batch.batch_id]) == 1
    assert ledger.take_more(epoch, batch.batch_id, []) is None


def test_a_batch_of_which_everything_was_rejected_can_be_filled_again(ledger: Ledger) -> None:
    fill(ledger, 2)
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 2, 0, 1)
    assert batch is not None
    assert ledger.take_more(epoch, batch.batch_id, ["g0", "g1"]) is None
    fill(ledger, 2, first=2)

    assert names(ledger.take_more(epoch, batch.batch_id, [])) == ["g2.0", "g3.0"]


# --- staleness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_stale", "dropped", "pending"),
    [(OnStale.DROP, 2, 0), (OnStale.REQUEUE, 2, 2)],
    ids=["dropped", "drawn again"],
)
def test_a_group_too_stale_at_consumption_is_not_trained_on(
    ledger: Ledger, on_stale: OnStale, dropped: int, pending: int
) -> None:
    ledger.configure(settings(on_stale=on_stale))
    fill(ledger, 1, version=0)
    fill(ledger, 1, first=1, version=1)
    epoch = ledger.attach_trainer("t")

    assert names(ledger.take_batch(epoch, 1, 2, 1)) == ["g1.0"]

    assert ledger.stats().dropped == {DropReason.STALE: {"4": dropped}}
    assert (ledger.stats().pending, ledger.stats().buffered) == (pending, 2)


@pytest.mark.parametrize("bound", [0, 1])
def test_what_replaces_a_rejected_group_obeys_the_bound_that_its_batch_was_taken_with(
    ledger: Ledger, bound: int
) -> None:
    fill(ledger, 2, version=2)
    epoch = ledger.attach_trainer("t")
    batch = ledger.take_batch(epoch, 2, 2, bound)
    assert batch is not None
    fill(ledger, 1, first=2, version=2 - bound - 1)
    fill(ledger, 1, first=3, version=2 - bound)

    assert names(ledger.take_more(epoch, batch.batch_id, ["g0"])) == ["g1.0", "g3.0"]

    assert ledger.stats().dropped == {DropReason.FILTERED: {"4": 2}, DropReason.STALE: {"4": 2}}


def test_a_trainer_that_would_take_older_ones_than_the_job_allows_is_given_none(ledger: Ledger) -> None:
    """As one is that was started with options of its own; an audit judges by the job's bound."""
    ledger.configure(settings(max_staleness=1))
    fill(ledger, 1, version=0)
    fill(ledger, 2, first=1, version=1)
    epoch = ledger.attach_trainer("t")

    batch = ledger.take_batch(epoch, 2, 2, 7)
    assert batch is not None
    assert names(batch) == ["g1.0", "g2.0"]

    fill(ledger, 1, first=3, version=0)
    assert ledger.take_more(epoch, batch.batch_id, ["g1"]) is None
    assert ledger.stats().ready_groups == 0


def test_a_trainer_that_comes_before_its_job_is_configured_waits(ledger_factory: LedgerFactory) -> None:
    early = ledger_factory.open("early")
    assert early.take_batch(early.attach_trainer("t"), 1, 0, 1) is None


def test_stale_groups_free_their_places_though_there_is_no_batch(ledger: Ledger) -> None:
    fill(ledger, 4, version=0)
    assert ledger.stats().admissible == 0

    assert ledger.take_batch(ledger.attach_trainer("t"), 2, 2, 1) is None

    assert (ledger.stats().admissible, ledger.stats().buffered, ledger.stats().ready_groups) == (8, 0, 0)


def test_a_group_drawn_again_for_staleness_starts_from_its_prompt_without_a_limit(ledger: Ledger) -> None:
    ledger.configure(settings(on_stale=OnStale.REQUEUE, group_redraw_limit=0))
    ledger.put_units(groups(1))
    epoch = ledger.attach_trainer("t")
    for draw in range(3):
        leases = lease_all(ledger, "w1", 2)
        assert [lease.unit.unit_id for lease in leases] == [f"g0.{draw}/0", f"g0.{draw}/1"]
        assert {(lease.progress.tokens, lease.attempt) for lease in leases} == {((), 1)}
        ledger.commit("w1", [commit_of(lease, version=draw) for lease in leases])
        assert ledger.take_batch(epoch, 1, draw + 2, 1) is None

    assert ledger.stats().dropped == {DropReason.STALE: {"4": 6}}


def test_a_unit_that_became_useless_is_abandoned_and_frees_its_place(ledger: Ledger) -> None:
    ledger.put_units(groups(2))
    old, fresh = lease_all(ledger, "w1", 4)[::2]
    ledger.heartbeat("w1", [beat_of(old, delta(0, 3, version=1))], READY, TTL_S)
    ledger.heartbeat("w1", [beat_of(fresh, delta(0, 3, version=2))], READY, TTL_S)
    epoch = ledger.attach_trainer("t")
    ledger.publish(epoch, version(2))
    assert ledger.heartbeat("w1", [beat_of(old), beat_of(fresh)], READY, TTL_S).abandon == ()

    ledger.publish(epoch, version(3))
    control = ledger.heartbeat("w1", [beat_of(old), beat_of(fresh)], READY, TTL_S)

    assert old.unit.unit_id in control.abandon
    assert not {fresh.unit.unit_id} & {*control.abandon, *control.lost}
    assert ledger.release("w1", [release_of(old, ReleaseReason.ABANDONED)]) == (True,)
    assert (ledger.stats().running, ledger.stats().pending) == (2, 0)
    assert ledger.stats().tokens.discarded == 3


def test_a_lease_reply_too_names_what_to_abandon(ledger: Ledger) -> None:
    ledger.put_units(groups(2))
    (old, *_) = lease_all(ledger, "w1", 2)
    ledger.heartbeat("w1", [beat_of(old, delta(0, 3, version=0))], READY, TTL_S)
    ledger.publish(ledger.attach_trainer("t"), version(2))

    control = ledger.lease("w1", 1, TTL_S).control

    assert (old.unit.unit_id in control.abandon, control.version) == (True, 2)


def test_nobody_is_handed_progress_that_is_too_stale(ledger: Ledger) -> None:
    ledger.configure(settings(on_stale=OnStale.REQUEUE))
    ledger.put_units(groups(1))
    (old,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(old, progress=delta(0, 3, version=0))])
    ledger.publish(ledger.attach_trainer("t"), version(2))

    leases = lease_all(ledger, "w1", 2)

    assert {(lease.unit.group_epoch, lease.progress.tokens) for lease in leases} == {(1, ())}


def test_progress_that_arrives_too_stale_does_not_come_back(ledger: Ledger) -> None:
    ledger.configure(settings(on_stale=OnStale.REQUEUE))
    ledger.put_units(groups(1))
    (lease, other) = lease_all(ledger, "w1", 2)
    ledger.publish(ledger.attach_trainer("t"), version(2))

    ledger.release("w1", [release_of(lease, progress=delta(0, 3, version=0)), release_of(other)])

    again = lease_all(ledger, "w1", 2)
    assert {lease.progress.tokens for lease in again} == {()}


def test_a_restarted_unit_forgets_the_age_of_what_it_threw_away(ledger: Ledger) -> None:
    ledger.put_units(groups(1, resume=Resume.RESTART))
    (lease, other) = lease_all(ledger, "w1", 2)
    ledger.heartbeat("w1", [beat_of(lease, delta(0, 3, version=0))], READY, TTL_S)
    ledger.commit("w1", [commit_of(other, version=1)])
    ledger.release("w1", [release_of(lease)])
    epoch = ledger.attach_trainer("t")
    ledger.publish(epoch, version(2))
    run_units(ledger, "w1", 1, version=2)

    assert names(ledger.take_batch(epoch, 1, 2, 1)) == ["g0.0"]


def test_a_sample_committed_too_late_to_be_used_frees_its_place(ledger: Ledger) -> None:
    ledger.put_units(groups(1))
    leases = lease_all(ledger, "w1", 2)
    ledger.publish(ledger.attach_trainer("t"), version(2))

    (outcome,) = ledger.commit("w1", [commit_of(leases[0], version=0)])

    assert outcome in (CommitOutcome.COMMITTED, CommitOutcome.REFUSED)
    if outcome is CommitOutcome.REFUSED:
        ledger.release("w1", [release_of(leases[0], ReleaseReason.ABANDONED)])
    ledger.release("w1", [release_of(leases[1], ReleaseReason.ABANDONED)])
    stats = ledger.stats()
    assert (stats.buffered, stats.running, stats.admissible) == (0, 0, 8)


@pytest.mark.parametrize(("lengths", "buckets"), [((1, 3), {"1": 1, "4": 1}), ((64, 65), {"64": 1, "128": 1})])
def test_drops_are_counted_by_length(ledger: Ledger, lengths: Sequence[int], buckets: dict[str, int]) -> None:
    ledger.put_units(groups(1))
    leases = lease_all(ledger, "w1", 2)
    ledger.commit("w1", [commit_of(lease, tokens) for lease, tokens in zip(leases, lengths, strict=True)])
    ledger.take_batch(ledger.attach_trainer("t"), 1, 5, 1)

    assert ledger.stats().dropped == {DropReason.STALE: buckets}


# --- versions and reports ---------------------------------------------------------------------------------------------


def test_a_version_goes_down_only_with_a_new_trainer(ledger: Ledger) -> None:
    epoch = ledger.attach_trainer("t")
    assert ledger.stats().version is None
    ledger.publish(epoch, version(3))
    ledger.publish(epoch, version(3))
    with pytest.raises(ValueError, match="2"):
        ledger.publish(epoch, version(2))
    assert ledger.stats().version == 3

    ledger.publish(ledger.attach_trainer("t"), version(2))

    assert ledger.stats().version == 2
    assert ledger.lease("w1", 1, TTL_S).control.version == 2


def test_the_trainers_last_report_is_kept_with_the_stores_time(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    epoch = ledger.attach_trainer("t")
    assert (ledger.stats().trainer, ledger.stats().trainer_at_s) == (None, None)
    news = TrainerReport(
        step=4,
        unblocked_samples_per_s=2.5,
        phase=Phase.TRAIN,
        phase_s={Phase.TRAIN: 1.5, Phase.BUFFER_WAIT: 0.25},
        reward_mean=0.5,
        wait_ratio=0.125,
    )
    ledger_factory.now_s += 5

    ledger.report(epoch, news)

    assert (ledger.stats().trainer, ledger.stats().trainer_at_s) == (news, ledger_factory.now_s)


def test_queue_age_is_that_of_the_oldest_complete_group(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    assert ledger.stats().oldest_ready_age_s is None
    fill(ledger, 1)
    ledger_factory.now_s += 7
    fill(ledger, 1, first=1)
    ledger_factory.now_s += 1
    assert ledger.stats().oldest_ready_age_s == 8.0

    ledger.take_batch(ledger.attach_trainer("t"), 1, 0, 1)

    assert ledger.stats().oldest_ready_age_s == 1.0
