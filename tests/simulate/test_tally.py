"""What a run comes to over time."""

from itertools import pairwise

from scaler.simulate.kernel import Kernel
from scaler.simulate.tally import Tally
from tests.builders.scenarios import a_scenario

CUTS_S = (0.0, 5.079310824662542, 285.76016389057594, 300.0)
"""Whose distances add up to more than 300, as floating-point numbers do."""


def test_a_trainer_that_waits_all_the_time_waits_no_more_than_that() -> None:
    timeline = Tally(a_scenario(hours=1), Kernel()).timeline(list(pairwise(CUTS_S)))

    assert sum(to_s - from_s for from_s, to_s in pairwise(CUTS_S)) > 300.0
    assert timeline.waiting_ratio == (1.0, *(0.0,) * 11)
