"""One stage's decision: what must end, then the size, then the commands that bring what counts to that size.

Invariants: holding lowers nothing; no replica is named by two commands; `StagePlan` shows desired, requested and observed
as they are after the plan.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import NamedTuple

from policies.base import Registered
from scaler.decide.endings import end_or_drain
from scaler.decide.rails import Railed, Situation, apply_rails
from scaler.decide.rents import Rents
from scaler.decide.resize import Change, Preferences, resize
from scaler.decide.sizing import Wish, ask, partial_list, standstill
from scaler.decide.victims import affordable
from scaler.decide.world import StageWorld
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import (
    ClampCode,
    Command,
    LaunchReplica,
    Reason,
    ReasonCode,
    StageMemory,
    StagePlan,
    TerminateReplica,
    UndrainReplica,
)

_REFUSALS_TOLD = 3
"""In a decision's reason, which is one sentence for a person; the status has all."""


class Policies(NamedTuple):
    """A stage's two policies."""

    sizing: Registered
    placement: Registered


class StageDecision(NamedTuple):
    """What a stage contributes to the plan."""

    commands: tuple[Command, ...]
    plan: StagePlan
    memory: StageMemory


class StageCase(NamedTuple):
    """All that a stage's decision depends on. `tokens` are fresh launch tokens; `rents` is shared by the stages."""

    world: StageWorld
    memory: StageMemory
    policies: Policies
    endings: tuple[Command, ...]
    rents: Rents
    tokens: Iterator[str]

    @property
    def ended(self) -> frozenset[str]:
        """Ids of the replicas that the endings end at once."""
        return ended_ids(self.endings)


def ended_ids(commands: tuple[Command, ...]) -> frozenset[str]:
    """Ids of the replicas that these commands end at once."""
    return frozenset([command.replica_id for command in commands if isinstance(command, TerminateReplica)])


def decide_stage(case: StageCase) -> StageDecision:
    """Endings always; then hold, or size."""
    partial = partial_list(case.world)
    wish = ask(case.world, case.memory, case.policies.sizing)
    if partial is not None:
        # Of the wish only whether signals are fresh: a gap that falls into this hold counts like any other.
        memory = replace(case.memory, fresh_since_s=wish.memory.fresh_since_s)
        return _held(case, memory, len(case.world.counting), partial)
    stop = standstill(case.world)
    return _sized(case, wish) if stop is None else _stopped(case, wish, stop)


def _stopped(case: StageCase, wish: Wish, stop: Reason) -> StageDecision:
    """Judged but not resized. A paused fleet forgets its size, so that it later starts from what is there."""
    count = len(case.world.counting)
    wanted = wish.sizing.replicas
    held = Railed(size=count if wanted is None else wanted).to(ClampCode.HOLD, count)
    reason = replace(stop, message=f"{stop.message}; {wish.sizing.reason.message}", clamps=held.clamps)
    desired = None if stop.code is ReasonCode.PAUSED else wish.memory.desired
    return _held(case, replace(wish.memory, desired=desired), count, reason)


def _held(case: StageCase, memory: StageMemory, desired: int, reason: Reason) -> StageDecision:
    change = Change(desired=desired, clamps=reason.clamps)
    return StageDecision(commands=case.endings, plan=_stage_plan(case, change, reason), memory=memory)


def _sized(case: StageCase, wish: Wish) -> StageDecision:
    world = case.world
    situation = Situation(
        now_s=world.now_s,
        rails=world.spec.guard_rails,
        memory=wish.memory,
        count=len(world.counting),
        affordable=affordable(world, case.rents.cap_usd_per_h(world)),
    )
    railed = apply_rails(situation, wish.sizing.replicas)
    preferences = Preferences(
        places=wish.sizing.places, release_first=wish.sizing.release_first, placement=case.policies.placement
    )
    change = resize(world, railed, preferences, case.rents, case.ended)
    codes = _launch_codes(case, situation, change)
    wished = wish.sizing.reason
    message = wished.message + _refusals(world, change)
    reason = Reason(code=_code(wish, change, codes), message=message, inputs=wished.inputs, clamps=change.clamps)
    return StageDecision(
        commands=(*case.endings, *_commands(case, change, reason, codes)),
        plan=_stage_plan(case, change, reason),
        memory=_remember(world, wish.memory, situation, railed, change),
    )


