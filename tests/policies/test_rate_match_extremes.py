"""Numbers at the edge of floating point: found by Hypothesis, kept as an example."""

from policies.base import SizingInput
from policies.demand import GOODPUT
from policies.rate_match import Params, size
from tests.builders.snapshots import NOW_S, a_stage, fresh, some_replicas, some_signals


def test_a_goodput_average_that_rounds_to_nothing_is_no_goodput() -> None:
    stage = a_stage(
        replicas=some_replicas(2),
        signals=some_signals(goodput_per_replica_per_s=fresh(5e-324), unblocked_rate_per_s=fresh(1.0)),
    )
    view = SizingInput(
        now_s=NOW_S,
        stage=stage,
        signal_max_age_s=30.0,
        memory={"at_s": NOW_S - 10.0, GOODPUT: 5e-324},
        launching=0,
        ready=2,
    )
    sizing = size(view, Params(goodput_time_constant_s=20.0))
    assert sizing.replicas is not None
