"""The worker's decisions: a pure state machine, events in, instructions out. No I/O, no clock, no tasks.

Invariants
* A leased unit is held in exactly one phase, generating, to be committed or to be released, until the ledger has
  answered for it or says that it is not this worker's any more.
* Nothing is invented: only the engine's tokens enter a journal, and what the ledger has not acknowledged is sent again.
* One ledger call is under way at a time. It is chosen, from the state of that moment, when `LedgerIdle` is heard:
  overdue heartbeats, then releases, commits, progress, leases, goodbye. A call that failed just comes up again.
* Draining is one path for signal, notice and the ledger's mark: no leases; what fits is finished; the rest is released
  with all its tokens; then goodbye. It ends the process unless the ledger alone asked for it.

The time bound of a unit counts from its lease here: how long earlier holders had it is not in a lease, so that a unit
that moved may take longer than its bound, by the time it spent elsewhere.

Not its business: how the ledger, the engine and the weights are reached, and how long to back off between failed calls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rollout_worker import events as ev
from rollout_worker.drain import DrainOrders, TokenRate
from rollout_worker.held import HeldUnit, UnitPhase
from scaler.ledger.contract import CommitOutcome, Control
from scaler.model.job import WorkerStatus
from scaler.model.work import FinishReason, Lease, ReleaseReason


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """How a worker behaves; times in seconds."""

    concurrency: int = 8
    heartbeat_s: float = 1.0
    publish_tokens: int = 8
    publish_interval_s: float = 0.5
    """Progress goes out when a unit has this many unpublished tokens, or one this old, whichever is first."""
    publish_progress: bool = True
    min_version: int | None = None
    """Not ready, and no leases, before this policy version is loaded; None takes any."""
    drain_margin_s: float = 10.0
    lease_wait_initial_s: float = 0.1
    lease_wait_max_s: float = 1.0
    """Wait after a lease call that granted nothing, or an engine failure; doubles up to the maximum."""


@dataclass(slots=True)
class WorkerMachine:
    """See the module's docstring. `handle` is the only way in."""

    settings: MachineSettings
    units: dict[str, HeldUnit] = field(default_factory=dict)
    """By unit id."""
    registered: bool = False
    gone: bool = False
    """Said goodbye, and the ledger heard it."""
    healthy: bool = False
    version: int | None = None
    tokens_generated: int = 0
    drains: DrainOrders = field(init=False)
    rate: TokenRate = field(default_factory=TokenRate)
    _beat_at_s: float = float("-inf")
    _lease_at_s: float = float("-inf")
    _lease_wait_s: float = 0.0
    _exited: bool = False
    _out: list[ev.Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drains = DrainOrders(margin_s=self.settings.drain_margin_s)

    def handle(self, event: ev.Event) -> tuple[ev.Instruction, ...]:
        """Take one event in; what to do about it, in order."""
        self._out = []
        self._HEARD[type(event)](self, event)
        self._end_timed_out(event.at_s)
        self._leave(event.at_s)
        return tuple(self._out)

    @property
    def ready(self) -> bool:
        """Healthy and at the minimum version."""
        return self.healthy and self.version is not None and self.version >= (self.settings.min_version or 0)

    @property
    def idle_for_good(self) -> bool:
        """Handed over, by the ledger's order, and waiting to be stopped."""
        return self.gone and not self.drains.for_good

    @property
    def unpublished_tokens(self) -> int:
        """What a kill would lose now."""
        return sum(unit.unpublished for unit in self.units.values())

    def in_phase(self, phase: UnitPhase) -> list[HeldUnit]:
        """The held units of one phase, longest held first."""
        return [unit for unit in self.units.values() if unit.phase is phase]

    def status(self) -> WorkerStatus:
        """What every heartbeat says."""
        return WorkerStatus(
            ready=self.ready,
            version=self.version,
            capacity_units=self.settings.concurrency,
            running_units=len(self.in_phase(UnitPhase.GENERATING)),
            unpublished_tokens=self.unpublished_tokens,
            tokens_generated=self.tokens_generated,
        )

    # What events do.

    def _on_tick(self, event: ev.Tick) -> None:
        """Only time: what it changes is looked at after every event."""

    def _on_ledger_idle(self, event: ev.LedgerIdle) -> None:
        call = self._next_call(event.at_s)
        if call is not None:
            self._out.append(call)

    def _on_registered(self, event: ev.Registered) -> None:
        self.registered = True

    def _on_leases_granted(self, event: ev.LeasesGranted) -> None:
        if event.reply.leases:
            self._lease_wait_s = 0.0
        else:
            self._wait_before_lease(event.at_s)
        for lease in event.reply.leases:
            self._begin(lease, event.at_s)
        self._obey(event.reply.control, sent_at_s=event.sent_at_s, at_s=event.at_s)

    def _on_beats_answered(self, event: ev.BeatsAnswered) -> None:
        self._beat_at_s = event.at_s
        lost = set(event.control.lost)
        for beat in event.call.beats:
            unit = self.units.get(beat.unit_id)
            if unit and beat.progress and beat.unit_id not in lost:
                unit.acknowledge(beat.progress.start + len(beat.progress.tokens), event.at_s)
        self._obey(event.control, sent_at_s=event.sent_at_s, at_s=event.at_s)

    def _on_commits_answered(self, event: ev.CommitsAnswered) -> None:
        for commit, outcome in zip(event.call.commits, event.outcomes, strict=True):
            self._forget(commit.unit_id)
            if outcome is CommitOutcome.REFUSED:
                self._tell("commit_refused", unit=commit.unit_id, tokens=len(commit.sample.tokens))

    def _on_releases_answered(self, event: ev.ReleasesAnswered) -> None:
        for release in event.call.releases:
            self._forget(release.unit_id)

    def _on_goodbye_answered(self, event: ev.GoodbyeAnswered) -> None:
        self.gone = True
        self._tell("drained")

    def _on_chunk_received(self, event: ev.ChunkReceived) -> None:
        self.tokens_generated += len(event.chunk.tokens)
        unit = self._generating(event.request_id)
        if unit is None:
            return
        if unit.last_chunk_at_s is not None:
            self.rate.observe(len(event.chunk.tokens), event.at_s - unit.last_chunk_at_s)
        self._lease_wait_s = 0.0
        unit.append(event.chunk, event.at_s)
        if event.chunk.finish_reason is not None:
            self._finish(unit, event.chunk.finish_reason)
        elif not unit.tokens_left:
            self._stop_and_finish(unit, FinishReason.TOKEN_BOUND)

    def _on_generation_failed(self, event: ev.GenerationFailed) -> None:
        unit = self._generating(event.request_id)
        if unit is None:
            return
        unit.error = event.error
        self._give_back(unit, event.reason)
        self._tell("generation_failed", unit=unit.lease.unit.unit_id, reason=event.reason.value, error=event.error)
        if event.reason is ReleaseReason.INFRASTRUCTURE:
            self._wait_before_lease(event.at_s)

    def _on_engine_seen(self, event: ev.EngineSeen) -> None:
        was_ready = self.ready
        self.healthy, self.version = event.healthy, event.version
        if self.ready and not was_ready:
            self._tell("ready", version=event.version or 0)

    def _on_drain_ordered(self, event: ev.DrainOrdered) -> None:
        self._order_drain(event.source, event.at_s, event.deadline_at_s)

    _HEARD: ClassVar[Mapping[type[ev.Event], Callable[["WorkerMachine", Any], None]]] = {
        ev.Tick: _on_tick,
        ev.LedgerIdle: _on_ledger_idle,
        ev.Registered: _on_registered,
        ev.LeasesGranted: _on_leases_granted,
        ev.BeatsAnswered: _on_beats_answered,
        ev.CommitsAnswered: _on_commits_answered,
        ev.ReleasesAnswered: _on_releases_answered,
        ev.GoodbyeAnswered: _on_goodbye_answered,
        ev.ChunkReceived: _on_chunk_received,
        ev.GenerationFailed: _on_generation_failed,
        ev.EngineSeen: _on_engine_seen,
        ev.DrainOrdered: _on_drain_ordered,
    }
    """What each kind of event does."""

    # What every reply of the ledger carries.

    def _obey(self, control: Control, *, sent_at_s: float, at_s: float) -> None:
        for unit_id in control.lost:
            self._lose(unit_id)
        for unit_id in control.abandon:
            self._abandon(unit_id)
        if control.drain_deadline_s is not None:
            # Reckoned from the moment of asking: the store read its clock later, so this errs to the early side.
            left_s = control.drain_deadline_s - control.store_now_s
            self._order_drain(ev.DrainSource.LEDGER, at_s, sent_at_s + left_s)
        elif self.drains.withdraw(ev.DrainSource.LEDGER):
            self._tell("drain_withdrawn")
        if control.version is not None and (self.version is None or control.version > self.version):
            self._out.append(ev.LookForWeights())

    def _order_drain(self, source: ev.DrainSource, at_s: float, deadline_s: float) -> None:
        if self.drains.order(source, at_s, deadline_s):
            self._tell("drain_ordered", source=source.value, left_s=round(deadline_s - at_s, 3), units=len(self.units))

    def _lose(self, unit_id: str) -> None:
        unit = self.units.get(unit_id)
        if unit is not None:
            self._stop(unit)
            self._forget(unit_id)
            self._tell("unit_lost", unit=unit_id, unpublished_tokens=unit.unpublished)

    def _abandon(self, unit_id: str) -> None:
        unit = self.units.get(unit_id)
        if unit is not None:
            self._stop(unit)
            self._give_back(unit, ReleaseReason.ABANDONED)

    # What becomes of a unit.

    def _begin(self, lease: Lease, at_s: float) -> None:
        old = self.units.get(lease.unit.unit_id)
        if old is not None:
            # The old lease ran out before its heartbeat arrived, and the unit came straight back.
            self._stop(old)
        unit = self.units[lease.unit.unit_id] = HeldUnit.of(lease, at_s)
        if not unit.tokens_left:
            self._finish(unit, FinishReason.TOKEN_BOUND)
        elif self.drains.active:
            self._give_back(unit, ReleaseReason.DRAIN)
        else:
            self._out.append(ev.Generate(unit.request()))

    def _generating(self, request_id: str) -> HeldUnit | None:
        unit = self.units.get(request_id.rpartition("@")[0])
        if unit is None or unit.phase is not UnitPhase.GENERATING or unit.request_id != request_id:
            return None
        return unit

    def _stop(self, unit: HeldUnit) -> None:
        if unit.phase is UnitPhase.GENERATING:
            self._out.append(ev.Abort(unit.request_id))

    def _finish(self, unit: HeldUnit, reason: FinishReason) -> None:
        unit.phase, unit.finish_reason = UnitPhase.TO_COMMIT, reason

    def _stop_and_finish(self, unit: HeldUnit, reason: FinishReason) -> None:
        self._stop(unit)
        self._finish(unit, reason)

    def _give_back(self, unit: HeldUnit, reason: ReleaseReason) -> None:
        unit.phase, unit.release_reason = UnitPhase.TO_RELEASE, reason

    def _forget(self, unit_id: str) -> None:
        self.units.pop(unit_id, None)

    # What time does.

    def _end_timed_out(self, at_s: float) -> None:
        for unit in self.in_phase(UnitPhase.GENERATING):
            if at_s - unit.leased_at_s >= unit.lease.unit.time_bound_s:
                self._stop_and_finish(unit, FinishReason.TIME_BOUND)

    def _leave(self, at_s: float) -> None:
        finish_by_s = self.drains.finish_by_s
        if finish_by_s is None:
            return
        for unit in self.in_phase(UnitPhase.GENERATING):
            if at_s + self.rate.seconds_for(unit.tokens_left) > finish_by_s:
                self._stop(unit)
                self._give_back(unit, ReleaseReason.DRAIN)
        self._exit_when_done(at_s)

    def _exit_when_done(self, at_s: float) -> None:
        give_up_at_s = self.drains.give_up_at_s
        if give_up_at_s is None or self._exited:
            return
        done = self.gone or not self.registered
        if done or at_s >= give_up_at_s:
            self._exited = True
            self._out.append(ev.Exit(handed_over=done))

    # Which ledger call is next.

    def _next_call(self, at_s: float) -> ev.LedgerCall | None:
        if not self.registered:
            return None if self.drains.for_good else ev.Register()
        if self.gone:
            return None
        choices: tuple[Callable[[float], ev.LedgerCall | None], ...] = (
            self._overdue_beat,
            self._releases,
            self._commits,
            self._progress_beat,
            self._lease,
            self._goodbye,
        )
        return next((call for choice in choices if (call := choice(at_s)) is not None), None)

    def _overdue_beat(self, at_s: float) -> ev.LedgerCall | None:
        return self._beat() if at_s - self._beat_at_s >= self.settings.heartbeat_s else None

    def _progress_beat(self, at_s: float) -> ev.LedgerCall | None:
        due = self.settings.publish_progress and any(self._must_publish(unit, at_s) for unit in self.units.values())
        return self._beat() if due else None

    def _must_publish(self, unit: HeldUnit, at_s: float) -> bool:
        if unit.unpublished_since_s is None or not unit.publishable:
            return False
        waited_s = at_s - unit.unpublished_since_s
        return unit.publishable >= self.settings.publish_tokens or waited_s >= self.settings.publish_interval_s

    def _beat(self) -> ev.SendBeats:
        publish = self.settings.publish_progress
        beats = tuple(unit.beat(with_progress=publish) for unit in self.units.values())
        return ev.SendBeats(beats, self.status())

    def _releases(self, at_s: float) -> ev.LedgerCall | None:
        units = self.in_phase(UnitPhase.TO_RELEASE)
        publish = self.settings.publish_progress
        return ev.SendReleases(tuple(unit.release(with_progress=publish) for unit in units)) if units else None

    def _commits(self, at_s: float) -> ev.LedgerCall | None:
        units = self.in_phase(UnitPhase.TO_COMMIT)
        return ev.SendCommits(tuple(unit.commit() for unit in units)) if units else None

    def _lease(self, at_s: float) -> ev.LedgerCall | None:
        free = self.settings.concurrency - len(self.in_phase(UnitPhase.GENERATING))
        if self.drains.active or not self.ready or free <= 0 or at_s < self._lease_at_s:
            return None
        return ev.AskLeases(free)

    def _wait_before_lease(self, at_s: float) -> None:
        settings = self.settings
        self._lease_wait_s = min(max(settings.lease_wait_initial_s, 2 * self._lease_wait_s), settings.lease_wait_max_s)
        self._lease_at_s = at_s + self._lease_wait_s

    def _goodbye(self, at_s: float) -> ev.LedgerCall | None:
        return ev.SayGoodbye() if self.drains.active and not self.units else None

    def _tell(self, event: str, **data: str | int | float) -> None:
        self._out.append(ev.Tell(event, data))
