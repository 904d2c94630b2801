"""Numbers as a person reads them: at most four digits that matter, and a unit."""

import math

_SPACE = "\u00a0"
"""Between a number and its unit: no line breaks there."""
_PREFIXES = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""From which size, what it is divided by, and the prefix."""


def number(value: float, digits: int = 3) -> str:
    """Rounded to `digits` that matter, never fewer than the whole number has; with thousands separators."""
    if not math.isfinite(value):
        return "infinite" if value > 0 else "unknown"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: float) -> str:
    """A large count with its prefix, such as 12.3 M; the singular stays below 10,000."""
    for size, divisor, prefix in _PREFIXES:
        if size <= abs(value) < math.inf:
            return f"{number(value / divisor)}{_SPACE}{prefix}"
    return number(value, 4)


def significant(value: float, digits: int = 4) -> str:
    """Like `number`, with the zeros that make a column of figures line up: 84.90 beside 84.52; from 1,000 on whole."""
    if not math.isfinite(value) or value == 0 or abs(value) >= 10**digits:
        return number(value, digits)
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def usd(value: float) -> str:
    """Money, such as 12.30 USD; four digits that matter."""
    if not math.isfinite(value):
        return "infinite"
    if abs(value) >= 1000:
        return f"{value:,.0f}{_SPACE}USD"
    return f"{significant(value)}{_SPACE}USD"


def percent(ratio: float) -> str:
    """A share, such as 3.4 %; what is not nothing is never shown as 0."""
    if not math.isfinite(ratio):
        return "unknown"
    if 0 < abs(ratio) < 0.0005:
        return f"<{_SPACE}0.1{_SPACE}%" if ratio > 0 else f"-0.0{_SPACE}%"
    return f"{100 * ratio:.1f}{_SPACE}%" if abs(ratio) < 0.9995 else f"{100 * ratio:.0f}{_SPACE}%"


def difference(value: float, reference: float) -> str:
    """By how much a value is above or below another, such as +4.1 %; empty where that means nothing."""
    if not (math.isfinite(value) and math.isfinite(reference)) or reference <= 0:
        return ""
    percents = round(100 * (value / reference - 1), 1)
    if not percents:
        return f"0.0{_SPACE}%"
    return f"{percents:+.1f}{_SPACE}%" if abs(percents) < 100 else f"{percents:+,.0f}{_SPACE}%"


def comparison(value: float, reference: float) -> str:
    """The same in words, such as 4.1 % above; `beside` where that means nothing."""
    words = difference(value, reference)
    if not words:
        return "beside"
    return f"{words.lstrip('+-')} {'below' if words[0] == '-' else 'above'}"


def duration(hours: float) -> str:
    """A length of time, in minutes where it is short and in days where it is long."""
    if 0 < hours < 1:
        return plural(60 * hours, "minute")
    return plural(hours, "hour") if hours < 72 else plural(hours / 24, "day")


def plural(value: float, word: str) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{number(value)}{_SPACE}{word}{'' if value == 1 else 's'}"
