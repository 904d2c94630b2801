"""What is remembered of offerings."""

from scaler.model.snapshot import OfferingView
from scaler.observe.offerings import OfferingMemory
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
    memory.became_ready("pool", ID)
    assert _view(memory).refusals == 0


def test_an_older_notice_does_not_take_back_a_newer_one() -> None:
    memory = OfferingMemory()
    memory.reclaiming("pool", ID, 5.0)
    memory.reclaiming("pool", ID, 3.0)
    assert _view(memory).reclaiming_at_s == 5.0
