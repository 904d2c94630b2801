"""What holds of every plan, as code: checked after every test of the engine, in property tests and in simulation.

Each check takes a plan apart from the outside, by counting commands against the snapshot, and says what is broken in a
sentence. It needs no memory: promises over time (cool-downs, freshness) are not its business.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from scaler.decide.endings import DETACH_BEFORE_S
from scaler.decide.victims import disruption_budget
from scaler.decide.world import SPEND_TOLERANCE_USD_PER_H, StageWorld, is_noticed, named_once, notice_deadline_s
from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import NoticeKind
from scaler.model.plan import (
    ClampCode,
    Command,
    DetachReplica,
    DrainReplica,
    LaunchReplica,
    Plan,
    ReasonCode,
    ReleaseReplicaWork,
    StagePlan,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.model.spec import FleetSpec

HOLDS = frozenset(
    {
        ReasonCode.HOLD_SIGNAL_MISSING,
        ReasonCode.HOLD_SIGNAL_STALE,
        ReasonCode.HOLD_SIGNAL_INVALID,
        ReasonCode.HOLD_NOT_SYNCED,
        ReasonCode.HOLD_PARTIAL_LIST,
        ReasonCode.HOLD_POOL_REFUSED,
        ReasonCode.PAUSED,
        ReasonCode.DRY_RUN,
    }
)
ALLOWED_WHILE_PAUSED = frozenset(
    {ReasonCode.NOTICE, ReasonCode.DEADLINE_PASSED, ReasonCode.INSTANCE_LOST, ReasonCode.LEAVES_GROUP}
)
CODES: dict[type, frozenset[ReasonCode]] = {
    LaunchReplica: frozenset(
        {ReasonCode.SIZE_UP, ReasonCode.REPLACE_INTERRUPTED, ReasonCode.REPLACE_FAILED_LAUNCH},
    ),
    UndrainReplica: frozenset({ReasonCode.SIZE_UP}),
    DrainReplica: frozenset({ReasonCode.NOTICE, ReasonCode.SIZE_DOWN, ReasonCode.REPLACE_FAILED_LAUNCH}),
    ReleaseReplicaWork: frozenset({ReasonCode.DEADLINE_PASSED, ReasonCode.INSTANCE_LOST}),
    TerminateReplica: frozenset(
        {
            ReasonCode.DRAINED,
            ReasonCode.DEADLINE_PASSED,
            ReasonCode.REAP,
            ReasonCode.SIZE_DOWN,
            ReasonCode.REPLACE_FAILED_LAUNCH,
        }
    ),
    DetachReplica: frozenset({ReasonCode.LEAVES_GROUP}),
}
"""Why each kind of command may be given."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One stage, its plan, its commands."""

    world: StageWorld
    plan: StagePlan
    commands: tuple[Command, ...]
    paused: bool

    @cached_property
    def launches(self) -> tuple[LaunchReplica, ...]:
        return tuple(command for command in self.commands if isinstance(command, LaunchReplica))

    @cached_property
    def named(self) -> tuple[tuple[Command, ReplicaView | None], ...]:
        """Commands that name a replica, with it."""
        replicas = {replica.replica_id: replica for replica in self.world.replicas}
        return tuple(
            (command, replicas.get(command.replica_id))
            for command in self.commands
            if not isinstance(command, LaunchReplica)
        )

    @cached_property
    def lowered(self) -> tuple[Command, ...]:
        """Commands that lower the stage by our own choice."""
        return tuple(command for command in self.commands if command.reason.code is ReasonCode.SIZE_DOWN)

    @cached_property
    def added(self) -> int:
        return len(self.launches) + sum(isinstance(command, UndrainReplica) for command in self.commands)

    @property
    def count_after(self) -> int:
        return len(self.world.counting) + self.added - len(self.lowered)


def check_plan(snapshot: Snapshot, spec: FleetSpec, plan: Plan) -> list[str]:
    """Everything that is wrong with a plan; empty where nothing is."""
    cases = tuple(_cases(snapshot, spec, plan))
    broken = [f"{case.plan.stage}: {what}" for case in cases for check in STAGE_CHECKS for what in check(case)]
    return broken + list(_fleet(snapshot, spec, plan, cases))


