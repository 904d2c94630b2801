"""Durations, percentages and amounts as people write them: "120s", "10%", "41.50".

Errors are `ValueError` with a message that shows the accepted form.
"""

import math
import re
from datetime import UTC, datetime
from decimal import Decimal

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}


def utc_text(at_s: float) -> str:
    """UTC seconds as ISO 8601 with whole seconds, the way the API server and AWS write times."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_duration_s(text: str) -> float:
    """Seconds of "500ms", "90s", "1h30m", "2d"."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'{text!r} is no duration; write it like "500ms", "90s" or "1h30m"')
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts))


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration_s` reads back."""
    for unit in ("d", "h", "m", "s"):
        whole, rest = divmod(seconds, float(_SECONDS[unit]))
        if seconds and not rest:
            return f"{whole:.0f}{unit}"
    return "0s" if not seconds else f"{seconds * 1e3:.0f}ms"


def parse_ratio(text: str) -> float:
    """0.1 of "10%". Between 0 % and 100 %."""
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?%", text) or not 0 <= float(text[:-1]) <= 100:
        raise ValueError(f'{text!r} is no percentage; write it like "10%", from "0%" to "100%"')
    return float(Decimal(text[:-1]) / 100)


def parse_usd(text: str) -> float:
    """A positive amount of USD of "41.50"."""
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text) or not math.isfinite(float(text)):
        raise ValueError(f'{text!r} is no amount of USD; write it like "41.50"')
    return float(text)
