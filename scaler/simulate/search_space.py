"""What of a policy is searched: the fields of its parameters whose metadata says so.

`tune` in a field's metadata: (low, high) or (low, high, "log") for a number; for a flag or a word of a `StrEnum` the values to
choose from. Fields without it keep what the policy to start from has. Names are `policy.FIELD` and `placement.FIELD`.

Invariants: a value found in a space lies within the field's own bounds; the start is part of the search where it lies in the
space. Numbers are rounded to four digits.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, cast, get_type_hints

from optuna import Trial

from scaler.model.spec import PolicySpec
from scaler.simulate.policy_file import PolicyChoice

Value: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One number of a policy and where it may lie; `choices` instead for flags and words."""

    part: str
    """`policy` or `placement`."""
    field: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        """As the search shows it."""
        return f"{self.part}.{self.field}"

    def holds(self, value: object) -> bool:
        """Whether a value lies in the space."""
        if self.choices:
            return value in self.choices
        return isinstance(value, int | float) and self.low <= value <= self.high

    def suggested(self, trial: Trial) -> Value:
        """A trial's value."""
        if self.choices:
            return cast("Value", trial.suggest_categorical(self.name, list(self.choices)))
        if self.whole:
            return trial.suggest_int(self.name, round(self.low), round(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)


def rounded(value: Value) -> Value:
    """To four digits: what a person would write, and no search can tell the difference."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def knobs_of(choice: PolicyChoice) -> tuple[Knob, ...]:
    """Everything that is searched, sizing first."""
    return (*_knobs("policy", choice.sizing), *_knobs("placement", choice.placement))


def _knobs(part: str, spec: PolicySpec) -> Iterator[Knob]:
    params: Any = spec.params
    hints = get_type_hints(type(params))
    for field in dataclasses.fields(params):
        if "tune" in field.metadata:
            yield _knob(part, field.name, hints[field.name], field.metadata["tune"])


def _knob(part: str, field: str, hint: Any, tune: tuple[Any, ...]) -> Knob:
    if hint is bool or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return Knob(part=part, field=field, choices=tuple(str(v) if isinstance(v, StrEnum) else v for v in tune))
    low, high, *scale = tune
    return Knob(part=part, field=field, low=low, high=high, log=scale == ["log"], whole=hint is int)


def start_of(choice: PolicyChoice, knobs: tuple[Knob, ...]) -> dict[str, Value]:
    """The values to start from, as far as they lie in the space."""
    specs = {"policy": choice.sizing, "placement": choice.placement}
    values = {knob: getattr(specs[knob.part].params, knob.field) for knob in knobs}
    return {
        knob.name: str(value) if isinstance(value, StrEnum) else value
        for knob, value in values.items()
        if knob.holds(value)
    }


def with_values(choice: PolicyChoice, values: Mapping[str, Value]) -> PolicyChoice:
    """The policy with these values. `ValueError` where it refuses them together."""
    return dataclasses.replace(
        choice,
        sizing=_changed(choice.sizing, "policy", values),
        placement=_changed(choice.placement, "placement", values),
    )


def _changed(spec: PolicySpec, part: str, values: Mapping[str, Value]) -> PolicySpec:
    params: Any = spec.params
    hints = get_type_hints(type(params))
    mine = {name.removeprefix(f"{part}."): value for name, value in values.items() if name.startswith(f"{part}.")}
    typed = {name: hints[name](value) if _is_word(hints[name]) else rounded(value) for name, value in mine.items()}
    return PolicySpec(name=spec.name, params=dataclasses.replace(params, **typed))


def _is_word(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, StrEnum)
