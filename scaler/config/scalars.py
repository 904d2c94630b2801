"""Values as people write them: durations, percentages, amounts of USD, names, paths, addresses.

Amounts are text in the YAML ("120s", "10%", "41.50") and floats in their base unit in the code. A bare number is refused, since
nobody can see whether `30` is seconds or minutes, and since 41.50 read as a binary number is not 41.50.
"""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from scaler.config.faults import shown
from scaler.config.yaml_model import refusal
from scaler.model.units import format_duration, parse_duration_s, parse_ratio, parse_usd

LONGEST_S = 3650 * 86400.0
"""Ten years: beyond it a duration is a slip of the finger, and sums of times must stay finite."""
LARGEST_COUNT = 10**9
"""Bound of every whole number, so that products with prices stay finite."""
LONGEST_AMOUNT = 40
"""Characters of an amount."""
LONGEST_TEXT = 4096
"""Characters of a text or path: as long as Linux lets a path be."""


def _format_ratio(ratio: float) -> str:
    # 78.3 / 100 is 0.7829999999999999 in binary: written with fewer digits than that, it reads the same again.
    return f"{_plain(round(Decimal(repr(ratio)) * 100, 10))}%"


def _format_usd(usd: float) -> str:
    return _plain(Decimal(repr(usd)))


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class Unit:
    """How one kind of amount is written; `form` names it in the JSON Schema, where it also finds the way back."""

    form: str
    noun: str
    example: str
    pattern: str
    parse: Callable[[str], float]
    write: Callable[[float], str]
    largest: float


DURATION = Unit(
    form="headrace-duration",
    noun="duration",
    example="90s",
    pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
    parse=parse_duration_s,
    write=format_duration,
    largest=LONGEST_S,
)
RATIO = Unit(
    form="headrace-percentage",
    noun="percentage",
    example="10%",
    pattern=r"^[0-9]+(\.[0-9]+)?%$",
    parse=parse_ratio,
    write=_format_ratio,
    largest=1.0,
)
USD = Unit(
    form="headrace-usd",
    noun="amount of USD",
    example="41.50",
    pattern=r"^[0-9]+(\.[0-9]+)?$",
    parse=parse_usd,
    write=_format_usd,
    largest=1e9,
)
UNITS = {unit.form: unit for unit in (DURATION, RATIO, USD)}


@dataclass(frozen=True, slots=True)
class Amount:
    """Annotation of a float that the YAML holds as text, with bounds in the base unit (seconds, 0 to 1, USD)."""

    unit: Unit
    ge: float = 0.0
    gt: float = -math.inf
    le: float = math.inf

    def read(self, value: object) -> float:
        """The number, or the error that says how to write it."""
        if not isinstance(value, str):
            raise refusal(
                f"{shown(value)} is no {self.unit.noun}", f'write it as text in quotes, like "{self.unit.example}"'
            )
        number = self._parsed(value)
        most = min(self.le, self.unit.largest)
        if not number <= most:
            raise refusal(f"{shown(value)} is too much", f'at most "{self.unit.write(most)}"')
        if number < self.ge or number <= self.gt:
            least = f'more than "{self.unit.write(self.gt)}"' if self.gt >= self.ge else f'"{self.unit.write(self.ge)}"'
            raise refusal(f"{shown(value)} is too little", f"at least {least}".replace("at least more", "more"))
        return number

    def _parsed(self, value: str) -> float:
        if len(value) > LONGEST_AMOUNT:
            raise refusal(f"{shown(value)} is no {self.unit.noun}", f'write it like "{self.unit.example}"')
        try:
            return self.unit.parse(value)
        except ValueError as error:
            message, _, remedy = str(error).partition("; ")
            raise refusal(message, remedy) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.unit.write, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        del schema, handler
        bounds = {"x-at-most": self.unit.write(min(self.le, self.unit.largest))}
        if self.gt >= self.ge:
            bounds["x-more-than"] = self.unit.write(self.gt)
        elif self.ge > 0.0:
            bounds["x-at-least"] = self.unit.write(self.ge)
        return {
            "type": "string",
            "format": self.unit.form,
            "pattern": self.unit.pattern,
            "maxLength": LONGEST_AMOUNT,
            "examples": [self.unit.example],
            **bounds,
        }


Duration = Annotated[float, Amount(DURATION)]
PositiveDuration = Annotated[float, Amount(DURATION, gt=0.0)]
Ratio = Annotated[float, Amount(RATIO)]
Usd = Annotated[float, Amount(USD)]

Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_NO_NUL = r"^[^\x00]+$"
_PORT = "([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_LISTEN = rf"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):{_PORT}$"
_OFFERING_WORD = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN, value):
        raise refusal(f"{shown(value)} is no name", "use up to 63 lower-case letters, digits and inner dashes")
    return value


def _offering_word(value: str) -> str:
    if not re.fullmatch(_OFFERING_WORD, value):
        raise refusal(f"{shown(value)} cannot be part of an offering's name", "use letters, digits, dots and dashes")
    return value


def _plain_text(value: str) -> str:
    if not value or "\0" in value:
        raise refusal(f"{shown(value)} cannot be used", "write at least one character, and no NUL")
    return value


def _resolved(value: str, info: ValidationInfo) -> str:
    folder: Path | None = (info.context or {}).get("folder", Path())
    path = Path(_plain_text(value))
    if folder is None:
        if not path.is_absolute():
            raise refusal(
                f"{shown(value)} starts from nowhere in a cluster", "write the whole path, like /etc/headrace/url"
            )
        return os.path.normpath(path)
    return os.path.normpath(folder.absolute() / path)


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+", host) or not re.fullmatch(r"[0-9]{1,5}", port):
        raise refusal(f"{shown(value)} is no address", 'write host and port, like "127.0.0.1:9090" or "[::1]:9090"')
    if int(port) > 65535:
        raise refusal(f"port {port} does not exist", "use a port up to 65535, or 0 for any free one")
    return value


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": NAME_PATTERN, "maxLength": 63})]
"""A DNS label, as Kubernetes names are: it ends up in labels, tags and file names."""
OfferingWord = Annotated[
    str, AfterValidator(_offering_word), Field(json_schema_extra={"pattern": _OFFERING_WORD, "maxLength": 63})
]
PlainText = Annotated[
    str,
    Field(max_length=LONGEST_TEXT),
    AfterValidator(_plain_text),
    Field(json_schema_extra={"minLength": 1, "pattern": _NO_NUL}),
]
FilePath = Annotated[
    str,
    Field(max_length=LONGEST_TEXT),
    AfterValidator(_resolved),
    Field(json_schema_extra={"minLength": 1, "pattern": _NO_NUL}),
]
"""A path, absolute once loaded: a relative one starts from the folder of the YAML file, and is refused where there is none."""
ListenAddress = Annotated[
    str, Field(max_length=300), AfterValidator(_listen), Field(json_schema_extra={"pattern": _LISTEN})
]


def split_address(listen: str) -> tuple[str, int]:
    """Host (without brackets) and port of a `ListenAddress`."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)