def _cases(snapshot: Snapshot, spec: FleetSpec, plan: Plan) -> Iterator[_Case]:
    views = named_once(snapshot.stages, lambda view: view.name)
    plans = {stage.stage: stage for stage in plan.stages}
    for stage in spec.stages:
        if stage.name in views and stage.name in plans:
            yield _Case(
                world=StageWorld(spec=stage, view=views[stage.name], now_s=snapshot.now_s, paused=spec.paused),
                plan=plans[stage.name],
                commands=tuple(command for command in plan.commands if command.stage == stage.name),
                paused=spec.paused,
            )


def _one_command_a_replica(case: _Case) -> Iterator[str]:
    names = Counter(command.replica_id for command in case.commands if not isinstance(command, LaunchReplica))
    yield from (f"{name} is named {times} times" for name, times in names.items() if times > 1)


def _only_what_is_listed(case: _Case) -> Iterator[str]:
    for command, replica in case.named:
        if replica is None:
            yield f"{type(command).__name__} names a replica that is not in the snapshot"
        elif not case.world.listed(replica):
            yield f"{replica.replica_id} is in a pool that was never listed"
    for launch in case.launches:
        pool = case.world.pools.get(launch.pool)
        if pool is None or not pool.usable or launch.offering_id not in pool.offerings:
            yield f"{launch.token} launches where nothing may be launched: {launch.pool} {launch.offering_id}"


def _reasons(case: _Case) -> Iterator[str]:
    for command in case.commands:
        if not command.reason.message or command.reason.code not in CODES[type(command)]:
            yield f"{type(command).__name__} has the reason {command.reason.code} ({command.reason.message!r})"


def _ceiling_and_floor(case: _Case) -> Iterator[str]:
    rails = case.world.spec.guard_rails
    if case.added and case.count_after > rails.max_replicas:
        yield f"raised to {case.count_after}, above the ceiling of {rails.max_replicas}"
    spends_less = any(clamp.code is ClampCode.SPEND for clamp in case.plan.reason.clamps)
    floor = min(rails.min_replicas, rails.max_replicas)
    if case.lowered and case.count_after < floor and not spends_less:
        yield f"lowered to {case.count_after}, below the floor of {floor}"
    if len(case.lowered) > rails.max_step_down:
        yield f"lowered by {len(case.lowered)}, more than the step of {rails.max_step_down}"


def _not_both_ways(case: _Case) -> Iterator[str]:
    if case.added and case.lowered:
        yield "raised and lowered at once"


def _holds(case: _Case) -> Iterator[str]:
    if case.plan.reason.code in HOLDS and case.lowered:
        yield f"lowered although it says {case.plan.reason.code}"
    if case.paused:
        for command in case.commands:
            if command.reason.code not in ALLOWED_WHILE_PAUSED:
                yield f"paused, and yet {type(command).__name__} because of {command.reason.code}"


def _disruption(case: _Case) -> Iterator[str]:
    drains = sum(isinstance(command, DrainReplica) for command in case.lowered)
    budget = disruption_budget(case.world)
    if drains and drains + len(case.world.leaving) > budget:
        yield f"{drains} drains besides {len(case.world.leaving)}, with a disruption budget of {budget}"


def _notices_are_the_clouds(case: _Case) -> Iterator[str]:
    for command, replica in case.named:
        if replica is None or not is_noticed(replica) or not isinstance(command, TerminateReplica):
            continue
        if _is_ours_to_end(case, replica):
            continue
        due_s = notice_deadline_s(replica, case.world.now_s) + case.world.spec.drain.reap_after_s
        if case.world.now_s < due_s:
            yield f"{replica.replica_id} is noticed and would be ended {due_s - case.world.now_s:.0f} s too early"


def _is_ours_to_end(case: _Case, replica: ReplicaView) -> bool:
    """Whether nobody but us ends it, and its work is handed over or had its time to be."""
    pool = case.world.pools.get(replica.pool)
    if _others_end(replica) or pool is None or not pool.spec.duties.replaces:
        return False
    overdue = replica.drain_deadline_s is not None and replica.drain_deadline_s <= case.world.now_s
    return replica.phase is ReplicaPhase.DRAINED or (replica.phase is ReplicaPhase.DRAINING and overdue)


def _others_end(replica: ReplicaView) -> bool:
    kind = None if replica.notice is None else replica.notice.kind
    return kind not in (NoticeKind.SCHEDULED_CHANGE, NoticeKind.NODE_DISRUPTED)


