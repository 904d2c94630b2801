"""Whether the signals that a sizing policy needs may be acted on; if not, the reason to hold.

Policy: missing, stale and invalid (NaN, infinite, negative) readings all mean hold, each with its own reason; zero is a
value like any other. The worst of several faults is reported: invalid before missing before stale.
Non-goal: judging what a value means.
"""

from collections.abc import Mapping
from types import MappingProxyType

from scaler.model.plan import Reason, ReasonCode
from scaler.model.reading import Freshness, Reading

HOLD_CODES: Mapping[Freshness, ReasonCode] = MappingProxyType(
    {
        Freshness.INVALID: ReasonCode.HOLD_SIGNAL_INVALID,
        Freshness.MISSING: ReasonCode.HOLD_SIGNAL_MISSING,
        Freshness.STALE: ReasonCode.HOLD_SIGNAL_STALE,
    }
)
"""In order of badness."""


def reason_to_hold(readings: Mapping[str, Reading], now_s: float, max_age_s: float) -> Reason | None:
    """None where every reading is fresh, else a reason that names each one that is not."""
    unfit = {
        name: state
        for name, reading in readings.items()
        if (state := reading.freshness(now_s, max_age_s)) is not Freshness.FRESH
    }
    if not unfit:
        return None
    worst = next(state for state in HOLD_CODES if state in unfit.values())
    what = ", ".join(f"{name} is {state}" for name, state in sorted(unfit.items()))
    return Reason(code=HOLD_CODES[worst], message=f"holding: {what}")