def _refusals(world: StageWorld, change: Change) -> str:
    """Where offerings are wanting: in whose words some of them were refused."""
    if not change.clamps or all(clamp.code is not ClampCode.NO_OFFERING for clamp in change.clamps):
        return ""
    waiting = chain.from_iterable(pool.waiting() for pool in world.pools.values())
    told = (f"{view.offering.offering_id}: {view.refused_because}" for view in waiting if view.refused_because)
    return "".join(f"; {each}" for each in islice(told, _REFUSALS_TOLD))


def _launch_codes(case: StageCase, situation: Situation, change: Change) -> tuple[ReasonCode, ...]:
    """Why each launch: first for launches that failed, then for instances that were lost, the rest to be more."""
    if not change.launches:
        return ()
    failed = sum(command.reason.code is ReasonCode.REPLACE_FAILED_LAUNCH for command in case.endings)
    lost = max(0, (situation.memory.observed or 0) - case.world.arrived - failed)
    codes = chain(
        repeat(ReasonCode.REPLACE_FAILED_LAUNCH, failed),
        repeat(ReasonCode.REPLACE_INTERRUPTED, lost),
        repeat(ReasonCode.SIZE_UP),
    )
    return tuple(code for code, _ in zip(codes, change.launches, strict=False))


def _code(wish: Wish, change: Change, launches: tuple[ReasonCode, ...]) -> ReasonCode:
    """What the stage does, as one code; a hold says so even where it refills."""
    if wish.sizing.replicas is None:
        return wish.sizing.reason.code
    if change.victims:
        return ReasonCode.SIZE_DOWN
    if change.undrained or ReasonCode.SIZE_UP in launches:
        return ReasonCode.SIZE_UP
    return launches[0] if launches else ReasonCode.STEADY


def _commands(case: StageCase, change: Change, reason: Reason, codes: tuple[ReasonCode, ...]) -> Iterator[Command]:
    if not (change.undrained or change.launches or change.victims):
        return
    world, stage = case.world, case.world.spec.name
    because = {code: replace(reason, code=code) for code in {*codes, ReasonCode.SIZE_UP, ReasonCode.SIZE_DOWN}}
    for replica in change.undrained:
        yield UndrainReplica(
            stage=stage,
            pool=replica.pool,
            replica_id=replica.replica_id,
            worker=replica.worker or "",
            reason=because[ReasonCode.SIZE_UP],
        )
    for (pool, offering_id), code in zip(change.launches, codes, strict=True):
        yield LaunchReplica(
            token=next(case.tokens), stage=stage, pool=pool, offering_id=offering_id, reason=because[code]
        )
    for replica in change.victims:
        yield end_or_drain(world, replica, because[ReasonCode.SIZE_DOWN])


def _stage_plan(case: StageCase, change: Change, reason: Reason) -> StagePlan:
    world = case.world
    return StagePlan(
        stage=world.spec.name,
        desired=change.desired,
        requested=len(world.counting) + change.delta,
        observed=world.observed,
        ready=world.ready,
        reason=reason,
        policy=world.spec.sizing.name,
        spend_usd_per_h=case.rents.held_usd_per_h(world.spec.name),
    )


def _remember(
    world: StageWorld, memory: StageMemory, situation: Situation, railed: Railed, change: Change
) -> StageMemory:
    raised, lowered = change.desired > situation.base, railed.size < situation.standing
    return StageMemory(
        last_up_at_s=world.now_s if raised else memory.last_up_at_s,
        last_down_at_s=world.now_s if lowered and not raised else memory.last_down_at_s,
        fresh_since_s=memory.fresh_since_s,
        desired=change.desired,
        observed=world.arrived
        + len(change.undrained)
        - sum(r.phase is not ReplicaPhase.REQUESTED for r in change.victims),
        policy=memory.policy,
    )
