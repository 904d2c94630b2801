"""Whether the controller lives and whether it may be relied on: what liveness and readiness probes ask.

The dead-man: a controller that acts but has not decided for three times its longest wait, and some grace, is taken for
hung, whatever its process looks like. A standby is alive, and not ready.
"""

from dataclasses import dataclass

from scaler.model.clock import Clock
from scaler.runtime.loop import LONGEST_RETRY_S
from scaler.telemetry.readout import Readout

_GRACE_S = 45.0
"""A store that hangs costs a turn its time-outs, one after another; a restart would not bring it back."""
_BEFORE_FIRST_S = 60.0
"""The first decision waits for the replay of launches, each of which may take its time-out."""
_MISSED = 3
"""One slow turn is no alarm, three are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to a probe, and why."""

    ok: bool
    message: str


def alive(readout: Readout, started_monotonic_s: float, clock: Clock) -> Verdict:
    """Liveness. `started_monotonic_s`: since when this process could have decided."""
    if not readout.leading:
        return Verdict(ok=True, message="standby")
    limit_s, since_s = _BEFORE_FIRST_S, started_monotonic_s
    if readout.decided_at_monotonic_s is not None and readout.plan and readout.spec:
        wait_s = max(readout.spec.interval_s, readout.plan.look_again_in_s)
        limit_s = _MISSED * (wait_s if readout.synced else max(wait_s, LONGEST_RETRY_S)) + _GRACE_S
        since_s = readout.decided_at_monotonic_s
    age_s = clock.monotonic_s() - since_s
    if age_s > limit_s:
        return Verdict(ok=False, message=f"no decision for {age_s:.0f} s, and {limit_s:.0f} s are allowed")
    return Verdict(ok=True, message=f"last decision {age_s:.0f} s ago")


def ready(readout: Readout) -> Verdict:
    """Readiness: synced and leading."""
    if not readout.leading:
        return Verdict(ok=False, message="standby: another controller acts")
    if not readout.synced:
        return Verdict(ok=False, message=f"state is not rebuilt yet: {_missing(readout)}")
    return Verdict(ok=True, message="leading")


def _missing(readout: Readout) -> str:
    away = [f"pool {name}" for name in sorted(readout.pools_away)]
    if not readout.ledger_ok:
        away.append(f"ledger ({readout.ledger_error or 'not asked yet'})")
    return ", ".join(away) or "the first turn is under way"
