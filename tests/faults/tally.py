"""The ledger's state as its history tells it: folded event by event, without any code of the engines."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from scaler.ledger.contract import UnitState
from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent

OPEN = frozenset({UnitState.PENDING, UnitState.LEASED, UnitState.COMMITTED})
"""Not final."""
_STATE_AFTER = {
    EventKind.RELEASED: UnitState.PENDING,
    EventKind.COMMITTED: UnitState.COMMITTED,
    EventKind.DEAD_LETTERED: UnitState.DEAD_LETTERED,
}
_OF_GROUPS = frozenset({EventKind.UNITS_PUT, EventKind.GROUP_DROPPED, EventKind.BATCH_TAKEN, EventKind.BATCH_ACKED})


@dataclass(slots=True)
class UnitFacts:
    """What became of a unit so far."""

    group: str
    state: UnitState = UnitState.PENDING
    fence: str | None = None
    holder: str | None = None


@dataclass(slots=True)
class WorkerFacts:
    """What the ledger was told of a worker."""

    registered_at_event: int
    drain_deadline_s: float | None = None
    gone: bool = False


@dataclass(slots=True)
class Tally:
    """Feed it the history in order."""

    units: dict[str, UnitFacts] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    workers: dict[str, WorkerFacts] = field(default_factory=dict)
    counts: Counter[UnitState] = field(default_factory=Counter)
    taken: dict[str, int] = field(default_factory=dict)
    """Group -> the batch not yet acknowledged that it is in."""
    controller_epoch: int = 0
    """Highest in a drain or undrain."""
    trainer_epoch: int = 0
    version: int | None = None
    epochs_fell: list[str] = field(default_factory=list)

    def feed(self, events: Iterable[HistoryEvent]) -> None:
        """Take events in, in order."""
        for event in events:
            state = _STATE_AFTER.get(event.kind)
            if state is not None:
                self._all(event, state)
            elif event.kind is EventKind.LEASED:
                for entry in event.entries:
                    self._lease(entry, event.worker)
            elif event.kind in _OF_GROUPS:
                self._groups(event)
            else:
                self._others(event)

    def held_by(self, worker: str) -> list[str]:
        """Units that a worker has leased."""
        return [name for name, unit in self.units.items() if unit.holder == worker and unit.state is UnitState.LEASED]

    @property
    def taken_samples(self) -> int:
        """Samples in the open batch."""
        return sum(len(self.groups[group]) for group in self.taken)

    @property
    def open_units(self) -> int:
        """Units that are neither trained nor visibly dropped."""
        return sum(self.counts[state] for state in OPEN)

    def _move(self, unit_id: str, state: UnitState) -> UnitFacts:
        unit = self.units[unit_id]
        self.counts[unit.state] -= 1
        self.counts[state] += 1
        unit.state = state
        if state is not UnitState.LEASED:
            unit.holder = None
        return unit

    def _put(self, entries: Iterable[HistoryEntry]) -> None:
        for entry in entries:
            group = f"{entry.data['group']}.{entry.data['epoch']}"
            self.units[entry.subject] = UnitFacts(group)
            self.groups.setdefault(group, []).append(entry.subject)
            self.counts[UnitState.PENDING] += 1

    def _lease(self, entry: HistoryEntry, worker: str | None) -> None:
        unit = self._move(entry.subject, UnitState.LEASED)
        unit.fence, unit.holder = str(entry.data["fence"]), worker

    def _all(self, event: HistoryEvent, state: UnitState) -> None:
        for entry in event.entries:
            self._move(entry.subject, state)

    def _drop(self, entries: Iterable[HistoryEntry]) -> None:
        for entry in entries:
            self.taken.pop(entry.subject, None)
            for unit_id in self.groups[entry.subject]:
                if self.units[unit_id].state is not UnitState.DEAD_LETTERED:
                    self._move(unit_id, UnitState.DROPPED)

    def _groups(self, event: HistoryEvent) -> None:
        if event.kind is EventKind.UNITS_PUT:
            self._put(event.entries)
        elif event.kind is EventKind.GROUP_DROPPED:
            self._drop(event.entries)
        elif event.kind is EventKind.BATCH_TAKEN:
            self.taken |= {entry.subject: int(event.data["batch"] or 0) for entry in event.entries}
        else:
            self._consume(event.entries)

    def _consume(self, entries: Iterable[HistoryEntry]) -> None:
        for entry in entries:
            self.taken.pop(entry.subject, None)
            for unit_id in self.groups[entry.subject]:
                self._move(unit_id, UnitState.CONSUMED)

    def _others(self, event: HistoryEvent) -> None:
        if event.kind is EventKind.TRAINER_ATTACHED:
            self.trainer_epoch = int(event.data["trainer_epoch"] or 0)
        elif event.kind is EventKind.PUBLISHED:
            self.version = int(event.data["step"] or 0)
        else:
            self._worker(event)

    def _worker(self, event: HistoryEvent) -> None:
        name = event.worker or ""
        if event.kind is EventKind.WORKER_REGISTERED:
            self.workers[name] = WorkerFacts(event.seq)
        elif event.kind is EventKind.WORKER_GONE:
            self.workers[name].gone = True
        elif event.kind is EventKind.WORKER_DRAINED:
            deadline_s = event.data["deadline_s"]
            self.workers[name].drain_deadline_s = None if deadline_s is None else float(deadline_s)
            self._hear_epoch(int(event.data["epoch"] or 0), event.seq)

    def _hear_epoch(self, epoch: int, seq: int) -> None:
        if epoch < self.controller_epoch:
            self.epochs_fell.append(f"epoch {epoch} after {self.controller_epoch} in history event {seq}")
        self.controller_epoch = max(epoch, self.controller_epoch)
