"""The base of every model in the YAML: unknown keys refused, frozen, camelCase outside, unit suffixes inside.

The one naming rule: `cooldown_down_s` is written `cooldownDown` and `disruption_budget_ratio` is `disruptionBudget`, since their
values carry the unit ("5m", "10%"); amounts and rates keep theirs (`spend_cap_usd_per_h` is `spendCapUsdPerH`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

FAULT: Final = "headrace_fault"
"""Type of our own errors among pydantic's: message and remedy are in their context."""

RESTART: Final[dict[str, Any]] = {"x-reload": "restart"}
"""`json_schema_extra` of a field that a running controller cannot change."""

Location = tuple[str | int, ...]


def yaml_name(field: str) -> str:
    """The key in the YAML of a field's name in the code."""
    stem = field if field.endswith("_per_s") else field.removesuffix("_s").removesuffix("_ratio")
    head, *rest = stem.split("_")
    return head + "".join(word.capitalize() for word in rest)


def refusal(message: str, remedy: str) -> PydanticCustomError:
    """The error that a validator raises to refuse one value."""
    return PydanticCustomError(FAULT, "{message}", {"message": message, "remedy": remedy})


@dataclass(frozen=True, slots=True)
class Problem:
    """What a check across fields found, at `location` (YAML keys and indices) below the model that checks."""

    location: Location
    message: str
    remedy: str


class YamlModel(BaseModel):
    """Base of all models; `problems` is where a model checks its fields against each other."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=yaml_name,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    def problems(self) -> Iterator[Problem]:
        """Everything wrong between fields that are right each by itself."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_problems(self) -> Self:
        details = [
            InitErrorDetails(type=refusal(found.message, found.remedy), loc=found.location, input=None)
            for found in self.problems()
        ]
        if details:
            raise ValidationError.from_exception_data(type(self).__name__, details)
        return self


def duplicates(names: list[str]) -> Iterator[tuple[int, str]]:
    """Index and name of every name that was there before."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield index, name
        seen.add(name)
