"""A policy's form in the YAML follows from its `Params` alone."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from policies.base import Registered
from policies.registry import PLACEMENT, SIZING
from scaler.config.policy_models import PolicyModel, policy_model, policy_union
from scaler.model.spec import PolicySpec


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Everything a parameter can be."""

    wait_s: float = field(default=30.0, metadata={"gt": 0.0, "le": 60.0})
    """How long to wait."""
    rate_per_s: float = field(default=2.0, metadata={"gt": 0.0})
    share_ratio: float = 0.25
    bid_usd: float = 1.5
    rent_usd_per_h: float = 2.5
    count: int = field(default=3, metadata={"ge": 1})
    weight: float = 1.0
    hint: float | None = None
    grace_s: float | None = None
    eager: bool = False
    note: str = "none"
    colour: Colour = Colour.RED
    must: int

    def __post_init__(self) -> None:
        if self.must == 13:
            raise ValueError("must cannot be 13")


MODEL = policy_model("full_house", Params)


def read(**values: Any) -> PolicySpec:
    return MODEL.model_validate({"type": "full_house", "must": 1, **values}).to_spec()


def test_left_out_parameters_are_the_policys_own() -> None:
    assert read() == PolicySpec(name="full_house", params=Params(must=1))


@pytest.mark.parametrize(
    ("key", "text", "name", "value"),
    [
        ("wait", "1m", "wait_s", 60.0),
        ("ratePerS", 0.5, "rate_per_s", 0.5),
        ("share", "1%", "share_ratio", 0.01),
        ("bidUsd", "41.50", "bid_usd", 41.5),
        ("rentUsdPerH", "0", "rent_usd_per_h", 0.0),
        ("count", 7, "count", 7),
        ("weight", 3, "weight", 3.0),
        ("hint", 1.5, "hint", 1.5),
        ("grace", "5s", "grace_s", 5.0),
        ("eager", True, "eager", True),
        ("note", "x", "note", "x"),
        ("colour", "blue", "colour", Colour.BLUE),
    ],
)
def test_the_suffix_says_the_form(key: str, text: Any, name: str, value: Any) -> None:
    params = read(**{key: text}).params
    assert getattr(params, name) == value
    assert type(getattr(params, name)) is type(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait": 30}, {"wait": "0s"}, {"wait": "61s"}, {"ratePerS": "2"}, {"ratePerS": 0.0}, {"share": 0.5}, {"bidUsd": 1},
        {"count": 0}, {"count": 1.5}, {"weight": float("nan")}, {"eager": 1}, {"note": 3}, {"colour": "green"},
        {"wait_s": "30s"}, {"must": 13},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(**wrong)


def test_the_docstring_below_a_field_is_its_description() -> None:
    schema = MODEL.model_json_schema()
    assert schema["properties"]["wait"]["description"] == "How long to wait."
    assert schema["description"] == "Everything a parameter can be."


def test_several_policies_are_told_apart_by_type() -> None:
    union: TypeAdapter[PolicyModel] = TypeAdapter(
        policy_union(
            {"one": Registered(params=Params, function=print), "two": Registered(params=Params, function=print)}
        )
    )
    assert union.validate_python({"type": "two", "must": 1}).to_spec().name == "two"


@dataclass(frozen=True)
class WithList:
    items: list[int]


@dataclass(frozen=True)
class WithType:
    type: str


@pytest.mark.parametrize("params", [WithList, WithType])
def test_a_parameter_that_the_yaml_cannot_hold_is_the_programmers_fault(params: type) -> None:
    with pytest.raises(TypeError, match=r"test_policy_models"):
        policy_model("odd", params)


@pytest.mark.parametrize("name", [*SIZING, *PLACEMENT])
def test_every_registered_policy_has_a_form_and_defaults_that_pass_it(name: str) -> None:
    model = policy_model(name, (SIZING.get(name) or PLACEMENT[name]).params)
    required = {field.alias: 1 for field in model.model_fields.values() if field.is_required()}
    policy = model.model_validate({**required, "type": name})
    assert model.model_validate(policy.model_dump(mode="json", by_alias=True)) == policy
