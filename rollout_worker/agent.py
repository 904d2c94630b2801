"""The agent: carries out what the machine says, and tells it what happened.

One task group owns all tasks: the ledger's calls (one at a time, backing off with jitter while the store is away or its
job is not configured yet), a task a generation, the looks at weights, notice file and engine health, and the passing of
time. A task that dies takes the process down; its leases run out and what was published is continued elsewhere. While
the ledger is away the engine goes on.

Non-goals: decisions (see `machine`), restarts of an engine, several jobs in one process.
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from rollout_worker import events as ev
from rollout_worker import logs
from rollout_worker.engines.base import Engine, EngineError, GenerateRequest, TokenChunk, UnitError
from rollout_worker.ledger_thread import LedgerThread
from rollout_worker.machine import WorkerMachine
from rollout_worker.notices import read_deadline_s
from rollout_worker.token_counter import TokenCounter
from rollout_worker.weights import WeightsFolder
from scaler.ledger.contract import LedgerRefused, LedgerUnavailable
from scaler.model.clock import Clock
from scaler.model.job import WorkerIdentity
from scaler.model.work import PolicyVersion, ReleaseReason

EXIT_HANDED_OVER = 0
EXIT_INPUT_WRONG = 2
EXIT_LEDGER_AWAY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How the agent reaches its world; times in seconds."""

    lease_ttl_s: float = 10.0
    notice_file: Path | None = None
    grace_s: float = 30.0
    """From SIGTERM until SIGKILL: Kubernetes' default."""
    tick_s: float = 0.1
    notice_poll_s: float = 0.2
    weights_poll_s: float = 0.5
    health_poll_s: float = 1.0
    health_timeout_s: float = 5.0
    backoff_max_s: float = 1.0


@dataclass(slots=True, kw_only=True)
class Parts:
    """What an agent is put together from."""

    machine: WorkerMachine
    ledger: LedgerThread
    engine: Engine
    weights: WeightsFolder
    counter: TokenCounter
    clock: Clock


