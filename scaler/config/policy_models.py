"""The YAML form of every policy, derived from its `Params` dataclass: a new policy stays one file and one registry line.

The suffix of a field's name says its form: `_s` a duration, `_ratio` a percentage, `_usd` and `_usd_per_h` an amount, each as
text; everything else (a rate `_per_s` too) is a plain number, flag, text or word of a `StrEnum`. Bounds come from the field's
metadata (`ge`, `gt`, `le`), the description from the docstring below the field. What `Params.__post_init__` refuses with a
`ValueError` becomes a fault at the policy.
"""

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, Strict, create_model

from policies.base import Registered
from scaler.config.scalars import DURATION, LARGEST_COUNT, RATIO, USD, Amount, PlainText, Unit
from scaler.config.yaml_model import Problem, YamlModel
from scaler.model.spec import PolicySpec

_SUFFIXES: tuple[tuple[str, Unit | None], ...] = (
    ("_per_s", None),
    ("_s", DURATION),
    ("_ratio", RATIO),
    ("_usd", USD),
    ("_usd_per_h", USD),
)


ParamsType: TypeAlias = type[Any]


class PolicyModel(YamlModel):
    """Base of all policies in the YAML."""

    # Descriptions are given below; pydantic would search the source of whoever makes a model for them, eight times over.
    model_config = ConfigDict(use_attribute_docstrings=False)

    type: str
    params_type: ClassVar[ParamsType]

    def to_spec(self) -> PolicySpec:
        """The policy's name with its own parameters object. `ValueError` where the policy refuses them."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self.params_type)}
        return PolicySpec(name=self.type, params=self.params_type(**values))

    def problems(self) -> Iterator[Problem]:
        """What the policy itself says to its parameters."""
        try:
            self.to_spec()
        except ValueError as error:
            yield Problem((), str(error), f"change the parameters of {self.type}, or leave them out")


def policy_union(registered: Mapping[str, Registered]) -> Any:
    """The annotation of a field that holds any of these policies, told apart by `type`."""
    models = [policy_model(name, entry.params) for name, entry in registered.items()]
    if len(models) == 1:
        return models[0]
    return Annotated[reduce(or_, models), Field(discriminator="type")]


def policy_model(name: str, params: type) -> type[PolicyModel]:
    """The YAML form of one policy."""
    hints, docs = get_type_hints(params), _field_docs(params)
    fields: dict[str, Any] = {"type": (Literal[name], Field(description="Which policy."))}
    for field in dataclasses.fields(params):
        if field.name == "type":
            raise TypeError(f"{params.__module__}.Params: a parameter cannot be called `type`")
        default = _default(field)
        about = Field(default=default, description=docs.get(field.name))
        fields[field.name] = (_form(field, hints[field.name], params.__module__), about)
    model = create_model(
        "".join(word.capitalize() for word in name.split("_")) + "Policy",
        __base__=PolicyModel,
        __doc__=(inspect.getdoc(params) or "").split("\n\n")[0],
        **fields,
    )
    model.params_type = params
    return model


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else ...


def _form(field: dataclasses.Field[Any], hint: Any, owner: str) -> Any:
    """The annotation of one parameter."""
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arm for arm in get_args(hint) if arm is not type(None))
        return _form(field, inner, owner) | None
    bounds = {key: value for key, value in field.metadata.items() if key in ("ge", "gt", "le", "lt")}
    unit = next((unit for suffix, unit in _SUFFIXES if field.name.endswith(suffix)), None)
    if unit is not None:
        return Annotated[float, Amount(unit, **bounds)]
    return _plain_form(hint, bounds, f"{owner}.Params.{field.name}")


def _plain_form(hint: Any, bounds: dict[str, Any], where: str) -> Any:
    if hint is bool:
        return Annotated[bool, Strict()]
    if hint is int:
        return Annotated[int, Strict(), Field(**{"ge": 0, "le": LARGEST_COUNT} | bounds)]
    if hint is float:
        return Annotated[float, Strict(), Field(**bounds)]
    if hint is str:
        return PlainText
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    raise TypeError(f"{where}: {hint} has no form in the YAML; use a number, a flag, text or a StrEnum")


def _field_docs(params: type) -> dict[str, str]:
    """Field name -> the docstring below it; nothing where the source is not at hand."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(params))).body[0]
    except (OSError, SyntaxError):
        return {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
