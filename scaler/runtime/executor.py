"""Carries plans out: the ledger's drains before anything slower, launches and ends beside the loop.

Invariants: whatever fails, the other commands of the plan are carried out; no command waits for another node. What the
plan intends is remembered (`intend`) and journalled by the caller before `act` is called.
Non-goals: judgement. What may not be done now is not done, and the next plan says what to do about that.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from scaler.act.base import PoolActor, PoolObservation
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    Plan,
    Reason,
    ReasonCode,
    ReleaseReplicaWork,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.spec import FleetSpec
from scaler.observe.drain_orders import DrainOrder
from scaler.observe.ledger_watch import LedgerReading
from scaler.runtime.drainer import Drainer
from scaler.runtime.ender import Ender
from scaler.runtime.launcher import Launcher
from scaler.runtime.outcomes import Outcome, Outcomes

C = TypeVar("C", bound=Command)


def no_objection(_: Command) -> str | None:
    """Where there are no trainers to be touched."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What commands are checked against: the reading and the lists that the decision was made on."""

    reading: LedgerReading | None
    pools: Mapping[str, PoolObservation]
    actors: Mapping[str, PoolActor]
    away: frozenset[str] = frozenset()
    """Pools whose last list failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """See the module's docstring."""

    launcher: Launcher
    drainer: Drainer
    ender: Ender
    outcomes: Outcomes
    objection: Callable[[Command], str | None] = no_objection
    """What speaks against a command that names a trainer's: it is not even intended."""

    @property
    def leaving(self) -> frozenset[str]:
        """Replicas that have been told to go and may not show it yet."""
        return self.ender.ending | self.drainer.orders.keys()

    def settle(self, world: World, spec: FleetSpec) -> None:
        """Let go of what the world shows to be done."""
        specs = {pool.name: pool for stage in spec.stages for pool in stage.pools}
        # What is older is too old to decide on; between turns there is no list.
        apart_s = max((spec.interval_s, *(stage.guard_rails.signal_max_age_s for stage in spec.stages)))
        self.launcher.settle(world.pools, specs, away=world.away, lists_apart_s=apart_s)
        self.drainer.settle(world.reading, world.pools)
        self.ender.settle(world.pools)

    def intend(self, plan: Plan) -> None:
        """Remember what must outlive a crash from now on."""
        allowed = [command for command in plan.commands if self.objection(command) is None]
        self.launcher.intend(_only(allowed, LaunchReplica))
        self.drainer.order(_only(allowed, DrainReplica))

    async def act(self, plan: Plan, seq: int, world: World, group: asyncio.TaskGroup, *, launches: bool) -> None:
        """Carry the plan of decision `seq` out; returns when the ledger has been told and the rest has begun.

        No launch is called for unless `launches`: a paused fleet launches nothing, and neither does one whose journal
        could not be written.
        """
        commands = self._allowed(plan.commands, seq)
        self._withdraw_launches()
        await self.drainer.announce()
        self.drainer.expect(_only(commands, DrainReplica), seq)
        await self.drainer.mark(world.reading, held=self._held())
        await self.drainer.undrain(_only(commands, UndrainReplica), seq)
        await self.drainer.release(_only(commands, ReleaseReplicaWork), seq)
        ends = _only(commands, TerminateReplica)
        self._forget([command for command in ends if not command.instance_ids], seq)
        self.ender.detach(_only(commands, DetachReplica), seq, group, world.actors)
        if launches:
            self.launcher.start(group, world.actors, seq)
        named = [command for command in ends if command.instance_ids]
        await self.ender.start(named, seq, group, world.actors, world.pools)

    def _allowed(self, commands: Iterable[Command], seq: int) -> list[Command]:
        allowed = []
        for command in commands:
            objection = self.objection(command)
            if objection is None:
                allowed.append(command)
            else:
                self.outcomes.record(command, seq, Outcome.PRECONDITION, objection)
        return allowed

    def _withdraw_launches(self) -> None:
        """What is learnt of trainers after a launch was intended holds for it too."""
        for intent in self.launcher.unanswered:
            if self.objection(intent.command) is not None:
                self.launcher.forget(intent.token)

    def _held(self) -> frozenset[str]:
        """Replicas whose order to drain waits, since something speaks against it now."""
        orders = self.drainer.orders.items()
        return frozenset(replica_id for replica_id, order in orders if self.objection(_command_of(order)) is not None)

    def _forget(self, requests: Iterable[TerminateReplica], seq: int) -> None:
        """Before launches are called for: a request that is given up is not repeated."""
        for request in requests:
            forgotten = self.launcher.forget(request.replica_id)
            outcome = Outcome.DONE if forgotten else Outcome.ALREADY
            self.outcomes.record(request, seq, outcome, "request forgotten")


def _command_of(order: DrainOrder) -> DrainReplica:
    reason = Reason(code=ReasonCode.NOTICE, message=order.reason)
    return DrainReplica(
        stage=order.stage,
        pool=order.pool,
        replica_id=order.replica_id,
        worker=None,
        instance_ids=order.instance_ids,
        deadline_s=order.deadline_s,
        reason=reason,
    )


def _only(commands: Iterable[Command], kind: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]
