"""What the controller shows of itself: the last tick as one value, behind metrics, status and health alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scaler.interruptions.base import SourceHealth
from scaler.model.job import LedgerStats
from scaler.model.plan import Plan
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec
from scaler.model.trainers import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """The last tick. Everything is None or empty before the first one."""

    leading: bool = False
    synced: bool = False
    leader_epoch: int = 0
    decided_at_s: float | None = None
    """Wall clock of the last decision."""
    decided_at_monotonic_s: float | None = None
    spec: FleetSpec | None = None
    snapshot: Snapshot | None = None
    plan: Plan | None = None
    stats: LedgerStats | None = None
    journal_ok: bool = True
    """A crash would lose nothing of the last turn; else nothing is launched."""
    ledger_ok: bool = False
    """It was read in this tick."""
    ledger_refuses: bool = False
    """It answered, and may not be used as it is; where neither, it did not answer, or nobody has asked."""
    ledger_errors: int = 0
    ledger_error: str | None = None
    pools_away: Mapping[str, int] = field(default_factory=dict)
    """Failed lists in a row, by pool; absent: the last one came."""
    notices: Mapping[str, SourceHealth] = field(default_factory=dict)
    guard: tuple[Finding, ...] | None = None
    """What the trainers' guard found last; None before its first look, and where there are no trainers."""
