"""Ends replicas, and lets noticed ones leave their groups.

Ended is only what is still listed, still the same, holds no lease now, and can get none: drained, or never there.

Invariants: the ledger is asked again right before; a store that is away means that nothing is ended. A replica that is
being ended shows as TERMINATING from the call on, so that it is neither counted nor ended twice. Leaving a group ends
nothing, so it asks nobody: what it names is noticed, and is at most moved out of a count.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from scaler.act.base import NotYet, PoolActor, PoolObservation, PoolUnavailable
from scaler.ledger.contract import Ledger, LedgerError
from scaler.model.clock import Clock
from scaler.model.job import WorkerRecord
from scaler.model.plan import DetachReplica, TerminateReplica
from scaler.observe.ledger_watch import LedgerCalls
from scaler.runtime.leadership import always
from scaler.runtime.outcomes import Outcome, Outcomes

log = structlog.get_logger()

_AT_ONCE = 32
"""Calls in flight; providers throttle beyond some tens a second."""
_SHOWS_WITHIN_S = 60.0
"""An instance that is still listed as running this long after it was ended was not ended: it may be named again."""


class Ender:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        clock: Clock,
        calls: LedgerCalls,
        outcomes: Outcomes,
        time_out_s: float = 30.0,
        may_act: Callable[[], bool] = always,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._outcomes = outcomes
        self._time_out_s = time_out_s
        self._may_act = may_act
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._in_flight: set[str] = set()
        self._leaving: set[str] = set()
        self._ended_at_s: dict[str, float] = {}

    @property
    def ending(self) -> frozenset[str]:
        """Replicas whose end is under way."""
        return frozenset(self._in_flight | self._ended_at_s.keys())

    def settle(self, pools: Mapping[str, PoolObservation]) -> None:
        """Forget what is gone, and what should be and is not."""
        listed = {instance.replica_id for pool in pools.values() for instance in pool.instances}
        now_s = self._clock.now_s()
        self._ended_at_s = {
            replica_id: at_s
            for replica_id, at_s in self._ended_at_s.items()
            if replica_id in listed and now_s - at_s <= _SHOWS_WITHIN_S
        }

    async def start(
        self,
        commands: Sequence[TerminateReplica],
        seq: int,
        group: asyncio.TaskGroup,
        actors: Mapping[str, PoolActor],
        pools: Mapping[str, PoolObservation],
    ) -> None:
        """Check each command against the ledger and the lists, and start what passes; waits only for the ledger."""
        due = [command for command in commands if command.replica_id not in self._in_flight]
        if not due:
            return
        try:
            workers = await self._calls.call(_workers)
        except LedgerError as error:
            for command in due:
                self._outcomes.record(command, seq, Outcome.UNAVAILABLE, repr(error))
            return
        for command in due:
            objection = _objection(command, pools.get(command.pool), workers)
            if objection or command.pool not in actors:
                self._outcomes.record(command, seq, Outcome.PRECONDITION, objection or "its pool is gone")
                continue
            self._in_flight.add(command.replica_id)
            group.create_task(self._end(command, seq, actors[command.pool]))

    def detach(
        self, commands: Iterable[DetachReplica], seq: int, group: asyncio.TaskGroup, actors: Mapping[str, PoolActor]
    ) -> None:
        """Let noticed replicas leave their groups; returns at once."""
        for command in commands:
            if command.pool in actors and command.replica_id not in self._leaving:
                self._leaving.add(command.replica_id)
                group.create_task(self._detach(command, seq, actors[command.pool]))

    async def _end(self, command: TerminateReplica, seq: int, actor: PoolActor) -> None:
        try:
            ended = await self._call(command, seq, lambda: actor.terminate(command))
            if ended:
                self._ended_at_s[command.replica_id] = self._clock.now_s()
        finally:
            self._in_flight.discard(command.replica_id)

    async def _detach(self, command: DetachReplica, seq: int, actor: PoolActor) -> None:
        try:
            await self._call(command, seq, lambda: actor.detach(command))
        finally:
            self._leaving.discard(command.replica_id)

    async def _call(
        self, command: TerminateReplica | DetachReplica, seq: int, call: Callable[[], Awaitable[tuple[str, ...]]]
    ) -> tuple[str, ...]:
        """The instances that it was done to; whatever fails is an outcome, and comes again by level."""
        try:
            async with self._slots, asyncio.timeout(self._time_out_s):
                if not self._may_act():
                    return ()
                done = await call()
        except NotYet as wait:
            self._outcomes.record(command, seq, Outcome.WAITING, str(wait))
        except (PoolUnavailable, TimeoutError, OSError) as error:
            self._outcomes.record(command, seq, Outcome.UNAVAILABLE, repr(error))
        except Exception as error:
            log.exception("pool_adapter_broken", pool=command.pool)
            self._outcomes.record(command, seq, Outcome.BROKEN, repr(error))
        else:
            self._outcomes.record(command, seq, Outcome.DONE if done else Outcome.ALREADY, ", ".join(done))
            return done
        return ()


def _objection(command: TerminateReplica, pool: PoolObservation | None, workers: Iterable[WorkerRecord]) -> str | None:
    """What speaks against ending a replica now; None: nothing."""
    listed = () if pool is None else pool.instances
    ours = {instance.instance_id for instance in listed if instance.replica_id == command.replica_id}
    if not ours.issuperset(command.instance_ids):
        return "not in the pool's list any more"
    for worker in workers:
        if worker.identity.instance_id not in command.instance_ids or worker.gone:
            continue
        if worker.leases:
            return f"its worker holds {worker.leases} leases"
        if worker.drain is None:
            return "its worker has registered and was not told to drain"
    return None


def _workers(ledger: Ledger) -> tuple[WorkerRecord, ...]:
    return ledger.workers()
