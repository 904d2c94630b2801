"""Worker processes: the production machine, an engine of keyed tokens, and a driver that can be killed between any two calls."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from rollout_worker import events as ev
from rollout_worker.engines.base import TokenChunk
from rollout_worker.held import HeldUnit, UnitPhase
from rollout_worker.machine import MachineSettings, WorkerMachine
from scaler.ledger.contract import LedgerError
from scaler.model.job import WorkerIdentity
from scaler.model.work import FinishReason, ReleaseReason, WorkUnit
from tests.faults.model_text import expected_tokens, full_length, token_at
from tests.faults.store import Store
from tests.faults.virtual_loop import VirtualLoop
from tests.faults.watch import Watch

LEASE_S = 14.0
_CALLS_A_STEP = 6
_SETTINGS = MachineSettings(
    concurrency=2,
    heartbeat_s=4.0,
    publish_tokens=4,
    publish_interval_s=4.0,
    drain_margin_s=10.0,
    lease_wait_initial_s=2.0,
    lease_wait_max_s=8.0,
)


@dataclass(slots=True)
class EngineTroubles:
    """Shares of steps and calls that go wrong, and how fast engines are."""

    infrastructure: float = 0.0
    slow_call: float = 0.0
    speed: int = 1
    """How many times as fast as usual engines are."""


def is_poisoned(unit: WorkUnit) -> bool:
    """Whether generating it always fails, by its own fault."""
    return token_at(unit.seed, 999_983) < 3


class WorkerProcess:
    """One process. It works in steps of some seconds; whatever it knows is gone when it is killed."""

    def __init__(
        self,
        identity: WorkerIdentity,
        number: int,
        *,
        loop: VirtualLoop,
        store: Store,
        random: Random,
        watch: Watch,
        newest_version: Callable[[], int | None],
        troubles: EngineTroubles,
        exited: Callable[["WorkerProcess"], None],
    ) -> None:
        self.identity = identity
        self.client = f"{identity.worker}#{number}"
        self._loop = loop
        self._ledger = store.client(self.client)
        self._random = random
        self._watch = watch
        self._newest_version = newest_version
        self._troubles = troubles
        self._exited = exited
        self.machine = WorkerMachine(_SETTINGS)
        self._running: set[str] = set()
        self._late_answer: ev.Event | None = None
        self._loaded: int | None = None
        self.sleeps_until_s = 0.0
        self.troubled_s = float("-inf")
        """When a call last failed, or was slow."""
        self.drain_heard_s: float | None = None
        self.alive = True
        self._timer: asyncio.TimerHandle = loop.call_later(random.uniform(0.5, 3.0), self._step)

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        self._timer.cancel()

    def order(self, source: ev.DrainSource, in_s: float) -> None:
        """A signal, or the notice on its node."""
        if self.alive:
            now_s = self._loop.time()
            self._hear(ev.DrainOrdered(at_s=now_s, source=source, deadline_at_s=now_s + in_s))

    def hear_notice(self, deadline_s: float) -> None:
        """The notice file on its node, with a deadline on the loop's clock."""
        self.order(ev.DrainSource.NOTICE, deadline_s - self._loop.time())

    def hear_sigterm(self, grace_s: float) -> None:
        """SIGTERM."""
        self.order(ev.DrainSource.SIGNAL, grace_s)

    def failed_to_hand_over(self, within_s: float) -> list[str]:
        """Units it still holds although it was told to leave long enough ago, and nothing kept it from doing so."""
        now_s = self._loop.time()
        heard_s = now_s if self.drain_heard_s is None else self.drain_heard_s
        hindered_s = max(self.troubled_s, self.sleeps_until_s, heard_s)
        return list(self.machine.units) if now_s - hindered_s > within_s else []

    def _step(self) -> None:
        now_s = self._loop.time()
        self._timer = self._loop.call_later(self._random.uniform(3.0, 4.5), self._step)
        if now_s < self.sleeps_until_s:
            return
        self._load_weights(now_s)
        self._generate(now_s)
        self._hear(ev.Tick(at_s=now_s))
        self._call_ledger(now_s)
        self._check()

    def _load_weights(self, now_s: float) -> None:
        newest = self._newest_version()
        if newest is not None and newest != self._loaded and self._random.random() < 0.7:
            self._loaded = newest
            self._hear(ev.EngineSeen(at_s=now_s, healthy=True, version=newest))

    # --- the engine -------------------------------------------------------------------------------------------------

    def _generate(self, now_s: float) -> None:
        for unit in self.machine.in_phase(UnitPhase.GENERATING):
            reason = self._failure(unit.lease.unit)
            if reason is not None:
                self._running.discard(unit.request_id)
                failed = ev.GenerationFailed(at_s=now_s, request_id=unit.request_id, reason=reason, error="it failed")
                self._hear(failed)
            else:
                self._advance(unit, now_s)

    def _failure(self, unit: WorkUnit) -> ReleaseReason | None:
        if is_poisoned(unit):
            return ReleaseReason.UNIT_FAILURE
        if self._random.random() < self._troubles.infrastructure:
            return ReleaseReason.INFRASTRUCTURE
        return None

    def _advance(self, unit: HeldUnit, now_s: float) -> None:
        asked = unit.lease.unit
        start, length = len(unit.tokens), full_length(asked)
        end = max(start, min(length, start + self._troubles.speed * self._random.randint(1, 5)))
        finish = None
        if end >= length:
            finish = FinishReason.TOKEN_BOUND if end >= asked.max_tokens else FinishReason.STOP
            self._running.discard(unit.request_id)
        tokens = expected_tokens(asked.seed, end)[start:]
        chunk = TokenChunk(
            tokens=tokens, logprobs=(-1.0,) * len(tokens), version=self.machine.version or 0, finish_reason=finish
        )
        self._hear(ev.ChunkReceived(at_s=now_s, request_id=unit.request_id, chunk=chunk))

    # --- the machine ------------------------------------------------------------------------------------------------

    def _hear(self, event: ev.Event) -> ev.LedgerCall | None:
        call: ev.LedgerCall | None = None
        for instruction in self.machine.handle(event):
            match instruction:
                case ev.Generate(request):
                    self._running.add(request.request_id)
                case ev.Abort(request_id):
                    self._running.discard(request_id)
                case ev.Exit():
                    self._exit()
                case ev.LookForWeights() | ev.Tell():
                    pass
                case _:
                    call = instruction
        if self.machine.drains.active and self.drain_heard_s is None:
            self.drain_heard_s = self._loop.time()
        return call

    def _exit(self) -> None:
        self.kill()
        self._watch.event("exits", self.identity.worker)
        self._exited(self)

    def _check(self) -> None:
        """Generating exactly what the engine generates, and no unit past its bound or with holes."""
        generating = {unit.request_id for unit in self.machine.in_phase(UnitPhase.GENERATING)}
        if self.alive and generating != self._running:
            self._watch.broke("worker", f"{self.client} believes in {generating}, its engine runs {self._running}")
        for unit in self.machine.units.values():
            if tuple(unit.tokens) != expected_tokens(unit.lease.unit.seed, len(unit.tokens)):
                self._watch.broke("worker", f"{unit.request_id}: tokens lost or doubled")

    # --- the ledger -------------------------------------------------------------------------------------------------

    def _call_ledger(self, now_s: float) -> None:
        if self._late_answer is not None:
            answer, self._late_answer = self._late_answer, None
            self._hear(answer)
        for _ in range(_CALLS_A_STEP):
            call = self._hear(ev.LedgerIdle(at_s=now_s)) if self.alive else None
            if call is None:
                return
            try:
                answer = self._carry_out(call, now_s)
            except LedgerError:
                self.troubled_s = now_s
                return
            if self._random.random() < self._troubles.slow_call:
                self._late_answer, self.troubled_s = answer, now_s
                return
            self._hear(answer)

    def _carry_out(self, call: ev.LedgerCall, now_s: float) -> ev.Event:
        worker, ledger = self.identity.worker, self._ledger
        match call:
            case ev.Register():
                ledger.register(self.identity)
                return ev.Registered(at_s=now_s)
            case ev.AskLeases(n):
                reply = ledger.lease(worker, n, LEASE_S)
                return ev.LeasesGranted(at_s=now_s, sent_at_s=now_s, reply=reply)
            case ev.SendBeats(beats, status):
                control = ledger.heartbeat(worker, beats, status, LEASE_S)
                return ev.BeatsAnswered(at_s=now_s, sent_at_s=now_s, call=call, control=control)
            case ev.SendCommits(commits):
                return ev.CommitsAnswered(at_s=now_s, call=call, outcomes=ledger.commit(worker, commits))
            case ev.SendReleases(releases):
                ledger.release(worker, releases)
                return ev.ReleasesAnswered(at_s=now_s, call=call)
            case ev.SayGoodbye():
                ledger.release_worker(worker, ReleaseReason.DRAIN)
                return ev.GoodbyeAnswered(at_s=now_s)
