"""A group of instances that refills itself, the production controller on it, and two hundred notices: who ends up with how many?

`RefillingGroup` is a pool whose count falls only by what is ended with decrement or detached; whatever else goes, it replaces by
itself after a while, as an Auto Scaling group does. Workers register some time after their instance, and hand over in seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from policies import cheapest_available, static
from scaler.act.base import LaunchOutcome, PoolUnavailable
from scaler.decide import decide
from scaler.decide.invariants import check_plan
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import DetachReplica, LaunchReplica, Memory, Plan, TerminateReplica
from scaler.model.pool import Instance
from scaler.model.snapshot import Snapshot
from scaler.model.spec import Duties, FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from tests.builders.clock import FakeClock
from tests.builders.controller import Running, World, a_controller
from tests.builders.fleet import OFFERING, FakeLedger, FakePool, Script, a_worker, an_instance

BOOTS_IN_S = 20.0
HANDS_OVER_IN_S = 8.0
REBALANCED_ENDS_IN_S = 45.0
"""From the launch of its replacement: that has to be Ready, and its pods are evicted before."""


@dataclass
class RefillingGroup(FakePool):
    """See the module's docstring. `early`: noticed ones are replaced at once, as a managed node group does."""

    ledger: FakeLedger | None = None
    random: Random = field(default_factory=lambda: Random(7))
    early: bool = False
    loss: float = 0.0
    """Share of calls that fail, half of them having been carried out."""
    desired: int = 0
    came_by_themselves: int = 0
    noticed: dict[str, InterruptionNotice] = field(default_factory=dict)
    ended_at_work: list[str] = field(default_factory=list)
    """Rebalanced instances whose worker had not handed over two minutes after the group had begun to end them."""
    _rebalances_at_s: dict[str, float] = field(default_factory=dict)
    _replaced_ends_at_s: dict[str, float] = field(default_factory=dict)
    _ready_at_s: dict[str, float] = field(default_factory=dict)
    _refills_at_s: list[float] = field(default_factory=list)
    _made: int = 0

    def fill(self, count: int) -> None:
        """So many instances, all at work."""
        self.desired += count
        for _ in range(count):
            self._start(token="", ready_in_s=0.0)
        self.step()

    def raised(self, by: int) -> None:
        """Somebody else writes a larger size."""
        self.desired += by
        for _ in range(by):
            self._start(token="", ready_in_s=1e6)

    def _start(self, token: str, ready_in_s: float = BOOTS_IN_S) -> Instance:
        self._made += 1
        made = an_instance(f"g{self._made}", token=token)
        instance = replace(made, launched_at_s=self.clock.now_s(), launch_token=token)
        self.put(instance)
        self._ready_at_s[instance.instance_id] = self.clock.now_s() + ready_in_s
        return instance

    async def launch(self, command: LaunchReplica) -> LaunchOutcome:
        before = len(self.tokens)
        self._fail_before()
        outcome = await super().launch(command)
        if len(self.tokens) > before:
            self.desired += 1
            del self.instances[self.tokens[command.token]]
            self.tokens[command.token] = self._start(command.token).instance_id
        self._fail_after()
        return replace(outcome, instance_id=self.tokens.get(command.token))

    async def detach(self, command: DetachReplica) -> tuple[str, ...]:
        self._fail_before()
        left = tuple(each for each in command.instance_ids if each in self.instances and self.instances[each].attached)
        for each in left:
            self.instances[each] = replace(self.instances[each], attached=False)
            self.desired -= 1
        self._fail_after()
        return left

    async def terminate(self, command: TerminateReplica) -> tuple[str, ...]:
        self._fail_before()
        inside = [each for each in command.instance_ids if each in self.instances and self.instances[each].attached]
        ended = await super().terminate(command)
        self.desired -= len(inside)
        self._fail_after()
        return ended

    def _fail_before(self) -> None:
        if self.random.random() < self.loss / 2:
            raise PoolUnavailable("never arrived")

    def _fail_after(self) -> None:
        if self.random.random() < self.loss / 2:
            raise PoolUnavailable("the answer got lost")

    def notice(self, instance_id: str, *, in_s: float, kind: NoticeKind) -> InterruptionNotice:
        now_s = self.clock.now_s()
        self.noticed[instance_id] = InterruptionNotice(
            instance_id=instance_id, kind=kind, noticed_at_s=now_s, deadline_s=now_s + in_s
        )
        if self.early:
            self._refills_at_s.append(now_s + self.random.uniform(1.0, 2.0 * in_s))
        return self.noticed[instance_id]

    def recommend(self, instance_id: str, *, followed: bool = True) -> InterruptionNotice:
        """EC2 recommends to rebalance it: a managed group launches its replacement, and ends it once that is ready."""
        now_s = self.clock.now_s()
        if followed:
            self._rebalances_at_s[instance_id] = now_s + self.random.uniform(1.0, 60.0)
        kind = NoticeKind.REBALANCE_RECOMMENDATION
        self.noticed[instance_id] = InterruptionNotice(
            instance_id=instance_id, kind=kind, noticed_at_s=now_s, deadline_s=None
        )
        return self.noticed[instance_id]

    def _rebalance(self, now_s: float) -> None:
        for instance_id in [each for each, at_s in self._rebalances_at_s.items() if at_s <= now_s]:
            del self._rebalances_at_s[instance_id]
            self.came_by_themselves += 1
            self._start(token="")
            self._replaced_ends_at_s[instance_id] = now_s + REBALANCED_ENDS_IN_S
        for instance_id in [each for each, at_s in self._replaced_ends_at_s.items() if at_s <= now_s]:
            self._end_rebalanced(instance_id, now_s)

    def drained(self) -> int:
        """Workers that were told to drain."""
        assert self.ledger is not None
        return sum(record.drain is not None for record in self.ledger.records.values())

    def _end_rebalanced(self, instance_id: str, now_s: float) -> None:
        """A hook tells of it, and it is let go once its worker has handed over; after two minutes in any case."""
        notice = self.noticed[instance_id]
        if notice.kind is not NoticeKind.LIFECYCLE_HOOK:
            notice = self.notice(instance_id, in_s=120.0, kind=NoticeKind.LIFECYCLE_HOOK)
        assert self.ledger is not None
        workers = self.ledger.records.values()
        working = any(each.leases for each in workers if each.identity.instance_id == instance_id)
        if not working or now_s >= (notice.deadline_s or 0.0):
            self.ended_at_work += [instance_id] if working else []
            del self._replaced_ends_at_s[instance_id], self.instances[instance_id], self.noticed[instance_id]

    def vanish(self, instance_id: str) -> None:
        """It goes without a word."""
        self._gone(instance_id)

    def step(self) -> None:
        """What has come due: the cloud takes, the group refills, workers register and hand over."""
        now_s = self.clock.now_s()
        for instance_id, notice in list(self.noticed.items()):
            if notice.deadline_s is not None and now_s >= notice.deadline_s:
                del self.noticed[instance_id]
                self._gone(instance_id, replaced=self.early)
        self._rebalance(now_s)
        for at_s in [at_s for at_s in self._refills_at_s if at_s <= now_s]:
            self._refills_at_s.remove(at_s)
            self.came_by_themselves += 1
            self._start(token="")
        self._work(now_s)

    def _gone(self, instance_id: str, *, replaced: bool = False) -> None:
        instance = self.instances.pop(instance_id, None)
        if instance is not None and instance.attached and not replaced:
            self._refills_at_s.append(self.clock.now_s() + self.random.uniform(1.0, 30.0))

    def _work(self, now_s: float) -> None:
        assert self.ledger is not None
        for instance_id, at_s in list(self._ready_at_s.items()):
            if at_s <= now_s:
                del self._ready_at_s[instance_id]
                if instance_id in self.instances:
                    self.ledger.put(a_worker(instance_id, leases=2))
        for name, record in list(self.ledger.records.items()):
            drained = record.drain is not None and record.drain.deadline_s - now_s < 120.0 - HANDS_OVER_IN_S
            if record.leases and (drained or record.identity.instance_id not in self.instances):
                self.ledger.records[name] = replace(record, leases=0)


