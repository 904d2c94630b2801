"""The times of AWS's messages: three forms are in use, and odd or empty ones come too.

ISO 8601 (EventBridge, instance metadata), RFC 1123 as AWS Health writes it ("Sat, 05 Jun 2016 15:10:09 GMT"), and the same
without a weekday (scheduled events of instance metadata, "21 Jan 2019 09:00:43 GMT").
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_EARLIEST_S = 946_684_800.0
"""2000-01-01: what is earlier is no time but a default."""
_LATEST_S = 4_102_444_800.0
"""2100-01-01."""
_LONGEST = 64


def time_s(value: object) -> float | None:
    """UTC seconds since the epoch, or None where `value` names no time of this century."""
    moment = _moment(value)
    if moment is None:
        return None
    try:
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if _EARLIEST_S <= seconds < _LATEST_S else None


def _moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return read(value.strip())
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None