class Agent:
    """See the module's docstring."""

    def __init__(self, identity: WorkerIdentity, settings: AgentSettings, parts: Parts) -> None:
        self._identity = identity
        self._settings = settings
        self._machine = parts.machine
        self._ledger = parts.ledger
        self._engine = parts.engine
        self._weights = parts.weights
        self._counter = parts.counter
        self._clock = parts.clock
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._look_for_weights = asyncio.Event()
        self._exit: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._in_use: PolicyVersion | None = None

    async def run(self) -> int:
        """Work until told to leave; the process's exit code.

        Raises:
            ExceptionGroup: of `LedgerRefused` where the store refuses to be used from the start, of `EngineError` where
                the engine never came up.
        """
        async with self._tasks:
            loops = (self._call_ledger(), self._tend_engine(), self._watch_notice(), self._watch_health(), self._tick())
            for loop in loops:
                self._spawn(loop)
            try:
                handed_over = await self._exit
            finally:
                for task in self._running:
                    task.cancel()
                await self._engine.close()
                self._ledger.close()
        return EXIT_HANDED_OVER if handed_over else EXIT_LEDGER_AWAY

    def drain_on(self, number: signal.Signals) -> None:
        """A signal was received: leave within the grace period."""
        logs.info("signal_received", signal=number.name)
        self._order_drain(ev.DrainSource.SIGNAL, self._clock.monotonic_s() + self._settings.grace_s)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # The machine.

    def _feed(self, event: ev.Event) -> None:
        self._obey(self._machine.handle(event))
        self._wake.set()

    def _obey(self, instructions: Iterable[ev.Instruction]) -> ev.LedgerCall | None:
        """Start what is asked; a ledger call is handed back to the one who makes them."""
        call: ev.LedgerCall | None = None
        for instruction in instructions:
            if isinstance(instruction, ev.LedgerCall):
                call = instruction
            else:
                self._do(instruction)
        return call

    def _do(self, instruction: ev.Generate | ev.Abort | ev.LookForWeights | ev.Tell | ev.Exit) -> None:
        match instruction:
            case ev.Generate(request):
                self._spawn(self._generate(request))
            case ev.Abort(request_id):
                self._spawn(self._abort(request_id))
            case ev.LookForWeights():
                self._look_for_weights.set()
            case ev.Tell(event, data):
                logs.info_from(event, data)
            case ev.Exit(handed_over):
                self._exit.set_result(handed_over)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._settings.tick_s)
            self._feed(ev.Tick(at_s=self._clock.monotonic_s()))
            if self._machine.units:
                self._counter.look(self._machine.unpublished_tokens)

    # The ledger.

    async def _call_ledger(self) -> None:
        back_off = AsyncRetrying(
            retry=retry_if_exception(self._may_pass),
            wait=wait_random_exponential(multiplier=0.1, max=self._settings.backoff_max_s),
            sleep=self._clock.sleep,
            before_sleep=_tell_unavailable,
        )
        while True:
            async for attempt in back_off:
                with attempt:
                    called = await self._next_call()
            if not called:
                await self._wake.wait()

    def _may_pass(self, error: BaseException) -> bool:
        """A store that refuses to be used from the start is a fault of the input; later, or unconfigured yet, it may pass."""
        return isinstance(error, LedgerUnavailable) or (isinstance(error, LedgerRefused) and self._machine.registered)

    async def _next_call(self) -> bool:
        """Make the call that is due now, if any. Asked anew at every attempt: what was due then may not be due now."""
        self._wake.clear()
        sent_at_s = self._clock.monotonic_s()
        call = self._obey(self._machine.handle(ev.LedgerIdle(at_s=sent_at_s)))
        if call is None:
            return False
        self._feed(await self._carry_out(call, sent_at_s))
        return True

    async def _carry_out(self, call: ev.LedgerCall, sent_at_s: float) -> ev.Event:
        worker, ttl_s, ledger = self._identity.worker, self._settings.lease_ttl_s, self._ledger
        now_s = self._clock.monotonic_s
        match call:
            case ev.Register():
                incarnation = await ledger.call(lambda store: store.register(self._identity))
                logs.info("registered", incarnation=incarnation)
                return ev.Registered(at_s=now_s())
            case ev.AskLeases(n):
                reply = await ledger.call(lambda store: store.lease(worker, n, ttl_s))
                return ev.LeasesGranted(at_s=now_s(), sent_at_s=sent_at_s, reply=reply)
            case ev.SendBeats(beats, status):
                control = await ledger.call(lambda store: store.heartbeat(worker, beats, status, ttl_s))
                return ev.BeatsAnswered(at_s=now_s(), sent_at_s=sent_at_s, call=call, control=control)
            case ev.SendCommits(commits):
                outcomes = await ledger.call(lambda store: store.commit(worker, commits))
                return ev.CommitsAnswered(at_s=now_s(), call=call, outcomes=outcomes)
            case ev.SendReleases(releases):
                await ledger.call(lambda store: store.release(worker, releases))
                return ev.ReleasesAnswered(at_s=now_s(), call=call)
            case ev.SayGoodbye():
                await ledger.call(lambda store: store.release_worker(worker, ReleaseReason.DRAIN))
                return ev.GoodbyeAnswered(at_s=now_s())

    # The engine.

    async def _generate(self, request: GenerateRequest) -> None:
        failed = partial(self._generation_failed, request.request_id)
        finished = False
        try:
            async for chunk in self._engine.generate(request):
                self._receive(request.request_id, chunk)
                finished = finished or chunk.finish_reason is not None
        except EngineError as error:
            failed(ReleaseReason.INFRASTRUCTURE, str(error))
        except UnitError as error:
            failed(ReleaseReason.UNIT_FAILURE, str(error))
        else:
            if not finished:
                failed(ReleaseReason.INFRASTRUCTURE, "the stream ended without a finish reason")

    def _receive(self, request_id: str, chunk: TokenChunk) -> None:
        if len(chunk.tokens) != len(chunk.logprobs):
            raise EngineError(f"{len(chunk.tokens)} tokens came with {len(chunk.logprobs)} log-probabilities")
        self._counter.add(len(chunk.tokens))
        self._feed(ev.ChunkReceived(at_s=self._clock.monotonic_s(), request_id=request_id, chunk=chunk))

    def _generation_failed(self, request_id: str, reason: ReleaseReason, error: str) -> None:
        """Heard by the machine only where it did not abort this generation itself."""
        now_s = self._clock.monotonic_s()
        self._feed(ev.GenerationFailed(at_s=now_s, request_id=request_id, reason=reason, error=error))

    async def _abort(self, request_id: str) -> None:
        try:
            await self._engine.abort(request_id)
        except EngineError as error:
            logs.warning("abort_failed", request=request_id, error=str(error))

    async def _tend_engine(self) -> None:
        await self._engine.start()
        while True:
            self._look_for_weights.clear()
            await self._load_newest()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.weights_poll_s):
                    await self._look_for_weights.wait()

    async def _load_newest(self) -> None:
        found = await asyncio.to_thread(self._weights.newest, self._in_use)
        if found is None:
            return
        try:
            await self._engine.load_weights(found.manifest, found.folder)
        except EngineError as error:
            await asyncio.to_thread(self._weights.refuse, found.folder, str(error))
            return
        self._in_use = found.manifest.version
        logs.info("weights_loaded", version=self._in_use.step, digest=self._in_use.digest)
        await self._see_engine()

    async def _watch_health(self) -> None:
        while True:
            await self._see_engine()
            await self._clock.sleep(self._settings.health_poll_s)

    async def _see_engine(self) -> None:
        try:
            # Not wait_for: Python 3.11's loses a cancellation that comes together with the answer.
            async with asyncio.timeout(self._settings.health_timeout_s):
                healthy = await self._engine.healthy()
        except (EngineError, TimeoutError) as error:
            logs.warning("engine_unhealthy", error=repr(error))
            healthy = False
        now_s = self._clock.monotonic_s()
        self._feed(ev.EngineSeen(at_s=now_s, healthy=healthy, version=self._engine.version()))

    # Orders to leave.

    async def _watch_notice(self) -> None:
        path = self._settings.notice_file
        while path is not None:
            try:
                deadline_s = read_deadline_s(path, self._identity.instance_id)
            except ValueError as error:
                logs.warning("notice_unreadable", error=str(error))
            else:
                self._heed_notice(deadline_s)
            await self._clock.sleep(self._settings.notice_poll_s)

    def _heed_notice(self, deadline_s: float | None) -> None:
        if deadline_s is not None:
            left_s = deadline_s - self._clock.now_s()
            self._order_drain(ev.DrainSource.NOTICE, self._clock.monotonic_s() + left_s)

    def _order_drain(self, source: ev.DrainSource, deadline_at_s: float) -> None:
        self._feed(ev.DrainOrdered(at_s=self._clock.monotonic_s(), source=source, deadline_at_s=deadline_at_s))


def _tell_unavailable(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    wait_s = state.next_action.sleep if state.next_action else 0.0
    logs.warning("ledger_unavailable", attempt=state.attempt_number, wait_s=round(wait_s, 3), error=str(error))
