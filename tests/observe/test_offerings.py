"""What is remembered of offerings."""

from scaler.model.snapshot import OfferingView
from scaler.observe.offerings import OfferingMemory, Told
from tests.builders.fleet import OFFERING

ID = OFFERING.offering_id


def _view(memory: OfferingMemory) -> OfferingView:
    return memory.views("pool", (OFFERING,))[0]


def test_refusals_in_a_row_count_up_and_end_with_a_launch() -> None:
    memory = OfferingMemory()
    memory.refused("pool", ID, 1.0)
    memory.refused("pool", ID, 2.0)
    memory.refused("another pool", ID, 3.0)
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (2, 2.0)
    memory.launched("pool", ID)
    assert _view(memory) == OfferingView(offering=OFFERING)


def test_launches_asked_for_together_and_refused_together_are_one_refusal() -> None:
    memory = OfferingMemory()
    for at_s in (11.0, 12.0, 13.0):
        memory.refused("pool", ID, at_s, asked_at_s=10.0)
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (1, 13.0)
    memory.refused("pool", ID, 45.0, asked_at_s=43.0)
    assert _view(memory).refusals == 2


def test_replicas_that_keep_dying_before_they_are_ready_are_refusals_until_one_lives() -> None:
    memory = OfferingMemory()
    for at_s in (1.0, 2.0):
        memory.lost("pool", ID, at_s, was_ready=False)
    assert _view(memory).refusals == 0, "two are ordinary interruptions"
    memory.lost("pool", ID, 3.0, was_ready=False)
    memory.launched("pool", ID)
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (1, 3.0), "to start is no success here"
    assert _view(memory).refused_because == "3 replicas in a row went before they were ready"
    memory.became_ready("pool", ID)
    assert _view(memory).refusals == 0


def test_replicas_that_were_launched_together_and_died_together_are_one_refusal() -> None:
    memory = OfferingMemory()
    for at_s, asked_at_s in ((11.0, 10.0), (12.0, 10.0), (13.0, 10.0), (14.0, 10.0)):
        memory.lost("pool", ID, at_s, was_ready=False, asked_at_s=asked_at_s)
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (1, 14.0)
    memory.lost("pool", ID, 50.0, was_ready=False, asked_at_s=45.0)
    assert _view(memory).refusals == 2


def test_an_older_notice_does_not_take_back_a_newer_one() -> None:
    memory = OfferingMemory()
    memory.reclaiming("pool", ID, 5.0)
    memory.reclaiming("pool", ID, 3.0)
    assert _view(memory).reclaiming_at_s == 5.0


def test_what_the_provider_tells_is_shown_price_and_refusals_alike() -> None:
    memory = OfferingMemory()
    memory.told("pool", {ID: Told(price_usd_per_h=3.5, refused_at_s=100.0)})
    (view,) = memory.views("pool", (OFFERING,))
    assert (view.offering.price_usd_per_h, view.refused_at_s, view.refusals) == (3.5, 100.0, 1)
    (elsewhere,) = memory.views("other", (OFFERING,))
    assert elsewhere.offering == OFFERING


def test_our_own_row_of_refusals_counts_for_more_than_one_seen_elsewhere() -> None:
    memory = OfferingMemory()
    for at_s in (10.0, 20.0):
        memory.refused("pool", OFFERING.offering_id, at_s)
    memory.told("pool", {ID: Told(refused_at_s=100.0)})
    (view,) = memory.views("pool", (OFFERING,))
    assert (view.refusals, view.refused_at_s) == (2, 20.0)


def test_a_row_that_the_provider_counts_is_one_with_our_own() -> None:
    """Karpenter refuses after the launch was answered, so that the answer ends no row of it."""
    memory = OfferingMemory()
    memory.told("pool", {ID: Told(refused_at_s=100.0, refusals=3)})
    memory.launched("pool", ID)
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (3, 100.0)
    memory.refused("pool", ID, 200.0)
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (3, 200.0)
    memory.told("pool", {})
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (1, 200.0)


def test_a_new_row_that_the_provider_counts_is_not_hidden_by_an_old_and_longer_one() -> None:
    memory = OfferingMemory()
    for at_s in (1.0, 2.0, 3.0):
        memory.refused("pool", ID, at_s)
    memory.told("pool", {ID: Told(refused_at_s=500.0, refusals=1)})
    assert (_view(memory).refusals, _view(memory).refused_at_s) == (3, 500.0)


def test_a_quota_is_every_pools_until_something_of_that_kind_is_launched() -> None:
    memory = OfferingMemory()
    memory.out_of_quota(OFFERING.offering_id, 50.0)
    assert [memory.views(pool, (OFFERING,))[0].refusals for pool in ("a", "b")] == [1, 1]
    memory.launched("b", OFFERING.offering_id)
    assert [memory.views(pool, (OFFERING,))[0].refusals for pool in ("a", "b")] == [0, 0]


def test_a_new_quota_is_not_hidden_by_an_old_and_longer_row_of_refusals() -> None:
    memory = OfferingMemory()
    for at_s in (1.0, 2.0, 3.0):
        memory.refused("pool", OFFERING.offering_id, at_s)
    memory.out_of_quota(OFFERING.offering_id, 500.0)
    (view,) = memory.views("pool", (OFFERING,))
    assert (view.refused_at_s, view.refusals) == (500.0, 3)
