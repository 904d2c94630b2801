"""Where a run's wasted tokens were wasted, from its ledger's history and its workers' counters.

Wasted is what was generated and is neither in a committed sample nor kept for whoever continues its unit:

* lost with a worker: what its counter has beyond what the ledger got of the units that it held;
* given up: what the ledger had kept for units whose group was dropped (too stale, filtered, dead-lettered).

Generated twice is within the first: what is generated again was lost before. Both add up to generated - committed - kept for
units that wait to be continued, the figure of a demo's summary. The simulator counts the same (`scaler.simulate.ledger`).
Counts are of the whole history kept; one that was compacted knows less of what was handed over, and so takes less for lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scaler.ledger.history import EventKind, HistoryEntry, HistoryEvent

_DROPS = (EventKind.GROUP_DROPPED, EventKind.DEAD_LETTERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Tokens that a run wasted, in all, and what of them was lost with workers that were taken."""

    tokens: int
    tokens_lost: int
    kills_at_work: int
    """Workers taken without notice while they held units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A worker's end by the cloud: when it was decided."""

    at_s: float
    noticed: bool


@dataclass(slots=True)
class _Hold:
    worker: str | None
    begun_at_s: float
    progress: int
    """Tokens that were handed over with the unit."""
    ended_at_s: float = float("inf")


@dataclass(slots=True)
class Holds:
    """Who held which unit and what the ledger got of it. Takes events in order."""

    open: dict[str, _Hold] = field(default_factory=dict)
    held: dict[str, list[_Hold]] = field(default_factory=dict)
    """By worker."""
    gained: dict[str, int] = field(default_factory=dict)
    """By worker: tokens that the ledger got of it, committed or kept."""
    kept: dict[str, int] = field(default_factory=dict)
    """By unit: progress handed in and not committed."""
    given_up: list[tuple[float, int]] = field(default_factory=list)
    """(time, tokens)."""

    def take(self, event: HistoryEvent) -> None:
        """One event more."""
        for entry in event.entries:
            if event.kind is EventKind.LEASED and event.worker is not None:
                self._leased(event, entry)
            elif event.kind is EventKind.RELEASED:
                self._ended(event, entry, kept := _count(entry, "progress"))
                self.kept[entry.subject] = kept
            elif event.kind is EventKind.COMMITTED:
                self._ended(event, entry, _count(entry, "tokens"))
                self.kept.pop(entry.subject, None)
            elif event.kind in _DROPS:
                self._dropped(event.at_s, entry.subject)

    def _leased(self, event: HistoryEvent, entry: HistoryEntry) -> None:
        worker = event.worker or ""
        hold = _Hold(worker, event.at_s, _count(entry, "progress"))
        self.open[entry.subject] = hold
        self.held.setdefault(worker, []).append(hold)

    def _ended(self, event: HistoryEvent, entry: HistoryEntry, tokens: int) -> None:
        hold = self.open.pop(entry.subject, None) or _Hold(event.worker, event.at_s, self.kept.get(entry.subject, 0))
        hold.ended_at_s = event.at_s
        if hold.worker is not None:
            self.gained[hold.worker] = self.gained.get(hold.worker, 0) + tokens - hold.progress

    def _dropped(self, at_s: float, subject: str) -> None:
        """`subject`: the unit, or its group."""
        for unit in [unit for unit in self.kept if subject in (unit, unit.rpartition("/")[0])]:
            self.given_up.append((at_s, self.kept.pop(unit)))
            self.open.pop(unit, None)

    def waste(self, generated: Mapping[str, int], taken: Mapping[str, Taken], end_s: float) -> Waste:
        """What was wasted up to `end_s`, of what each worker generated. `taken`: those that the cloud took, by worker."""
        missing = {worker: tokens - self.gained.get(worker, 0) for worker, tokens in generated.items()}
        in_run = {worker: end for worker, end in taken.items() if end.at_s <= end_s}
        after = sum(missing.get(worker, 0) for worker, end in taken.items() if end.at_s > end_s)
        given_up = sum(tokens for at_s, tokens in self.given_up if at_s <= end_s)
        return Waste(
            tokens=max(0, sum(missing.values()) - after + given_up),
            tokens_lost=max(0, sum(missing.get(worker, 0) for worker in in_run)),
            kills_at_work=sum(not end.noticed and self._at_work(worker, end.at_s) for worker, end in in_run.items()),
        )

    def _at_work(self, worker: str, at_s: float) -> bool:
        return any(hold.begun_at_s <= at_s < hold.ended_at_s for hold in self.held.get(worker, ()))


def _count(entry: HistoryEntry, name: str) -> int:
    return int(entry.data.get(name) or 0)
