"""Many workers of one job in one thread, and a trainer that eats what they make: load for `bench interruptions`.

Workers speak the ledger's own protocol (register, lease, heartbeat with progress, drain, release, commit), one connection for
all of them; what they generate is made of nothing. A worker's engine is a clock: a unit takes so many seconds, and a
token is published for each of its steps.
Invariants: a draining worker takes nothing and hands everything over at once; a killed one says nothing ever again.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from scaler.ledger.contract import Beat, Commit, Control, Ledger, LedgerError, Release
from scaler.model.clock import Clock
from scaler.model.job import Phase, TrainerReport, WorkerIdentity, WorkerStatus
from scaler.model.work import (
    FinishReason,
    Lease,
    PolicyVersion,
    ProgressDelta,
    ReleaseReason,
    Sample,
    VersionSpan,
    WorkUnit,
)

_VERSION_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How workers work."""

    units_at_once: int = 4
    unit_s: float = 2.0
    """Seconds of generation of a unit."""
    tokens: int = 16
    beat_s: float = 1.0
    """Between heartbeats of one worker; a drain mark is heard of within it."""
    ttl_s: float = 30.0
    """Of a lease."""


@dataclass(slots=True)
class _Held:
    lease: Lease
    began_s: float
    published: int
    version: int
    """Of the policy that it is generated with, from its lease on."""

    def spans(self, start: int, end: int) -> tuple[VersionSpan, ...]:
        """Who made its tokens from `start` to `end`: what was there when it was leased keeps its versions."""
        found = self.lease.progress
        ours = VersionSpan(max(start, len(found.tokens)), end, self.version)
        return (*(found.spans if start == 0 else ()), *((ours,) if ours.start < ours.end else ()))


@dataclass(slots=True)
class _Worker:
    identity: WorkerIdentity
    due_s: float
    held: dict[str, _Held] = field(default_factory=dict)
    registered: bool = False
    draining: bool = False
    leaving: bool = False


