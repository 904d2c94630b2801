"""A dataclass as the mapping that JSON takes, not copied through: what calls write at every heartbeat is flat."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def flat(value: "DataclassInstance") -> dict[str, Any]:
    """Its fields by name, as they are; unlike `dataclasses.asdict`, nothing in them is looked into."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
