"""Promises of units that come back again and again, on every engine."""

from scaler.ledger.contract import Ledger
from scaler.model.work import ReleaseReason
from tests.builders.ledger import groups, lease_all, release_of
from tests.ledger.factories import LedgerFactory


def test_a_return_without_trouble_ends_the_row_of_troubled_ones(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """Back-off doubles per return in a row: trouble, trouble (2 s), a drain, trouble again waits 1 s and not 4."""
    ledger.put_units(groups(1, size=1))
    reasons = [ReleaseReason.INFRASTRUCTURE, ReleaseReason.INFRASTRUCTURE, ReleaseReason.DRAIN]
    for reason in [*reasons, ReleaseReason.INFRASTRUCTURE]:
        ledger_factory.now_s += 2.0
        (lease,) = lease_all(ledger, "w1", 1)
        ledger.release("w1", [release_of(lease, reason)])

    ledger_factory.now_s += 0.9
    assert lease_all(ledger, "w1", 1) == ()
    ledger_factory.now_s += 0.2
    assert len(lease_all(ledger, "w1", 1)) == 1