class MultiplexedWorkers:
    """See the module's docstring. `add`, `leave` and `kill` may be called from other threads."""

    def __init__(self, open_ledger: Callable[[], Ledger], clock: Clock, settings: WorkerSettings | None = None) -> None:
        self._open = open_ledger
        self._clock = clock
        self._settings = settings or WorkerSettings()
        self._workers: dict[str, _Worker] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workers", daemon=True)
        self.drained_at_s: dict[str, float] = {}
        """Worker -> when it had handed everything over because it was told to drain."""
        self.errors = 0
        self._version = 0
        self._version_due_s = 0.0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; leases are left as they are."""
        self._stop.set()
        self._thread.join()

    def add(self, identity: WorkerIdentity) -> None:
        """A worker has started."""
        with self._lock:
            self._workers.setdefault(identity.worker, _Worker(identity=identity, due_s=self._clock.monotonic_s()))

    def leave(self, worker: str) -> None:
        """SIGTERM: hand over, and say goodbye."""
        with self._lock:
            if worker in self._workers:
                self._workers[worker].leaving = True

    def kill(self, worker: str) -> None:
        """Gone without a word."""
        with self._lock:
            self._workers.pop(worker, None)

    @property
    def names(self) -> frozenset[str]:
        """Workers that live."""
        with self._lock:
            return frozenset(self._workers)

    def _run(self) -> None:
        ledger: Ledger | None = None
        while not self._stop.wait(0.02):
            try:
                ledger = ledger or self._open()
                self._round(ledger)
            except LedgerError:
                self.errors += 1
                ledger = None
                self._stop.wait(0.2)

    def _round(self, ledger: Ledger) -> None:
        if self._clock.monotonic_s() >= self._version_due_s:
            self._version = ledger.stats().version or 0
            self._version_due_s = self._clock.monotonic_s() + _VERSION_EVERY_S
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            now_s = self._clock.monotonic_s()
            if worker.leaving:
                self._hand_over(ledger, worker)
                ledger.release_worker(worker.identity.worker, ReleaseReason.DRAIN)
                self.kill(worker.identity.worker)
            elif now_s >= worker.due_s:
                worker.due_s = now_s + self._settings.beat_s
                self._turn(ledger, worker, now_s)

    def _turn(self, ledger: Ledger, worker: _Worker, now_s: float) -> None:
        name = worker.identity.worker
        if not worker.registered:
            ledger.register(worker.identity)
            worker.registered = True
        status = WorkerStatus(
            ready=True,
            version=self._version,
            capacity_units=self._settings.units_at_once,
            running_units=len(worker.held),
        )
        beats = [self._beat(held, now_s) for held in worker.held.values()]
        self._obey(ledger, worker, ledger.heartbeat(name, beats, status, self._settings.ttl_s))
        if worker.draining:
            return
        self._commit(ledger, worker, now_s)
        free = self._settings.units_at_once - len(worker.held)
        if free > 0:
            reply = ledger.lease(name, free, self._settings.ttl_s)
            worker.held |= {
                lease.unit.unit_id: _Held(lease, now_s, len(lease.progress.tokens), self._version)
                for lease in reply.leases
            }
            self._obey(ledger, worker, reply.control)

    def _obey(self, ledger: Ledger, worker: _Worker, control: Control) -> None:
        for unit_id in (*control.lost, *control.abandon):
            held = worker.held.pop(unit_id, None)
            if held is not None and unit_id in control.abandon:
                ledger.release(worker.identity.worker, [_release(held, ReleaseReason.ABANDONED)])
        if control.drain_deadline_s is None:
            worker.draining = False
            return
        if not worker.draining:
            worker.draining = True
            self._hand_over(ledger, worker)
            self.drained_at_s[worker.identity.worker] = self._clock.now_s()

    def _hand_over(self, ledger: Ledger, worker: _Worker) -> None:
        if worker.held:
            ledger.release(
                worker.identity.worker, [_release(held, ReleaseReason.DRAIN) for held in worker.held.values()]
            )
            worker.held.clear()

    def _beat(self, held: _Held, now_s: float) -> Beat:
        share = min(1.0, (now_s - held.began_s) / self._settings.unit_s)
        upto = max(held.published, int(share * self._settings.tokens))
        progress = _delta(held, upto) if upto > held.published else None
        held.published = upto
        return Beat(unit_id=held.lease.unit.unit_id, fencing_token=held.lease.fencing_token, progress=progress)

    def _commit(self, ledger: Ledger, worker: _Worker, now_s: float) -> None:
        done = [held for held in worker.held.values() if now_s - held.began_s >= self._settings.unit_s]
        if not done:
            return
        tokens = self._settings.tokens
        ledger.commit(
            worker.identity.worker,
            [
                Commit(
                    unit_id=held.lease.unit.unit_id,
                    fencing_token=held.lease.fencing_token,
                    sample=_sample(held, tokens),
                )
                for held in done
            ],
        )
        for held in done:
            del worker.held[held.lease.unit.unit_id]


class EatingTrainer:
    """Puts units in, takes batches out at a steady rate, publishes a version for each batch, and reports."""

    def __init__(self, open_ledger: Callable[[], Ledger], clock: Clock, *, batches_per_s: float) -> None:
        self._open = open_ledger
        self._clock = clock
        self._every_s = 1.0 / batches_per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)
        self.steps = 0
        self.errors = 0

    def pace(self, batches_per_s: float) -> None:
        """Take so many batches a second from the next one on."""
        self._every_s = 1.0 / batches_per_s

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        ledger, epoch, drawn = None, 0, 0
        while not self._stop.wait(self._every_s):
            try:
                if ledger is None:
                    ledger = self._open()
                    epoch = ledger.attach_trainer("trainer")
                drawn = self._draw(ledger, drawn)
                self._step(ledger, epoch)
            except LedgerError:
                self.errors += 1
                ledger = None

    def _draw(self, ledger: Ledger, drawn: int) -> int:
        """Keep more units pending than can be taken."""
        settings = ledger.stats().settings
        if ledger.stats().pending >= 4 * settings.batch_samples:
            return drawn
        for _ in range(4 * settings.batch_groups):
            units = [
                WorkUnit(
                    group_id=f"g{drawn:07d}",
                    sample_index=index,
                    group_size=settings.group_size,
                    prompt=(1, 2, 3),
                    seed=drawn,
                    max_tokens=64,
                    time_bound_s=600.0,
                )
                for index in range(settings.group_size)
            ]
            ledger.put_units(units)
            drawn += 1
        return drawn

    def _step(self, ledger: Ledger, epoch: int) -> None:
        settings = ledger.stats().settings
        batch = ledger.take_batch(epoch, settings.batch_groups, self.steps, settings.max_staleness)
        if batch is not None:
            ledger.ack_batch(epoch, [batch.batch_id])
            self.steps += 1
            ledger.publish(epoch, PolicyVersion(self.steps, f"{self.steps:064x}"))
        rate = settings.batch_samples / self._every_s
        ledger.report(epoch, TrainerReport(step=self.steps, unblocked_samples_per_s=rate, phase=Phase.TRAIN))


def _delta(held: _Held, end: int) -> ProgressDelta:
    start, count = held.published, end - held.published
    return ProgressDelta(start=start, tokens=(7,) * count, logprobs=(-1.0,) * count, spans=held.spans(start, end))


def _release(held: _Held, reason: ReleaseReason) -> Release:
    return Release(unit_id=held.lease.unit.unit_id, fencing_token=held.lease.fencing_token, reason=reason)


def _sample(held: _Held, tokens: int) -> Sample:
    return Sample(
        unit_id=held.lease.unit.unit_id,
        tokens=(7,) * tokens,
        logprobs=(-1.0,) * tokens,
        spans=held.spans(0, tokens),
        finish_reason=FinishReason.STOP,
        reward=1.0,
    )
