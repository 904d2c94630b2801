"""The rates of a run, measured from its ledger's history: what a scenario needs to replay it.

* The run is the time from the trainer's arrival (or the first event kept) to the last batch acknowledged.
* Trainer: a batch takes from the last time that it was handed out (its groups may be replaced until then) to its
  acknowledgement, publishing included; all other time is waiting.
* Goodput: committed units by busy replica-seconds, times the share of decided groups that were not filtered. A replica is
  busy while it holds a lease: one that was given nothing is not slow.
* Tokens a second of one unit: what the times from lease to commit grow by with its tokens (least squares). What of a unit's
  time does not grow with them is its way to the first token: mostly the queue of an engine that is leased more than it runs.
* Launch: from the instance's record to the worker's registration, and from there to its first lease. Workers that registered
  before the run are its warm start: what they waited for was the trainer.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev

from scaler.commands.record_waste import Holds
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
    tokens_per_s: float
    """Of one unit, from its first token on."""
    boot: Times
    load: Times
    warm_replicas: int
    rates_known: bool
    """Whether the trainer was at work before: one that arrives has told nobody what it takes."""
    holds: Holds

    @property
    def first_token_s(self) -> float:
        """From the lease of a unit to its first token: of its time (units at once by those a second), what is not generation."""
        unit_s = self.concurrent_units * self.acceptance_ratio / self.goodput_per_replica_per_s
        return max(0.0, unit_s - self.mean_tokens / self.tokens_per_s)


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
    units: list[tuple[int, float]] = field(default_factory=list)
    """(tokens, time from lease to commit) of those that were leased once."""
    start_s: float | None = None
    attached: bool = False
    taken: dict[int, float] = field(default_factory=dict)
    trained: dict[int, tuple[float, float, int]] = field(default_factory=dict)
    """Batch -> (taken, acknowledged, groups)."""
    filtered_groups: int = 0
    holds: Holds = field(default_factory=Holds)

    def feed(self, events: Iterable[HistoryEvent]) -> None:
        """Take a whole history in."""
        for event in events:
            if self.start_s is None:
                self.start_s = event.at_s
            self._trainer(event)
            self._worker(event)
            self.holds.take(event)

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
                self.units.append((self.tokens[-1], event.at_s - leased_at_s))

    def rates(self, instances: Sequence[InstanceRecord], source: str) -> Rates:
        """The sums. `TraceError` where nothing was trained."""
        busy_s = sum(worker.busy_s for worker in self.workers.values())
        if not self.trained or not self.units or busy_s <= 0 or self.start_s is None:
            raise TraceError(source, None, "nothing was trained there: no rates to measure")
        end_s = max(acked_s for _, acked_s, _ in self.trained.values())
        training_s = sum(acked_s - taken_s for taken_s, acked_s, _ in self.trained.values())
        groups = sum(count for _, _, count in self.trained.values())
        acceptance = groups / (groups + self.filtered_groups)
        most_leases = max(worker.most_leases for worker in self.workers.values())
        concurrent_units = max(1, most_leases // self.group_size) * self.group_size
        return Rates(
            start_s=self.start_s,
            end_s=end_s,
            updates=len(self.trained),
            wait_ratio=1 - training_s / (end_s - self.start_s),
            unblocked_samples_per_s=groups * self.group_size / training_s,
            goodput_per_replica_per_s=len(self.tokens) / busy_s * acceptance,
            acceptance_ratio=acceptance,
            concurrent_units=concurrent_units,
            mean_tokens=fmean(self.tokens),
            sigma=pstdev([math.log(max(1, tokens)) for tokens in self.tokens]),
            most_tokens=max(self.tokens) + 1,
            tokens_per_s=max(_tokens_per_s(self.units), sum(self.tokens) / busy_s / concurrent_units),
            rates_known=not self.attached,
            holds=self.holds,
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


def _tokens_per_s(units: Sequence[tuple[int, float]]) -> float:
    """The slope of tokens over times, by least squares of times by tokens; 0 where their times do not grow with them."""
    mean_tokens, mean_s = fmean(tokens for tokens, _ in units), fmean(unit_s for _, unit_s in units)
    together = sum((tokens - mean_tokens) * (unit_s - mean_s) for tokens, unit_s in units)
    return sum((tokens - mean_tokens) ** 2 for tokens, _ in units) / together if together > 0 else 0.0


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
