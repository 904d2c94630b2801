"""The loop: observe, decide, persist, act; again after a while, or as soon as something may have changed.

Invariants
* Level-based: every turn starts from complete lists and readings, each with its age; a wake-up carries nothing.
* Nothing is decided before ledger and pools have answered once (`Snapshot.synced`), and before launches that an earlier
  controller left unanswered have been repeated with their tokens.
* A new controller has seen no signal yet: it lowers nothing before they have been fresh to it for as long as configured.
* What a plan needs after a crash is durable before its first command; a dry run writes and does nothing.
* Slow calls run beside the loop, in the task group of the daemon; their death is the daemon's.
Non-goals: judgement, which is `decide`'s, and liveness, which is the health check's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from scaler.act.base import OfferingFacts, PoolActor
from scaler.decide.timing import AFTER_REFUSAL_S
from scaler.interruptions.base import SourceHealth
from scaler.kube.waiting import first_of
from scaler.model.clock import Clock
from scaler.model.interruption import InterruptionNotice
from scaler.model.plan import Memory, Plan
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec
from scaler.observe.assemble import Facts, assemble
from scaler.observe.ledger_watch import LedgerWatch
from scaler.observe.lives import Lives
from scaler.observe.offerings import OfferingMemory, Told
from scaler.observe.replacements import Replacements
from scaler.observe.signals import SignalSource
from scaler.runtime.decisions import decision_json
from scaler.runtime.drain_times import DrainTimes
from scaler.runtime.executor import Executor, World
from scaler.runtime.job_rules import JobRules
from scaler.runtime.journal import Turn, TurnJournal
from scaler.runtime.laps import Laps
from scaler.runtime.leadership import always
from scaler.runtime.marks import Marks, NoMarks, handed_over
from scaler.runtime.pool_watch import PoolWatch
from scaler.telemetry.metrics import Metrics
from scaler.telemetry.readout import Readout

log = structlog.get_logger()

_SHORTEST_WAIT_S = 0.05
"""Between turns, whatever the plan or the wake-ups say: the loop never spins."""
_OLDEST_RATIO = 0.4
"""Of the age at which a list is too old to decide on."""
_FIRST_RETRY_S = 0.25
LONGEST_RETRY_S = 15.0
"""While ledger or pools have not answered yet: doubled from turn to turn."""


class Config(Protocol):
    """The configuration in use; it may be another one at the next turn."""

    @property
    def spec(self) -> FleetSpec:
        """What is decided by."""
        ...

    @property
    def digest(self) -> str:
        """Tells it from other ones."""
        ...


class ActorSource(Protocol):
    """The pools' actors."""

    async def current(self) -> Mapping[str, PoolActor]:
        """By pool, for the configuration in use."""
        ...


class Notices(Protocol):
    """Standing notices, and whoever is to hear what became of them."""

    async def poll(self) -> None:
        """Ask for them."""
        ...

    def current(self) -> tuple[InterruptionNotice, ...]:
        """Every standing notice once, the nearest deadline first."""
        ...

    def health(self) -> Mapping[str, SourceHealth]:
        """How each source does."""
        ...

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """What a crash cannot lose any more: whole sets, every time."""
        ...

    async def drained(self, instance_ids: frozenset[str]) -> None:
        """Where nothing is left to hand over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop is put together from."""

    clock: Clock
    config: Config
    actors: ActorSource
    rules: JobRules
    ledger: LedgerWatch
    signals: Mapping[str, SignalSource]
    """By stage."""
    pools: PoolWatch
    notices: Notices
    offerings: OfferingMemory
    executor: Executor
    journal: TurnJournal
    metrics: Metrics
    leader_epoch: int
    decide: Callable[[Snapshot, FleetSpec, Memory], Plan]
    marks: Marks = field(default_factory=NoMarks)
    """Nodes of replicas that are to go, where there are any."""
    may_act: Callable[[], bool] = always
    """Whether this process still leads: asked right before anything is done."""
    after_turn: Callable[[Readout], None] | None = None
    """Hears of every turn, once what it commands has begun."""
    mustered: Callable[[], Awaitable[None]] | None = None
    """Waited for between the launches that are repeated and the first look at the pools."""


