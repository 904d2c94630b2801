"""A small fleet and the world around it: specification, pool, ledger and notices that behave, without processes or disks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from scaler.act.base import (
    Instance,
    InstanceState,
    LaunchOutcome,
    LaunchResult,
    OfferingFacts,
    PoolObservation,
    PoolUnavailable,
)
from scaler.interruptions.base import SourceHealth, Unacknowledged
from scaler.ledger.contract import Ledger, LedgerRefused, LedgerUnavailable, StaleEpoch
from scaler.model.capacity import CapacityType, Offering
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.job import (
    DrainMark,
    JobSettings,
    LedgerStats,
    Phase,
    TokenCounts,
    TrainerReport,
    WorkerIdentity,
    WorkerRecord,
    WorkerStatus,
)
from scaler.model.plan import (
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    Memory,
    Plan,
    Reason,
    ReasonCode,
    StagePlan,
    TerminateReplica,
)
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from scaler.model.work import ReleaseReason
from tests.builders.clock import FakeClock

T = TypeVar("T")

OFFERING = Offering(instance_type="g", zone="z1", capacity_type=CapacityType.SPOT, price_usd_per_h=1.0)
WHY = Reason(code=ReasonCode.SIZE_UP, message="a test says so")


def a_spec(*, dry_run: bool = False, paused: bool = False, interval_s: float = 10.0) -> FleetSpec:
    """One stage, one pool, one offering."""
    policy = PolicySpec(name="static", params=None)
    pool = PoolSpec(name="pool", provider="fake", offerings=(OFFERING,))
    rails = GuardRails(min_replicas=0, max_replicas=100, max_spend_usd_per_h=1000.0)
    stage = StageSpec(name="rollout", sizing=policy, placement=policy, guard_rails=rails, pools=(pool,))
    return FleetSpec(name="fleet", stages=(stage,), dry_run=dry_run, paused=paused, interval_s=interval_s)


def a_launch(token: str = "fleet.rollout.1") -> LaunchReplica:
    """One replica more."""
    return LaunchReplica(token=token, stage="rollout", pool="pool", offering_id=OFFERING.offering_id, reason=WHY)


def a_drain(instance_id: str, deadline_s: float, *, notice: InterruptionNotice | None = None) -> DrainReplica:
    """The replica of an instance hands over."""
    code = ReasonCode.NOTICE if notice else ReasonCode.SIZE_DOWN
    return DrainReplica(
        stage="rollout",
        pool="pool",
        replica_id=replica_of(instance_id),
        worker=worker_of(instance_id),
        instance_ids=(instance_id,),
        deadline_s=deadline_s,
        reason=replace(WHY, code=code),
        notice=notice,
    )


def an_end(instance_id: str) -> TerminateReplica:
    """The replica of an instance ends."""
    return TerminateReplica(
        stage="rollout", pool="pool", replica_id=replica_of(instance_id), instance_ids=(instance_id,), reason=WHY
    )


def a_notice(instance_id: str, at_s: float, *, kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION) -> InterruptionNotice:
    """It goes in two minutes."""
    return InterruptionNotice(instance_id=instance_id, kind=kind, noticed_at_s=at_s, deadline_s=at_s + 120)


def an_instance(instance_id: str, *, state: InstanceState = InstanceState.RUNNING, token: str = "") -> Instance:
    """An instance of the pool."""
    return Instance(
        instance_id=instance_id,
        replica_id=replica_of(instance_id),
        offering_id=OFFERING.offering_id,
        state=state,
        launched_at_s=999_000.0,
        launch_token=token or f"token-of-{instance_id}",
    )


def a_worker(
    instance_id: str,
    *,
    ready: bool = True,
    leases: int = 0,
    drain: DrainMark | None = None,
    gone: bool = False,
    committed: int = 0,
    running: int | None = None,
    capacity: int = 4,
) -> WorkerRecord:
    """The worker on an instance, as the ledger knows it."""
    return WorkerRecord(
        identity=WorkerIdentity(
            worker=worker_of(instance_id), replica_id=replica_of(instance_id), instance_id=instance_id
        ),
        incarnation=1,
        registered_at_s=0.0,
        last_seen_at_s=0.0,
        status=WorkerStatus(
            ready=ready, capacity_units=capacity, running_units=leases if running is None else running, version=3
        ),
        drain=drain,
        leases=leases,
        committed_samples=committed,
        gone=gone,
    )


def replica_of(instance_id: str) -> str:
    """The replica that runs on an instance."""
    return f"r-{instance_id}"


def worker_of(instance_id: str) -> str:
    """The worker that runs on an instance."""
    return f"w-{instance_id}"


def some_stats(at_s: float, **changes: object) -> LedgerStats:
    """A job in the middle of its life."""
    stats = LedgerStats(
        at_s=at_s,
        store_epoch=1,
        pending=100,
        backing_off=0,
        running=8,
        buffered=16,
        ready_groups=4,
        admissible=4,
        consumed=32,
        accepted=32,
        dead_lettered=0,
        dropped={},
        tokens=TokenCounts(committed=500, salvaged=20, discarded=3),
        interruptions_salvaged=2,
        oldest_ready_age_s=2.5,
        version=3,
        trainer_epoch=1,
        trainer=TrainerReport(
            step=3, unblocked_samples_per_s=2.0, phase=Phase.TRAIN, phase_s={Phase.TRAIN: 4.0}, wait_ratio=0.25
        ),
        trainer_at_s=at_s - 4.0,
        settings=JobSettings(group_size=4, batch_groups=2),
    )
    return replace(stats, **changes)  # type: ignore[arg-type]


@dataclass
class FakeLedger:
    """The part of a ledger that the controller talks to. Its clock is `ahead_s` ahead of ours."""

    clock: FakeClock
    ahead_s: float = 0.0
    away: bool = False
    refuses: str | None = None
    changes: dict[str, object] = field(default_factory=dict)
    records: dict[str, WorkerRecord] = field(default_factory=dict)
    settings: list[JobSettings] = field(default_factory=list)
    epoch: int = 0
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def put(self, *workers: WorkerRecord) -> None:
        """Workers register, or report."""
        self.records |= {worker.identity.worker: worker for worker in workers}

    def configure(self, settings: JobSettings) -> None:
        self._answer()
        self.settings.append(settings)

    def stats(self) -> LedgerStats:
        self._answer()
        return some_stats(self.clock.now_s() + self.ahead_s, **self.changes)

    def workers(self) -> tuple[WorkerRecord, ...]:
        self._answer()
        return tuple(self.records.values())

    def drain(self, worker: str, deadline_s: float, reason: str, epoch: int) -> bool:
        self._answer(epoch)
        self.calls.append(("drain", worker, deadline_s, reason))
        record = self.records.get(worker)
        if record is None or record.gone:
            return False
        if record.drain is None or deadline_s < record.drain.deadline_s:
            mark = DrainMark(deadline_s=deadline_s, reason=reason, epoch=epoch)
            self.records[worker] = replace(record, drain=mark)
        return True

    def undrain(self, worker: str, epoch: int) -> bool:
        self._answer(epoch)
        if worker:  # else only the epoch is told
            self.calls.append(("undrain", worker))
        record = self.records.get(worker)
        if record is None or record.drain is None:
            return False
        self.records[worker] = replace(record, drain=None)
        return True

    def release_worker(self, worker: str, reason: ReleaseReason, epoch: int | None = None) -> int:
        self._answer(epoch or 0)
        self.calls.append(("release", worker, reason))
        record = self.records.get(worker)
        if record is None:
            return 0
        self.records[worker] = replace(record, gone=True, leases=0)
        return record.leases

    def _answer(self, epoch: int | None = None) -> None:
        if self.away:
            raise LedgerUnavailable("away")
        if self.refuses is not None:
            raise LedgerRefused(self.refuses)
        if epoch is not None:
            if epoch < self.epoch:
                raise StaleEpoch(f"epoch {epoch} < {self.epoch}")
            self.epoch = epoch


@dataclass
class InlineCalls:
    """`LedgerCalls` without a thread."""

    ledger: FakeLedger

    async def call(self, job: Callable[[Ledger], T], time_out_s: float | None = None) -> T:
        return job(cast("Ledger", self.ledger))


@dataclass
class FakePool:
    """A pool that launches once a token, ends what is named, and can be away, refuse or answer late."""

    clock: FakeClock
    instances: dict[str, Instance] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    launches: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    detached: list[DetachReplica] = field(default_factory=list)
    away: bool = False
    lose_answers: bool = False
    """Launch, and let the answer get lost."""
    refuse: LaunchResult | None = None
    lags: bool = False
    """Lists show nothing of what was launched lately: nothing at all."""

    def put(self, *instances: Instance) -> None:
        """Instances that are there."""
        self.instances |= {instance.instance_id: instance for instance in instances}

    async def observe(self) -> PoolObservation:
        self._answer()
        return PoolObservation(
            listed_at_s=self.clock.now_s(), instances=() if self.lags else tuple(self.instances.values())
        )

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        self._answer()
        self.launches.append(command.token)
        if command.token in self.tokens:
            return LaunchOutcome(result=LaunchResult.ALREADY, instance_id=self.tokens[command.token])
        if self.refuse is not None:
            return LaunchOutcome(result=self.refuse, message="no")
        instance_id = f"i-{len(self.tokens) + 1}"
        self.tokens[command.token] = instance_id
        self.put(an_instance(instance_id, token=command.token))
        if self.lose_answers:
            raise PoolUnavailable("connection reset")
        return LaunchOutcome(result=LaunchResult.LAUNCHED, instance_id=instance_id)

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        """As `PoolActor`."""
        self.detached.append(command)
        return command.instance_ids

    def facts(self) -> Mapping[str, OfferingFacts]:
        """As `PoolActor`."""
        return {}

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        self._answer()
        ended = tuple(each for each in command.instance_ids if self.instances.pop(each, None))
        self.ended += ended
        return ended

    async def close(self) -> None:
        return

    def _answer(self) -> None:
        if self.away:
            raise PoolUnavailable("away")


@dataclass
class FakeNotices(Unacknowledged):
    """A notice source that tells what it is given."""

    clock: FakeClock
    notices: tuple[InterruptionNotice, ...] = ()
    broken: bool = False
    let_go: frozenset[str] = frozenset()

    async def current(self) -> tuple[InterruptionNotice, ...]:
        if self.broken:
            raise RuntimeError("broken")
        return self.notices

    async def changed(self) -> None:
        known = self.notices
        while self.notices == known:
            await self.clock.sleep(0.2)

    async def recorded(self, instance_ids: frozenset[str]) -> None:
        """As `NoticeSource`."""
        self.let_go |= instance_ids

    def health(self) -> SourceHealth:
        return SourceHealth(answered_at_s=self.clock.now_s(), received=len(self.notices), malformed=1)


@dataclass
class Script:
    """A decision engine that says what it is told, turn by turn, and keeps what it was shown."""

    plans: list[tuple[Command, ...]] = field(default_factory=list)
    seen: list[Snapshot] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> Plan:
        self.seen.append(snapshot)
        self.memories.append(memory)
        commands = self.plans.pop(0) if self.plans and snapshot.synced else ()
        launches = sum(isinstance(command, LaunchReplica) for command in commands)
        sizes = StagePlan(
            stage="rollout", desired=1, requested=1, observed=1, ready=0, policy="script",
            reason=replace(WHY, code=ReasonCode.STEADY),
        )  # fmt: skip
        return Plan(
            commands=commands,
            look_again_in_s=spec.interval_s,
            stages=(sizes,),
            memory=replace(memory, next_intent=memory.next_intent + launches),
        )
