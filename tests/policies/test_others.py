"""buffer_band, static and the registry."""

from dataclasses import fields
from typing import Any

import pytest

from policies.base import SizingInput
from policies.buffer_band import MarkUnit, Params, size
from policies.registry import PLACEMENT, SIZING
from policies.static import Params as StaticParams
from policies.static import size as static_size
from tests.builders.snapshots import NOW_S, a_stage, fresh, some_signals

NUMBERS = {int, float, int | None, float | None}
BAND: dict[str, Any] = {"low_mark": 1.0, "high_mark": 2.0, "step_up_replicas": 2, "step_down_replicas": 1}


def a_view(depth: float = 0.0, **facts: Any) -> SizingInput:
    stage = a_stage(signals=some_signals(buffered_samples=fresh(depth), batch_samples=10))
    usual: dict[str, Any] = {"memory": {}, "launching": 0, "ready": 4, "desired": 4}
    return SizingInput(now_s=NOW_S, stage=stage, signal_max_age_s=30, **(usual | facts))


@pytest.mark.parametrize(
    ("depth", "facts", "expected"),
    [
        pytest.param(9, {}, 6, id="below the band: a step up"),
        pytest.param(10, {}, 4, id="at the low mark"),
        pytest.param(20, {}, 4, id="at the high mark"),
        pytest.param(21, {}, 3, id="above the band: a step down"),
        pytest.param(0, {"ready": 0, "desired": None}, 2, id="starts from nothing"),
        pytest.param(99, {"ready": 0, "desired": 0}, 0, id="never below zero"),
        pytest.param(15, {"ready": 3}, 4, id="a lost replica does not lower the size"),
        pytest.param(0, {"ready": 3}, 4, id="no second step while the first has not arrived"),
        pytest.param(0, {"ready": 3, "launching": 1}, 6, id="launching has arrived"),
        pytest.param(0, {"memory": {"stepped_at_s": NOW_S - 59}}, 4, id="settles"),
        pytest.param(0, {"memory": {"stepped_at_s": NOW_S - 60}}, 6, id="has settled"),
    ],
)
def test_the_band(depth: float, facts: dict[str, Any], expected: int) -> None:
    assert size(a_view(depth, **facts), Params(**BAND)).replicas == expected


def test_a_step_is_remembered_and_no_step_keeps_what_was() -> None:
    assert size(a_view(0), Params(**BAND)).memory == {"stepped_at_s": NOW_S}
    assert size(a_view(15, memory={"stepped_at_s": 1.0}), Params(**BAND)).memory == {"stepped_at_s": 1.0}


def test_marks_may_be_in_samples() -> None:
    assert size(a_view(1.5), Params(marks_in=MarkUnit.SAMPLES, **BAND)).replicas == 4


def test_a_band_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(ValueError, match=r"low_mark \(2\) must be below high_mark \(1\)"):
        Params(low_mark=2.0, high_mark=1.0)


def test_static_is_static() -> None:
    assert static_size(a_view(0), StaticParams(replicas=7)).replicas == 7


@pytest.mark.parametrize(("name", "entry"), sorted({**SIZING, **PLACEMENT}.items()))
def test_every_number_of_every_policy_has_bounds(name: str, entry: Any) -> None:
    numbers = [field for field in fields(entry.params) if field.type in NUMBERS]

    assert [field.name for field in numbers if field.metadata.keys().isdisjoint({"ge", "gt", "le"})] == []