def _only_noticed_ones_leave_their_group(case: _Case) -> Iterator[str]:
    for command, replica in case.named:
        if replica is None or not isinstance(command, DetachReplica):
            continue
        pool = case.world.pools.get(replica.pool)
        if not is_noticed(replica) or not _others_end(replica):
            yield f"{replica.replica_id} would leave its group, and nobody takes it"
        elif pool is None or not pool.spec.duties.detaches or not replica.attached or not command.instance_ids:
            yield f"{replica.replica_id} would leave a group that it is not in, or that does not replace it"
        elif replica.phase is not ReplicaPhase.DRAINED:
            left_s = notice_deadline_s(replica, case.world.now_s) - case.world.now_s
            if left_s > DETACH_BEFORE_S:
                yield f"{replica.replica_id} would leave its group with {left_s:.0f} s left to hand over"


def _nobody_withdraws_what_comes_by_itself(case: _Case) -> Iterator[str]:
    yield from (
        f"{replica.replica_id} comes by itself, and {type(command).__name__} names it"
        for command, replica in case.named
        if replica is not None and replica.comes_by_itself and isinstance(command, TerminateReplica)
    )


def _room(case: _Case) -> Iterator[str]:
    launched = Counter(launch.pool for launch in case.launches)
    ended = {command.replica_id for command in case.commands if isinstance(command, TerminateReplica)}
    held = (*case.world.counting, *case.world.leaving)
    taken = Counter(replica.pool for replica in held if replica.replica_id not in ended)
    for name, launches in launched.items():
        pool = case.world.pools.get(name)
        if pool is not None and launches + taken[name] > pool.spec.max_replicas:
            yield f"{launches} launches in {name}, which has room for {pool.spec.max_replicas - taken[name]}"


def _spend(case: _Case) -> Iterator[str]:
    cap = case.world.spec.guard_rails.max_spend_usd_per_h
    if case.launches and not _rent(case) <= cap + SPEND_TOLERANCE_USD_PER_H:
        yield f"launches take its rent to {_rent(case):.2f} USD/h, above {cap:.2f}"


def _rent(case: _Case) -> float:
    """What the stage holds after the plan (USD/h)."""
    ended = {command.replica_id for command in case.commands if isinstance(command, TerminateReplica)}
    held = (*case.world.counting, *case.world.leaving)
    kept = case.world.rent_usd_per_h(replica for replica in held if replica.replica_id not in ended)
    pools = case.world.pools
    known = (launch for launch in case.launches if launch.pool in pools)
    prices = (pools[launch.pool].prices_usd_per_h.get(launch.offering_id) for launch in known)
    return kept + sum(price or 0.0 for price in prices)


def _numbers(case: _Case) -> Iterator[str]:
    judged = case.plan.reason.code not in (ReasonCode.DRY_RUN, ReasonCode.HOLD_NOT_SYNCED)
    if judged and case.plan.requested != case.count_after:
        yield f"says {case.plan.requested} requested, but {case.count_after} count"


STAGE_CHECKS: tuple[Callable[[_Case], Iterator[str]], ...] = (
    _one_command_a_replica,
    _only_what_is_listed,
    _reasons,
    _ceiling_and_floor,
    _not_both_ways,
    _holds,
    _disruption,
    _notices_are_the_clouds,
    _only_noticed_ones_leave_their_group,
    _nobody_withdraws_what_comes_by_itself,
    _room,
    _spend,
    _numbers,
)
"""What is checked of every stage."""


def _fleet(snapshot: Snapshot, spec: FleetSpec, plan: Plan, cases: tuple[_Case, ...]) -> Iterator[str]:
    cap = spec.max_spend_usd_per_h
    rent = sum(_rent(case) for case in cases)
    launches = [command for command in plan.commands if isinstance(command, LaunchReplica)]
    if launches and cap is not None and not rent <= cap + SPEND_TOLERANCE_USD_PER_H:
        yield f"launches take the fleet's rent to {rent:.2f} USD/h, above {cap:.2f}"
    if plan.commands and (spec.dry_run or not snapshot.synced):
        yield "commands in a dry run, or before the state was rebuilt"
    if len({launch.token for launch in launches}) != len(launches):
        yield "a launch token is used twice"
    if [stage.stage for stage in plan.stages] != [stage.name for stage in spec.stages]:
        yield "not one entry for every stage of the specification"
    if not 0 < plan.look_again_in_s <= max(0.1, spec.interval_s):
        yield f"looks again in {plan.look_again_in_s} s, with an interval of {spec.interval_s} s"
