"""The rates of a run, measured from its ledger's history: what a scenario needs to replay it.

* The run is the time from the trainer's arrival (or the first event kept) to the last batch acknowledged.
* Trainer: a batch takes from the last time that it was handed out (its groups may be replaced until then) to its
  acknowledgement, publishing included; all other time is waiting.
* Goodput: committed units by busy replica-seconds, times the share of decided groups that were not filtered. A replica is
  busy while it holds a lease: one that was given nothing is not slow.
* Lengths: the spread of the times from lease to commit, at the mean of the tokens. What a scenario calls length is what makes a
  group wait for its longest unit, and part of a unit's time does not grow with its tokens.
* Launch: from the instance's record to the worker's registration, and from there to its first lease. Workers that registered
  before the run are its warm start: what they waited for was the trainer.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev

from scaler.demo.summary import tokens_in_progress
from scaler.ledger.history import EventKind, HistoryEvent
from scaler.localcloud.state import InstanceRecord
from scaler.traces.trace import TraceError

_FILTERED = "filtered"
_ENDS = frozenset({EventKind.COMMITTED, EventKind.RELEASED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Measured times in seconds, as a least one and a lognormal part above it."""

    least_s: float
    median_s: float
    sigma: float
    most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was measured. Times on the store's clock."""

    start_s: float
    end_s: float
    updates: int
    wait_ratio: float
    unblocked_samples_per_s: float
    goodput_per_replica_per_s: float
    acceptance_ratio: float
    concurrent_units: int
    mean_tokens: float
    sigma: float
    most_tokens: int
    boot: Times
    load: Times
    warm_replicas: int
    tokens_committed: int
    tokens_in_progress: int
    """Kept at the end for units that wait to be continued."""

    @property
    def tokens_per_s(self) -> float:
        """Of one unit: its tokens over its time, which is units at once times acceptance over goodput."""
        return self.mean_tokens * self.goodput_per_replica_per_s / (self.concurrent_units * self.acceptance_ratio)


@dataclass(slots=True)
class _Worker:
    registered_at_s: float | None = None
    """None: before the run."""
    first_at_s: float | None = None
    leases: int = 0
    most_leases: int = 0
    busy_s: float = 0.0
    since_s: float = 0.0

    @property
    def load_s(self) -> float | None:
        """Registration to first lease; None where either is not known."""
        if self.registered_at_s is None or self.first_at_s is None:
            return None
        return self.first_at_s - self.registered_at_s

    def add(self, leases: int, at_s: float) -> None:
        if self.leases > 0:
            self.busy_s += at_s - self.since_s
        self.since_s, self.leases = at_s, max(0, self.leases + leases)
        self.most_leases = max(self.most_leases, self.leases)
        if self.first_at_s is None:
            self.first_at_s = at_s