class Deciding(Script):
    """The production engine, with every plan checked."""

    def __call__(self, snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> Plan:
        plan = decide(snapshot, spec, memory)
        assert check_plan(snapshot, spec, plan) == []
        return plan


def a_group_spec(size: int, duties: Duties, cooldown_down_s: float = 1e9) -> FleetSpec:
    """A fleet of that size on one group, which is never lowered unless told otherwise."""
    stage = StageSpec(
        name="rollout",
        sizing=PolicySpec(name="static", params=static.Params(replicas=size)),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
        guard_rails=GuardRails(
            min_replicas=0,
            max_replicas=10 * size,
            max_spend_usd_per_h=1e6,
            cooldown_down_s=cooldown_down_s,
            lower_after_fresh_s=0.0,
        ),
        pools=(PoolSpec(name="pool", provider="fake", offerings=(OFFERING,), duties=duties),),
    )
    return FleetSpec(name="fleet", stages=(stage,), interval_s=10.0)


@dataclass
class Mill:
    """The group, and controllers of it one after the other."""

    world: World
    group: RefillingGroup
    size: int
    most: int = 0
    """The most instances at once that are not on their way out."""

    @classmethod
    def of(
        cls,
        folder: Path,
        size: int,
        duties: Duties,
        *,
        early: bool = False,
        loss: float = 0.0,
        cooldown_down_s: float = 1e9,
    ) -> "Mill":
        clock = FakeClock(1_800_000_000.0)
        world = World(folder, clock=clock, spec=a_group_spec(size, duties, cooldown_down_s), script=Deciding())
        group = RefillingGroup(clock, ledger=world.ledger, early=early, loss=loss)
        world.pool = group
        group.fill(size)
        return cls(world, group, size)

    def tell(self, notices: list[InterruptionNotice]) -> None:
        self.world.notices.notices = (*self.world.notices.notices, *notices)

    @property
    def staying(self) -> list[str]:
        return [each for each in self.group.instances if each not in self.group.noticed]

    async def run(self, seconds: float, at: Callable[[float], None] = lambda _: None) -> None:
        """A controller for so long; `at` is called with the seconds that have passed. Its end is a kill."""
        clock, began_s = self.world.clock, self.world.clock.now_s()
        async with a_controller(self.world) as running:
            while clock.now_s() < began_s + seconds:
                at(clock.now_s() - began_s)
                await self._turn(running, clock)

    async def _turn(self, running: Running, clock: FakeClock) -> None:
        standing = self.group.noticed
        told = (notice.instance_id for notice in self.world.notices.notices)
        self.world.notices.notices = tuple(standing[each] for each in told if each in standing)
        plan = await running.controller.turn(running.group)
        await clock.settle()
        ends_s = clock.now_s() + min(plan.look_again_in_s, self.world.spec.interval_s)
        while clock.now_s() < ends_s - 1e-6:
            clock.pass_time(min(1.0, ends_s - clock.now_s()))
            self.group.step()
            self.most = max(self.most, len(self.staying))
