"""What of a policy is searched, and how values get into it and out of it."""

import dataclasses

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import buffer_band
from policies.buffer_band import MarkUnit
from policies.registry import PLACEMENT, SIZING
from scaler.model.spec import PolicySpec
from scaler.simulate.policy_file import PolicyChoice, load_policy
from scaler.simulate.search_space import Knob, knobs_of, start_of, with_values
from tests.builders.snapshots import static_of

REGISTERED = [(name, entry.params) for name, entry in {**SIZING, **PLACEMENT}.items()]


@pytest.mark.parametrize(("name", "params"), REGISTERED)
def test_every_space_lies_within_the_bounds_of_its_field(name: str, params: type) -> None:
    for field in dataclasses.fields(params):
        for value in field.metadata.get("tune", ())[:2]:
            if isinstance(value, str | bool):
                continue
            assert value >= field.metadata.get("ge", value), field.name
            assert value <= field.metadata.get("le", value), field.name
            assert value > field.metadata["gt"] if "gt" in field.metadata else True, field.name


@pytest.mark.parametrize("name", SIZING)
def test_every_policy_has_something_to_search(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(SIZING[name].params) if "tune" in field.metadata}

    assert fields


def test_the_start_gives_itself_back() -> None:
    choice = load_policy("buffer_band")

    assert with_values(choice, start_of(choice, knobs_of(choice))) == choice


def test_a_start_outside_of_the_space_is_left_to_the_search() -> None:
    choice = PolicyChoice(name="many", sizing=static_of(10_000), placement=load_policy("buffer_band").placement)

    assert set(start_of(choice, knobs_of(choice))) == {"placement.reclaiming_s"}


@given(seed=st.integers(0, 1000), name=st.sampled_from(["rate_match", "buffer_band"]))
def test_what_a_trial_suggests_is_what_the_policy_gets(seed: int, name: str) -> None:
    choice = load_policy(name)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    knobs = knobs_of(choice)
    values = {knob.name: knob.suggested(trial) for trial in [study.ask()] for knob in knobs}
    try:
        changed = with_values(choice, values)
    except ValueError:
        return
    for knob in knobs:
        spec = changed.sizing if knob.part == "policy" else changed.placement
        assert getattr(spec.params, knob.field) == pytest.approx(values[knob.name], rel=1e-3)
        assert knob.holds(getattr(spec.params, knob.field))
    assert dataclasses.replace(changed, sizing=choice.sizing, placement=choice.placement) == choice


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Params:
    kept: float = 1.0
    flag: bool = dataclasses.field(default=True, metadata={"tune": (True, False)})
    word: MarkUnit = dataclasses.field(default=MarkUnit.STEPS, metadata={"tune": tuple(MarkUnit)})
    number: float = dataclasses.field(default=0.5, metadata={"tune": (0.1, 1.0, "log")})
    count: int = dataclasses.field(default=2, metadata={"tune": (1, 4)})


def test_flags_words_and_counts_are_searched_too() -> None:
    choice = PolicyChoice(
        name="made up",
        sizing=PolicySpec(name="made_up", params=_Params()),
        placement=PolicySpec(name="made_up", params=buffer_band.Params(low_mark=0.1)),
    )
    knobs = {knob.field: knob for knob in knobs_of(choice) if knob.part == "policy"}

    assert knobs["flag"].choices == (True, False)
    assert knobs["word"].choices == ("steps", "samples")
    assert knobs["number"] == Knob(part="policy", field="number", low=0.1, high=1.0, log=True)
    assert knobs["count"].whole
    assert "kept" not in knobs
    changed = with_values(choice, {"policy.word": "samples", "policy.flag": False, "policy.number": 0.123456})
    assert changed.sizing.params == _Params(flag=False, word=MarkUnit.SAMPLES, number=0.1235)


def test_values_that_a_policy_refuses_together_are_an_error() -> None:
    with pytest.raises(ValueError, match="must be below high_mark"):
        with_values(load_policy("buffer_band"), {"policy.low_mark": 2.0, "policy.high_mark": 1.0})