@dataclass(slots=True)
class Meter:
    """Takes events in order; `rates` sums them up."""

    group_size: int
    workers: dict[str, _Worker] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    leased: dict[str, float] = field(default_factory=dict)
    units_s: list[float] = field(default_factory=list)
    """Times from a unit's only lease to its commit."""
    start_s: float | None = None
    attached: bool = False
    taken: dict[int, float] = field(default_factory=dict)
    trained: dict[int, tuple[float, float, int]] = field(default_factory=dict)
    """Batch -> (taken, acknowledged, groups)."""
    filtered_groups: int = 0
    tokens_in_progress: int = 0

    def feed(self, events: Iterable[HistoryEvent]) -> None:
        """Take a whole history in."""
        events = tuple(events)
        self.tokens_in_progress = tokens_in_progress(events)
        for event in events:
            if self.start_s is None:
                self.start_s = event.at_s
            self._trainer(event)
            self._worker(event)

    def _trainer(self, event: HistoryEvent) -> None:
        if event.kind is EventKind.TRAINER_ATTACHED and not self.attached:
            self.start_s, self.attached = event.at_s, True
            for worker in self.workers.values():
                worker.registered_at_s = None
        elif event.kind is EventKind.BATCH_TAKEN:
            self.taken[int(event.data["batch"] or 0)] = event.at_s
        elif event.kind is EventKind.BATCH_ACKED:
            batch = int(event.data["batch"] or 0)
            self.trained[batch] = (self.taken.get(batch, event.at_s), event.at_s, len(event.entries))
        elif event.kind is EventKind.GROUP_DROPPED:
            self._dropped(event)

    def _dropped(self, event: HistoryEvent) -> None:
        self.filtered_groups += sum(entry.data["reason"] == _FILTERED for entry in event.entries)

    def _worker(self, event: HistoryEvent) -> None:
        if event.worker is None:
            return
        if event.kind is EventKind.WORKER_REGISTERED:
            self.workers.setdefault(event.worker, _Worker(registered_at_s=event.at_s))
            return
        worker = self.workers.setdefault(event.worker, _Worker())
        if event.kind is EventKind.LEASED:
            worker.add(len(event.entries), event.at_s)
            self.leased |= {entry.subject: event.at_s for entry in event.entries}
        elif event.kind in _ENDS:
            worker.add(-len(event.entries), event.at_s)
        if event.kind is EventKind.COMMITTED:
            self._committed(event)

    def _committed(self, event: HistoryEvent) -> None:
        for entry in event.entries:
            self.tokens.append(int(entry.data["tokens"] or 0))
            leased_at_s = self.leased.pop(entry.subject, None)
            if leased_at_s is not None and entry.data["attempt"] == 1:
                self.units_s.append(max(1e-3, event.at_s - leased_at_s))

    def rates(self, instances: Sequence[InstanceRecord], source: str) -> Rates:
        """The sums. `TraceError` where nothing was trained."""
        busy_s = sum(worker.busy_s for worker in self.workers.values())
        if not self.trained or not self.units_s or busy_s <= 0 or self.start_s is None:
            raise TraceError(source, None, "nothing was trained there: no rates to measure")
        end_s = max(acked_s for _, acked_s, _ in self.trained.values())
        training_s = sum(acked_s - taken_s for taken_s, acked_s, _ in self.trained.values())
        groups = sum(count for _, _, count in self.trained.values())
        acceptance = groups / (groups + self.filtered_groups)
        mean_tokens, longest = fmean(self.tokens), max(self.units_s) / fmean(self.units_s)
        most_leases = max(worker.most_leases for worker in self.workers.values())
        return Rates(
            start_s=self.start_s,
            end_s=end_s,
            updates=len(self.trained),
            wait_ratio=1 - training_s / (end_s - self.start_s),
            unblocked_samples_per_s=groups * self.group_size / training_s,
            goodput_per_replica_per_s=len(self.tokens) / busy_s * acceptance,
            acceptance_ratio=acceptance,
            concurrent_units=max(1, most_leases // self.group_size) * self.group_size,
            mean_tokens=mean_tokens,
            sigma=pstdev([math.log(unit_s) for unit_s in self.units_s]),
            most_tokens=math.ceil(mean_tokens * longest) + 1,
            tokens_committed=sum(self.tokens),
            tokens_in_progress=self.tokens_in_progress,
            boot=_times(list(self._boots(instances))),
            load=_times([worker.load_s for worker in self.workers.values() if worker.load_s is not None]),
            warm_replicas=sum(
                worker.load_s is None and worker.first_at_s is not None for worker in self.workers.values()
            ),
        )

    def _boots(self, instances: Sequence[InstanceRecord]) -> Iterator[float]:
        launched: Mapping[str, float] = {record.worker: record.launched_at_s for record in instances}
        for name, worker in self.workers.items():
            if name in launched and worker.registered_at_s is not None:
                yield max(0.0, worker.registered_at_s - launched[name])


def _times(measured: Sequence[float]) -> Times:
    """Least, and a lognormal around what is above it; of one measurement, a constant."""
    if not measured:
        return Times(least_s=0.0, median_s=0.0, sigma=0.0, most_s=1.0)
    least_s = min(measured)
    above = [seconds - least_s for seconds in measured if seconds - least_s > 1e-3]
    most_s = max(*measured, least_s + 1e-3)
    if not above:
        return Times(least_s=least_s, median_s=0.0, sigma=0.0, most_s=most_s)
    sigma = min(4.0, pstdev([math.log(seconds) for seconds in above]))
    return Times(least_s=least_s, median_s=median(above), sigma=sigma, most_s=most_s)
