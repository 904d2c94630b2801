"""The formula of rate_match, number by number, and what its averages may learn."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.base import Sizing, SizingInput
from policies.rate_match import Params, size
from scaler.model.plan import ReasonCode
from scaler.model.reading import MISSING, Reading
from tests.builders.snapshots import NOW_S, a_stage, fresh, some_replicas, some_signals

PLAIN: dict[str, Any] = {"headroom_ratio": 0.0, "lower_slack_ratio": 0.0}


def sized(*, ready: int = 4, memory: Mapping[str, float] | None = None, params: Any = None, **signals: Any) -> Sizing:
    """Asks with `ready` replicas, one sample a second of demand, 0.25 of goodput and the buffer at its target."""
    facts = {name: signals.pop(name) for name in ("launching", "desired") if name in signals}
    view = SizingInput(
        now_s=NOW_S,
        stage=a_stage(some_replicas(ready, running_units=1), signals=some_signals(**signals)),
        signal_max_age_s=30.0,
        memory=memory or {},
        ready=ready,
        launching=facts.get("launching", 0),
        desired=facts.get("desired"),
    )
    return size(view, Params(**(PLAIN | (params or {}))))


@pytest.mark.parametrize(
    ("signals", "params", "expected"),
    [
        pytest.param({}, {}, 4, id="rate over goodput"),
        pytest.param({}, {"headroom_ratio": 0.1}, 5, id="and headroom"),
        pytest.param(
            {"buffered_samples": fresh(0)}, {"fill_horizon_s": 64.0}, 6, id="and half a sample/s to fill the buffer"
        ),
        pytest.param({"buffered_samples": fresh(64)}, {}, 4, id="nothing between the set-points"),
        pytest.param({"buffered_samples": fresh(96)}, {"fill_horizon_s": 64.0}, 2, id="less above the upper one"),
        pytest.param({"buffered_samples": fresh(1e6)}, {}, 0, id="nothing far above it"),
        pytest.param({"unblocked_rate_per_s": fresh(0)}, {}, 0, id="a consumer that takes nothing"),
        pytest.param({"unblocked_rate_per_s": fresh(1.01)}, {}, 5, id="rounded up"),
        pytest.param({"desired": 5}, {"lower_slack_ratio": 0.1}, 5, id="not lowered within the slack"),
        pytest.param({"desired": 9}, {"lower_slack_ratio": 0.1}, 5, id="lowered to where the slack is kept"),
        pytest.param(
            {"buffered_samples": fresh(0), "batch_samples": 64, "max_staleness": 0, "batches_per_version": 1},
            {"target_depth_steps": 2.0, "max_depth_steps": 2.0, "fill_horizon_s": 64.0},
            8,
            id="a target beyond what staleness admits is not filled",
        ),
    ],
)
def test_the_formula(signals: dict[str, Any], params: dict[str, Any], expected: int) -> None:
    assert sized(params=params, **signals).replicas == expected


@pytest.mark.parametrize(
    ("ready", "launching", "goodput", "expected"),
    [
        pytest.param(0, 0, MISSING, 1, id="nothing there: one, to be measured"),
        pytest.param(0, 2, MISSING, 2, id="waits for those that launch"),
        pytest.param(3, 0, fresh(0), 3, id="zero goodput divides nothing: as many as there are"),
    ],
)
def test_before_any_goodput_was_measured(ready: int, launching: int, goodput: Reading, expected: int) -> None:
    wish = sized(ready=ready, launching=launching, goodput_per_replica_per_s=goodput, buffered_samples=fresh(0))

    assert wish.replicas == expected


def test_a_declared_goodput_is_where_the_average_starts() -> None:
    wish = sized(ready=0, goodput_per_replica_per_s=MISSING, params={"initial_goodput_per_replica_per_s": 0.5})

    assert (wish.replicas, wish.memory["goodput_per_s"]) == (2, 0.5)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ({"unblocked_rate_per_s": MISSING}, ReasonCode.HOLD_SIGNAL_MISSING),
        ({"unblocked_rate_per_s": Reading(1, NOW_S - 31)}, ReasonCode.HOLD_SIGNAL_STALE),
        ({"unblocked_rate_per_s": fresh(float("nan"))}, ReasonCode.HOLD_SIGNAL_INVALID),
        ({"goodput_per_replica_per_s": fresh(-0.1)}, ReasonCode.HOLD_SIGNAL_INVALID),
        ({"buffered_samples": MISSING, "unblocked_rate_per_s": fresh(-1)}, ReasonCode.HOLD_SIGNAL_INVALID),
    ],
    ids=["rate missing", "rate stale", "rate no number", "goodput negative", "the worst of two is named"],
)
def test_it_holds_and_keeps_its_memory(signals: dict[str, Any], code: ReasonCode) -> None:
    memory = {"at_s": 1.0, "rate_per_s": 2.0}

    wish = sized(memory=memory, **signals)

    assert (wish.replicas, wish.reason.code, wish.memory) == (None, code, memory)


@pytest.mark.parametrize("goodput", [MISSING, Reading(9, NOW_S - 31)], ids=["missing", "stale"])
@pytest.mark.parametrize(("depth", "expected"), [(0, 5), (1000, 4)], ids=["may raise", "never lowers"])
def test_a_goodput_that_is_not_fresh_never_lowers(goodput: Reading, depth: float, expected: int) -> None:
    wish = sized(
        memory={"at_s": NOW_S, "rate_per_s": 1.0, "goodput_per_s": 0.25},
        goodput_per_replica_per_s=goodput,
        buffered_samples=fresh(depth),
    )

    assert wish.replicas == expected


@pytest.mark.parametrize(
    ("signals", "learns"),
    [
        pytest.param({"buffered_samples": fresh(10)}, True, id="slow while the buffer is low"),
        pytest.param({"buffered_samples": fresh(32)}, False, id="slow while the buffer is full"),
        pytest.param({"buffered_samples": fresh(10), "pending_units": fresh(0)}, False, id="nothing to do"),
        pytest.param(
            {"buffered_samples": fresh(32), "goodput_per_replica_per_s": fresh(0.5)}, True, id="fast at any time"
        ),
    ],
)
def test_only_workers_that_could_work_are_judged(signals: dict[str, Any], learns: bool) -> None:
    memory = {"at_s": NOW_S - 120, "rate_per_s": 1.0, "goodput_per_s": 0.25}

    wish = sized(memory=memory, **({"goodput_per_replica_per_s": fresh(0.1)} | signals))

    assert (wish.memory["goodput_per_s"] != 0.25) is learns


def test_admission_used_up_with_an_idle_worker_means_that_more_would_idle_too() -> None:
    memory = {"at_s": NOW_S - 120, "rate_per_s": 1.0, "goodput_per_s": 0.25}
    signals = some_signals(buffered_samples=fresh(10), running_units=fresh(118), goodput_per_replica_per_s=fresh(0.1))

    def learnt(running_units: int) -> float:
        stage = a_stage(some_replicas(4, running_units=running_units), signals=signals)
        view = SizingInput(now_s=NOW_S, stage=stage, signal_max_age_s=30, memory=memory, launching=0, ready=4)
        return size(view, Params()).memory["goodput_per_s"]

    assert learnt(0) == 0.25
    assert learnt(1) < 0.25


def test_averages_follow_time_not_the_number_of_readings() -> None:
    memory = {"at_s": NOW_S - 60, "rate_per_s": 2.0, "goodput_per_s": 0.25}

    once = sized(memory=memory, unblocked_rate_per_s=fresh(1)).memory
    twice = sized(memory=once, unblocked_rate_per_s=fresh(1)).memory

    assert once["rate_per_s"] == pytest.approx(1 + 0.36788, abs=1e-4)
    assert twice == once


def test_set_points_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ValueError, match=r"target_depth_steps \(3\) must not be above max_depth_steps \(2\)"):
        Params(target_depth_steps=3.0)
