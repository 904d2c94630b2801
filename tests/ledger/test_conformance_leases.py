"""Promises of units and leases: order, admission, fences, progress."""

from scaler.ledger.contract import CommitOutcome, Ledger
from scaler.model.work import ReleaseReason
from tests.builders.ledger import READY, TTL_S, beat_of, commit_of, delta, groups, identity, ids, lease_all, release_of
from tests.ledger.factories import LedgerFactory


def test_a_unit_is_known_for_ever_by_its_id(ledger: Ledger) -> None:
    assert [ledger.put_units(groups(2)), ledger.put_units(groups(3))] == [4, 2]


def test_units_are_leased_in_the_order_they_were_put(ledger: Ledger) -> None:
    ledger.put_units(groups(2))

    assert ids(lease_all(ledger, "w1", 3)) == ["g0.0/0", "g0.0/1", "g1.0/0"]


def test_half_done_groups_go_before_fresh_ones(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.put_units(groups(4))
    first = lease_all(ledger, "w1", 3)
    ledger.release("w1", [release_of(first[0])])

    assert ids(lease_all(ledger, "w1", 3)) == ["g0.0/0", "g1.0/1", "g2.0/0"]


def test_an_expired_unit_continues_from_its_published_tokens(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.register(identity("w2"))
    ledger.put_units(groups(1))
    (first,) = lease_all(ledger, "w1", 1)
    ledger.heartbeat("w1", [beat_of(first, delta(0, 3))], READY, TTL_S)
    ledger_factory.now_s += TTL_S + 1

    again = lease_all(ledger, "w2", 1)[0]

    assert (again.unit, again.attempt, again.progress.tokens) == (first.unit, 2, (0, 1, 2))
    assert first.fencing_token < again.fencing_token


def test_a_commit_is_refused_once_the_fence_is_passed_on(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    ledger.put_units(groups(1))
    (first,) = lease_all(ledger, "w1", 1)
    ledger.release("w1", [release_of(first, ReleaseReason.DRAIN)])
    (second,) = lease_all(ledger, "w1", 1)

    assert ledger.commit("w1", [commit_of(first)]) == (CommitOutcome.REFUSED,)
    assert ledger.commit("w1", [commit_of(second)]) == (CommitOutcome.COMMITTED,)
    assert ledger.commit("w1", [commit_of(second)]) == (CommitOutcome.ALREADY,)
