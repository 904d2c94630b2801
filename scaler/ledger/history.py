"""The history: what happened to every unit, group and batch, as every engine records it and `audit` reads it.

One event a call that changed something, with one entry a unit or group it touched, so that a batch of 16 is one row.
Progress of a lease in flight is not recorded; its length is, when the lease ends. Nothing here changes state: this is
the only thing that audit and the engines share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Scalar = str | int | float | bool | None


class EventKind(StrEnum):
    """What happened. After each kind: what its entries are about, and the keys of an entry's `data`."""

    CONFIGURED = "configured"
    """No entries. Event data: the settings that audit needs (group_size, max_staleness)."""
    STORE_EPOCH = "store_epoch"
    """No entries. Event data: `store_epoch`. Every lease before it is void."""
    UNITS_PUT = "units_put"
    """Units. `group`, `epoch`, `index`, `group_size`."""
    LEASED = "leased"
    """Units. `fence` (the pair as "store.counter"), `attempt`, `progress` (tokens handed over)."""
    RELEASED = "released"
    """Units, by holder, controller, expiry or supersession. `fence`, `reason`, `progress` (tokens kept), `published`."""
    COMMITTED = "committed"
    """Units. `fence`, `attempt`, `tokens`, `oldest_version`."""
    DEAD_LETTERED = "dead_lettered"
    """Units. `failures`."""
    GROUP_DROPPED = "group_dropped"
    """Groups, as "group.epoch". `reason`; `redrawn_as`: the new group.epoch, or absent."""
    BATCH_TAKEN = "batch_taken"
    """Groups. Event data: `batch`, `trainer_epoch`, `trainer_version`. Also each time take_more changed its groups."""
    BATCH_ACKED = "batch_acked"
    """Groups. Event data: `batch`, `trainer_epoch`."""
    TRAINER_ATTACHED = "trainer_attached"
    """No entries. Event data: `trainer_epoch`, `owner`."""
    PUBLISHED = "published"
    """No entries. Event data: `step`, `digest`, `trainer_epoch`."""
    WORKER_REGISTERED = "worker_registered"
    """No entries. Event data: `incarnation`."""
    WORKER_DRAINED = "worker_drained"
    """No entries. Event data: `deadline_s`, `reason`, `epoch`; undrain has `deadline_s` None."""
    WORKER_GONE = "worker_gone"
    """No entries. Event data: `reason`."""
    COMPACTED = "compacted"
    """No entries. Event data: `through_seq` (events up to it are gone), `units_final` (units whose end they proved)."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One unit or group that an event touched."""

    subject: str
    data: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One recorded change. `seq` has no holes within what is kept; `at_s` is the store's clock."""

    seq: int
    at_s: float
    kind: EventKind
    worker: str | None = None
    data: Mapping[str, Scalar] = field(default_factory=dict)
    entries: tuple[HistoryEntry, ...] = ()
