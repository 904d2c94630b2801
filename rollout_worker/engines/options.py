"""`key=value` options of an engine, read into its own options dataclass by the type of each field's default."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TypeVar

T = TypeVar("T")


def read_options(kind: type[T], options: Mapping[str, str]) -> T:
    """An options object of `kind`, a dataclass whose fields all have defaults of type int, float or str.

    Raises:
        ValueError: an unknown key, or a value that is no such number; the message names both.
    """
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass, as promised
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        raise ValueError(f"unknown engine option {unknown[0]!r}; there are {', '.join(sorted(defaults))}")
    return kind(**{key: _read(key, text, type(defaults[key])) for key, text in options.items()})


def _read(key: str, text: str, kind: type) -> object:
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"engine option {key}={text!r}: {kind.__name__} expected") from error
