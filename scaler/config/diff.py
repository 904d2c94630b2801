"""What changed between two versions of a fleet, and what of it a running controller cannot change.

Stages and pools are told apart by name, so that one moved in its list is no change. A field marked `x-reload: restart` in the
schema makes every change below it one that needs a restart; adding or removing a stage or a pool does too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scaler.config.schema import RolloutFleet
from scaler.config.stage import Pool, Stage

Named = TypeVar("Named", Stage, Pool)


@dataclass(frozen=True, slots=True)
class Change:
    """A part of the YAML that differs, as a path: `spec.stages[rollout].guardRails.ceiling`."""

    path: str
    restart: bool


def changes(old: RolloutFleet, new: RolloutFleet) -> tuple[Change, ...]:
    """Every change, by path."""
    return tuple(sorted(_of_models(old, new, "", restart=False), key=lambda change: change.path))


def _of_models(old: BaseModel, new: BaseModel, path: str, *, restart: bool) -> Iterator[Change]:
    if type(old) is not type(new):
        yield Change(f"{path}.type", restart or _needs_restart(type(new).model_fields["type"]))
        return
    for name, field in type(old).model_fields.items():
        here = f"{path}.{field.alias}" if path else str(field.alias)
        yield from _of_values(getattr(old, name), getattr(new, name), here, restart=restart or _needs_restart(field))


def _of_values(old: Any, new: Any, path: str, *, restart: bool) -> Iterator[Change]:
    if old == new:
        return
    match old, new:
        case (BaseModel(), BaseModel()):
            yield from _of_models(old, new, path, restart=restart)
        case ((Stage() | Pool(), *_), (Stage() | Pool(), *_)):
            yield from _of_named(old, new, path)
        case _:
            yield Change(path, restart)


def _of_named(old: tuple[Named, ...], new: tuple[Named, ...], path: str) -> Iterator[Change]:
    before: Mapping[str, Named] = {item.name: item for item in old}
    after: Mapping[str, Named] = {item.name: item for item in new}
    for name in before.keys() | after.keys():
        here = f"{path}[{name}]"
        if name in before and name in after:
            yield from _of_models(before[name], after[name], here, restart=False)
        else:
            yield Change(here, restart=True)


def _needs_restart(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and extra.get("x-reload") == "restart"