class Controller:
    """See the module's docstring."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lives = Lives(parts.offerings)
        self._replacements = Replacements()
        self._ended: frozenset[str] = frozenset()
        self._drain_times = DrainTimes(parts.metrics)
        self._memory = _without_freshness(parts.journal.memory())
        self._synced = False
        self._turns_unsynced = 0
        self._ledger_told = (False, False)
        self._waits_for: tuple[str | None, tuple[str, ...]] | None = None
        self._seq = 0
        self.wake = asyncio.Event()
        """Set it to start the next turn early."""
        self.refused = asyncio.Event()
        """Set it at a refusal: the next turn starts `AFTER_REFUSAL_S` later at most."""
        parts.pools.late = self.wake.set
        parts.executor.launcher.refused = self.refused.set
        self.readout = Readout(leading=True, leader_epoch=parts.leader_epoch)

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Turn after turn, until cancelled. `StaleEpoch` where a newer controller has taken over."""
        await self.start()
        if self._parts.mustered is not None:
            await self._parts.mustered()
        while True:
            plan = await self.turn(group)
            await self._wait(self._pause_s(plan))

    async def start(self) -> None:
        """Take over what an earlier controller left, and repeat the launches that nobody answered."""
        executor, journal = self._parts.executor, self._parts.journal
        executor.launcher.adopt(journal.intents())
        executor.drainer.adopt(journal.orders())
        self._seq = (await journal.commit(Turn(at_s=self._parts.clock.now_s(), memory=self._memory))).seq
        spec = self._parts.config.spec
        log.info(
            "controller_started",
            fleet=spec.name,
            leader_epoch=self._parts.leader_epoch,
            intents=len(executor.launcher.intents),
            drains=len(executor.drainer.orders),
            dry_run=spec.dry_run,
        )
        if not (spec.dry_run or spec.paused):
            await executor.launcher.replay(await self._parts.actors.current(), self._seq)

    async def turn(self, group: asyncio.TaskGroup) -> Plan:
        """Observe, decide, persist, act."""
        parts, laps = self._parts, Laps(self._parts.clock)
        spec, digest = parts.config.spec, parts.config.digest
        world = await self._observe(group)
        laps.end("observe_s")
        snapshot = self._assemble(spec, world)
        laps.end("assemble_s")
        plan = parts.decide(snapshot, spec, self._memory)
        laps.end("decide_s")
        if not spec.dry_run:
            parts.executor.intend(plan)
        durable = await self._persist(plan, digest)
        laps.end("persist_s")
        self._publish(spec, snapshot, plan, durable=durable)
        parts.metrics.loop_duration.observe(laps.total_s)
        if self._synced and not spec.dry_run and parts.may_act():
            parts.marks.want(spec, snapshot, plan)
            await parts.executor.act(plan, self._seq, world, group, launches=durable and not spec.paused)
            gone = self._lives.surely_gone()
            await parts.notices.recorded(parts.marks.recorded(snapshot, durable=durable) | gone)
            await parts.notices.drained(handed_over(snapshot))
        else:
            parts.marks.rest()
        laps.end("act_s")
        if parts.after_turn is not None:
            parts.after_turn(self.readout)
        laps.end("tell_s")
        log.debug("turn", turn_s=laps.total_s, cpu_s=laps.cpu_s, commands=len(plan.commands), **laps.taken_s)
        return plan

    async def flush(self) -> None:
        """Write what has been answered since the last turn; for the end of the process."""
        self._seq = (await self._parts.journal.commit(self._changes(None))).seq

    async def _observe(self, beside: asyncio.TaskGroup) -> World:
        parts = self._parts
        actors = await parts.actors.current()
        if not parts.ledger.away:
            await parts.rules.apply()  # a store that hangs holds a turn up once, not twice
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.ledger.poll())
            group.create_task(parts.pools.poll(actors, beside, _oldest_s(parts.config.spec)))
            group.create_task(parts.notices.poll())
        for source in set(parts.signals.values()):
            await source.poll()
        self._say_how_the_ledger_does()
        world = World(
            reading=parts.ledger.reading,
            pools=dict(parts.pools.observations),
            actors=actors,
            away=frozenset(parts.pools.failures_in_a_row),
        )
        for pool, told in parts.pools.facts.items():
            parts.offerings.told(pool, {name: _told(facts) for name, facts in told.items()})
        self._lives.listed(world.pools, parts.clock.now_s(), parts.executor.leaving)
        self._ended = parts.executor.ender.ending
        parts.executor.settle(world, parts.config.spec)
        return world

    def _assemble(self, spec: FleetSpec, world: World) -> Snapshot:
        parts, executor, reading = self._parts, self._parts.executor, world.reading
        pools = {pool.name for stage in spec.stages for pool in stage.pools}
        self._synced = self._synced or (reading is not None and pools <= world.pools.keys())
        facts = Facts(
            now_s=parts.clock.now_s(),
            leader_epoch=parts.leader_epoch,
            synced=self._synced,
            pools=world.pools,
            workers=reading.workers if reading else (),
            store_ahead_s=reading.store_ahead_s if reading else 0.0,
            notices=parts.notices.current(),
            intents=executor.launcher.intents,
            orders=executor.drainer.orders,
            ending=executor.ender.ending,
            ended=self._ended,
            ready_since_s=self._lives.ready_since_s,
            signals={stage: source.signals(stage) for stage, source in parts.signals.items()},
            gone=self._lives.gone(),
            workers_since_s=parts.ledger.gapless_since_s(),
        )
        snapshot = assemble(spec, facts, parts.offerings, self._replacements)
        self._lives.seen(snapshot)
        self._drain_times.look(snapshot)
        return snapshot

    async def _persist(self, plan: Plan, digest: str) -> bool:
        """Whether a crash cannot lose what the plan intends."""
        self._memory = plan.memory
        decision = decision_json(plan, digest, self._parts.leader_epoch)
        written = await self._parts.journal.commit(self._changes(decision))
        before, self._seq = self._seq, written.seq
        if self._seq != before:
            log.info(
                "decision",
                decision=self._seq,
                commands=len(plan.commands),
                stages={
                    stage.stage: f"{stage.reason.code}: desired {stage.desired}, observed {stage.observed}"
                    for stage in plan.stages
                },
            )
        return written.durable

    def _changes(self, decision: Mapping[str, object] | None) -> Turn:
        executor = self._parts.executor
        intents, orders = executor.launcher.changes(), executor.drainer.changes()
        return Turn(
            at_s=self._parts.clock.now_s(),
            memory=self._memory,
            intents=intents.put,
            intents_over=intents.over,
            orders=orders.put,
            orders_over=orders.over,
            decision=decision,
            outcomes=executor.outcomes.take(),
        )

    def _publish(self, spec: FleetSpec, snapshot: Snapshot, plan: Plan, *, durable: bool) -> None:
        parts = self._parts
        parts.metrics.decided(plan)
        self.readout = Readout(
            leading=True,
            synced=self._synced,
            leader_epoch=parts.leader_epoch,
            decided_at_s=parts.clock.now_s(),
            decided_at_monotonic_s=parts.clock.monotonic_s(),
            spec=spec,
            snapshot=snapshot,
            plan=plan,
            stats=parts.ledger.reading.stats if parts.ledger.reading else None,
            journal_ok=durable,
            ledger_ok=parts.ledger.last_error is None,
            ledger_refuses=parts.ledger.refuses,
            ledger_errors=parts.ledger.errors,
            ledger_error=parts.ledger.last_error,
            pools_away=dict(parts.pools.failures_in_a_row),
            notices=parts.notices.health(),
        )

    def _say_how_the_ledger_does(self) -> None:
        ledger = self._parts.ledger
        (was_away, refused), self._ledger_told = self._ledger_told, (ledger.away, ledger.refuses)
        if ledger.away and not was_away:
            log.warning("ledger_away", error=ledger.last_error)
        elif ledger.refuses and not refused:
            log.warning("ledger_refuses", error=ledger.last_error)
        elif (was_away or refused) and not (ledger.away or ledger.refuses):
            log.info("ledger_back")

    def _pause_s(self, plan: Plan) -> float:
        spec = self._parts.config.spec
        if self._synced:
            self._turns_unsynced = 0
            return max(_SHORTEST_WAIT_S, min(spec.interval_s, plan.look_again_in_s))
        wait_s = min(LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0**self._turns_unsynced)
        self._turns_unsynced = min(self._turns_unsynced + 1, 16)
        self._say_what_is_waited_for(wait_s)
        return wait_s

    def _say_what_is_waited_for(self, wait_s: float) -> None:
        """Each time while something is away; what a ledger refuses (a job that nobody configured) may stand for days: once."""
        ledger, pools = self._parts.ledger, tuple(sorted(self._parts.pools.failures_in_a_row))
        before, self._waits_for = self._waits_for, (ledger.last_error, pools)
        if self._waits_for == before and not (ledger.away or pools):
            return
        log.info(
            "waiting_for_first_answers",
            ledger=ledger.last_error or "answered",
            pools_away=list(pools),
            again_in_s=wait_s,
        )

    async def _wait(self, seconds: float) -> None:
        await first_of(self._parts.clock.sleep(seconds), self.wake.wait(), self._after_refusal())
        self.wake.clear()
        self.refused.clear()

    async def _after_refusal(self) -> None:
        await self.refused.wait()
        await self._parts.clock.sleep(AFTER_REFUSAL_S)


def _oldest_s(spec: FleetSpec) -> float:
    """How old a list may be when the next is there: the loop may come an interval later, and is then to decide on it."""
    max_age_s = min((stage.guard_rails.signal_max_age_s for stage in spec.stages), default=0.0)
    return min(_OLDEST_RATIO * max_age_s, max_age_s - spec.interval_s)


def _told(facts: OfferingFacts) -> Told:
    return Told(price_usd_per_h=facts.price_usd_per_h, refused_at_s=facts.refused_at_s, refusals=facts.refusals)


def _without_freshness(memory: Memory) -> Memory:
    """Nobody looked at the signals while no controller ran, so nobody can say that they were fresh."""
    return replace(memory, stages=tuple((name, replace(stage, fresh_since_s=None)) for name, stage in memory.stages))
