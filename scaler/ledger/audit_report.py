"""What an audit collects and what it says: the words of the verdict, apart from the judging."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scaler.ledger.contract import UnitState


class Fault(StrEnum):
    """What can be wrong."""

    UNIT_LOST = "unit_lost"
    SAMPLE_LOST = "sample_lost"
    PROGRESS_LOST = "progress_lost"
    UNIT_INVENTED = "unit_invented"
    UNIT_PUT_TWICE = "unit_put_twice"
    SAMPLE_DOUBLED = "sample_doubled"
    FENCE_BROKEN = "fence_broken"
    EPOCH_BROKEN = "epoch_broken"
    GROUP_TRAINED_TWICE = "group_trained_twice"
    GROUP_INCOMPLETE = "group_incomplete"
    GROUP_TOO_STALE = "group_too_stale"
    BATCH_BROKEN = "batch_broken"
    STATE_MISMATCH = "state_mismatch"
    HISTORY_GAP = "history_gap"


LOST = frozenset({Fault.UNIT_LOST, Fault.SAMPLE_LOST})
"""Faults that count as lost units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault, where it was seen, and in words."""

    fault: Fault
    subject: str
    seq: int | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The verdict. `units` counts them by the state that follows from the history."""

    events: int
    units: Mapping[str, int]
    findings: tuple[Finding, ...]
    unprovable_units: int
    """Units whose beginning, or whole life, is compacted away."""
    compacted_through_seq: int
    skipped_live_units: int
    """Left out of the comparison with the store because they changed meanwhile."""

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return not self.findings

    def count(self, *faults: Fault) -> int:
        """Distinct subjects with one of these faults."""
        return len({finding.subject for finding in self.findings if finding.fault in faults})


@dataclass(slots=True)
class UnitTrail:
    """What the history says of one unit."""

    group: str
    state: UnitState = UnitState.PENDING
    fence: tuple[int, int] | None = None
    committed_fence: tuple[int, int] | None = None
    kept: int | None = 0
    """Tokens that the next holder must be given; None: not known."""
    oldest_version: int = 0
    proved: bool = True
    last_seq: int = 0


@dataclass(slots=True)
class BatchTrail:
    """What the history says of one batch."""

    groups: tuple[str, ...]
    acked: bool = False


@dataclass(slots=True)
class Facts:
    """All that was read so far."""

    units: dict[str, UnitTrail] = field(default_factory=dict)
    groups: dict[str, set[str]] = field(default_factory=dict)
    group_size: dict[str, int] = field(default_factory=dict)
    redrawn: dict[str, int] = field(default_factory=dict)
    """group.epoch that was announced, with the event that did."""
    in_batch: dict[str, int] = field(default_factory=dict)
    trained: dict[str, int] = field(default_factory=dict)
    """Group id without its epoch -> batch it was acknowledged in."""
    batches: dict[int, BatchTrail] = field(default_factory=dict)
    store_epoch: int = 0
    trainer_epoch: int = 0
    max_staleness: int | None = None
    compacted_through: int = 0
