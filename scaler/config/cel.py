"""Rules in the language of the API server (CEL), and the few expressions that they are built from.

Policy: a rule says what the model of the same name says in `problems`, with the model's own defaults for what is left out,
and never refuses what the model takes: where rounding could, it lets through, and the controller says so by condition.
Invariants: macros and functions that every Kubernetes from 1.29 on has. What two lists make together is bounded by their
`maxItems`, or the API server would refuse the definition for what its rules may cost.
Source: Kubernetes documentation, "Validation rules" of custom resource definitions.
"""

from dataclasses import dataclass
from typing import Any

from scaler.config.yaml_model import YamlModel, yaml_name

_RESERVED = frozenset({"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
                       "import", "let", "loop", "package", "namespace", "return", "var", "void", "while"})  # fmt: skip
_ABOUT = "1.000000001"
"""Sums of binary fractions differ in their last digits: at most lets them."""
INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of an object or a field: `rule` is true where all is well."""

    rule: str
    message: str
    """What is wrong and what to do; shown where `expression` fails, too."""
    field: str = ""
    """Key below the object that the fault is put down to; empty: the object itself."""
    expression: str = ""
    """A message made of what is there, where the path alone does not say which."""
    reason: str = INVALID

    def to_json(self) -> dict[str, Any]:
        """As an entry of `x-kubernetes-validations`."""
        body = {"rule": self.rule, "message": self.message, "reason": self.reason}
        if self.field:
            body["fieldPath"] = f".{self.field}"
        if self.expression:
            body["messageExpression"] = self.expression
        return body

    def only_of(self, arm: str) -> "Rule":
        """The same for one arm of a union."""
        return Rule(
            rule=f"self.type != '{arm}' || ({self.rule})",
            message=self.message,
            field=self.field,
            expression=self.expression,
            reason=self.reason,
        )


def key(name: str) -> str:
    """A property's name in an expression."""
    return f"__{name}__" if name in _RESERVED else name


def seconds(text: str) -> str:
    """The seconds of a duration."""
    units = "{'ms': 0.001, 's': 1.0, 'm': 60.0, 'h': 3600.0, 'd': 86400.0}"
    return f"{text}.findAll('[0-9.]+[a-z]+').map(t, double(t.find('[0-9.]+')) * {units}[t.find('[a-z]+')]).sum()"


@dataclass(frozen=True, slots=True)
class Of:
    """Fields of a model in an expression: what is written there, or the model's own default."""

    model: type[YamlModel]
    at: str = "self"

    def seconds(self, field: str) -> str:
        """A duration in seconds."""
        return self._or_default(field, seconds(self._path(field)))

    def number(self, field: str) -> str:
        """A whole number or a fraction."""
        return self._or_default(field, self._path(field))

    def _path(self, field: str) -> str:
        return f"{self.at}.{key(yaml_name(field))}"

    def _or_default(self, field: str, found: str) -> str:
        default = self.model.model_fields[field].default
        if not isinstance(default, int | float):
            return found
        return f"(has({self._path(field)}) ? {found} : {default!r})"


def at_most(less: str, more: str) -> str:
    """`less` is not above `more`, give or take rounding."""
    return f"{less} <= {more} * {_ABOUT}"
