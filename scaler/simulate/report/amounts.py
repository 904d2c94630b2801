"""Numbers as a person reads them: at most four digits that matter, and a unit. Every number of a page is worded here.

Policy: what is next to nothing is 0, since a solver's rounding is no news; what no page has, from a thousand million million
on, is written with its power of ten, so that nothing is ever long.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

_SPACE = "\u00a0"
"""Between a number and its unit: no line breaks there."""
_PREFIXES = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""From which size, what it is divided by, and the prefix."""
_UNITS_OF_TIME = ((72.0, 24.0, "day"), (1.0, 1.0, "hour"), (1 / 60, 1 / 60, "minute"))
"""From how many hours on, how many hours it has, and its name."""
_NOTHING = 1e-6
_NO_TIME_H = 0.0005 / 3600
"""Half a millisecond."""
_NO_SHARE = 1e-9
"""A few tokens of a million are a share; what is below one of a thousand million is rounding."""
_ENDLESS = 1e15


def next_to_nothing(value: float) -> bool:
    """Whether a number is written as 0."""
    return abs(value) < _NOTHING


def number(value: float, digits: int = 3) -> str:
    """Rounded to `digits` that matter, never fewer than the whole number has; with thousands separators."""
    return _trimmed(significant(value, digits))


def significant(value: float, digits: int = 4) -> str:
    """Like `number`, with the zeros that make a column of figures line up: 84.90 beside 84.52; from 1,000 on whole."""
    if not math.isfinite(value):
        return "infinite" if value > 0 else "unknown"
    if next_to_nothing(value):
        return "0"
    if abs(value) >= _ENDLESS:
        return _with_power(value)
    rounded = float(f"{value:.{digits}g}")
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _with_power(value: float) -> str:
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}\u00d710^{int(exponent)}"


def count(value: float) -> str:
    """A large count with its prefix, such as 12.3 M; the singular stays below 10,000."""
    if 9_999.5 <= abs(value) < _ENDLESS:
        size = abs(float(f"{value:.3g}"))
        for least, divisor, prefix in _PREFIXES:
            if size >= least:
                return f"{number(value / divisor)}{_SPACE}{prefix}"
    return number(value)


def marks(values: Sequence[float]) -> tuple[str, ...]:
    """The marks of an axis, in order and evenly apart, with the digits that tell them apart."""
    step = min((after - before for before, after in pairwise(values)), default=0.0)
    if next_to_nothing(step) or max(map(abs, values)) >= _ENDLESS:
        return tuple(map(number, values))
    decimals = max(0, 1 - math.floor(math.log10(step)))
    return tuple(_trimmed(f"{value:,.{decimals}f}") for value in values)


def _trimmed(text: str) -> str:
    trimmed = text.rstrip("0").rstrip(".") if "." in text and "^" not in text else text
    return "0" if trimmed == "-0" else trimmed


def usd(value: float) -> str:
    """Money, such as 12.30 USD; four digits that matter."""
    text = significant(value)
    return f"{text}{_SPACE}USD" if math.isfinite(value) else text


def percent(ratio: float) -> str:
    """A share, such as 3.4 %; what is not nothing is never shown as 0."""
    if not math.isfinite(ratio):
        return "unknown"
    if _NO_SHARE <= abs(ratio) < 0.0005:
        return f"<{_SPACE}0.1{_SPACE}%" if ratio > 0 else f">{_SPACE}-0.1{_SPACE}%"
    if abs(ratio) < 0.9995:
        return f"{100 * ratio:.1f}{_SPACE}%".replace("-0.0", "0.0")
    return f"{number(100 * ratio)}{_SPACE}%"


def points(change: float) -> str:
    """A difference of two shares, such as +2.4 points."""
    rounded = round(100 * change, 1)
    return f"{rounded:+.1f} points" if rounded else "0.0 points"


def difference(value: float, reference: float) -> str:
    """By how much a value is above or below another, such as +4.1 %; empty where that means nothing."""
    if not (math.isfinite(value) and math.isfinite(reference)) or reference <= 0 or next_to_nothing(reference):
        return ""
    percents = 100 * (value / reference - 1)
    if not math.isfinite(percents):
        return ""
    rounded = round(percents, 1)
    if not rounded:
        return f"0.0{_SPACE}%"
    if abs(rounded) < 100:
        return f"{rounded:+.1f}{_SPACE}%"
    return f"{'+' if rounded > 0 else '-'}{number(abs(percents))}{_SPACE}%"


def comparison(value: float, reference: float) -> str:
    """The same in words, such as 4.1 % above; `beside` where that means nothing."""
    words = difference(value, reference)
    if not words:
        return "beside"
    if words[0] not in "+-":
        return "level with"
    return f"{words[1:]} {'below' if words[0] == '-' else 'above'}"


def interval(text: Callable[[float], str], low: float, high: float) -> str:
    """From one number to another, their unit said once: +18.9 to +34.6 %."""
    start, end = text(low), text(high)
    _, space, unit = end.rpartition(_SPACE)
    return f"{start.removesuffix(space + unit)} to {end}"


def duration(hours: float) -> str:
    """A length of time, in seconds or minutes where it is short and in days where it is long."""
    if not math.isfinite(hours) or abs(hours) < _NO_TIME_H:
        return plural(hours, "hour")
    size = abs(float(f"{hours:.3g}"))
    for least, length, word in _UNITS_OF_TIME:
        if size >= least:
            return plural(hours / length, word)
    return plural(3600 * hours, "second")


def plural(value: float, word: str, say: Callable[[float], str] = number) -> str:
    """`1 replica`, `2 replicas`; the number as `say` writes it."""
    text = say(value)
    return f"{text}{_SPACE}{word}{'' if text == '1' else 's'}"


def in_terminal(text: str) -> str:
    """With plain spaces: a terminal breaks no lines of a table there, and `grep` knows no others."""
    return text.replace(_SPACE, " ")
