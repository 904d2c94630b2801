"""The decision: one snapshot, one specification, one small memory in; one plan with the next memory out.

Policy, in this order
1. Not synced: nothing at all. State has not been rebuilt, so nothing is known.
2. For every stage, what must end (`endings`): notices, deadlines, drains that are done, launches that failed.
3. Stage by stage in the specification's order: partial lists hold; the sizing policy wishes, or holds on signals that are
   missing, stale or invalid; guard rails clamp (`rails`); drains are taken back, replicas launched where the placement
   policy says, within room and spend (`growing`), or victims leave (`victims`).
4. A dry run is decided and explained in the same way; its plan has no commands, and it remembers no size, so that it
   starts from what is there when it becomes real.

Invariants (`invariants.check_plan` states them as code): total, deterministic, and independent of the order of the
snapshot's tuples; no clock, no I/O, no randomness; no replica named twice; every command has its reason; deciding again
on the world that a plan makes gives nothing more, apart from what time brings.

Launch tokens are "<fleet>.<stage>.<n>", n counting up through the memory, and past every token in sight, so that a lost
memory does not repeat a token whose replica still lives.
Cost: O(n log n) in the number of replicas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import repeat

from policies.base import Registered
from policies.registry import PLACEMENT, SIZING
from scaler.decide.endings import endings
from scaler.decide.rents import Rents
from scaler.decide.stage import Policies, StageCase, StageDecision, decide_stage, ended_ids
from scaler.decide.timing import look_again_in_s
from scaler.decide.world import StageWorld, named_once
from scaler.model.plan import (
    ClampCode,
    Command,
    LaunchReplica,
    Memory,
    Plan,
    Reason,
    ReasonCode,
    StageMemory,
    StagePlan,
)
from scaler.model.snapshot import Snapshot
from scaler.model.spec import FleetSpec, StageSpec

LONGEST_INTENT_DIGITS = 18
"""A token that ends in more digits is not one of ours."""


def decide(snapshot: Snapshot, spec: FleetSpec, memory: Memory, others: Mapping[str, Registered] | None = None) -> Plan:
    """The plan for this moment. Never raises for any snapshot; policies must be registered ones.

    `others`: sizing policies beside the registered ones, for worlds in which somebody knows what no policy may know.
    """
    if not snapshot.synced:
        return _nothing(spec, memory, _hold("state has not been rebuilt yet", ReasonCode.HOLD_NOT_SYNCED))
    views = named_once(snapshot.stages, lambda view: view.name)
    worlds = {
        stage.name: StageWorld(spec=stage, view=views[stage.name], now_s=snapshot.now_s, paused=spec.paused)
        for stage in spec.stages
        if stage.name in views
    }
    first_intent = _first_intent(snapshot, spec, memory)
    decisions = _decide_stages(worlds, spec, memory, first_intent, SIZING if others is None else {**SIZING, **others})
    commands = tuple([command for decision in decisions.values() for command in decision.commands])
    after = _next_memory(spec, memory, decisions, first_intent + _launches(commands))
    after = _dry_memory(after, memory) if spec.dry_run else after
    plan = Plan(
        commands=commands,
        look_again_in_s=look_again_in_s(worlds.values(), after, _held_by(decisions), snapshot.now_s, spec.interval_s),
        stages=tuple(
            [decisions[stage.name].plan if stage.name in decisions else _unseen(stage) for stage in spec.stages]
        ),
        memory=after,
    )
    return _dry(plan) if spec.dry_run else plan


def _decide_stages(
    worlds: dict[str, StageWorld],
    spec: FleetSpec,
    memory: Memory,
    first_intent: int,
    known: Mapping[str, Registered],
) -> dict[str, StageDecision]:
    ending = {name: endings(world) for name, world in worlds.items()}
    ended = {name: ended_ids(commands) for name, commands in ending.items()}
    rents = Rents(tuple(worlds.values()), ended, spec.max_spend_usd_per_h)
    remembered = dict(memory.stages)
    decisions: dict[str, StageDecision] = {}
    for name, world in worlds.items():
        case = StageCase(
            world=world,
            memory=remembered.get(name) or StageMemory(),
            policies=Policies(sizing=known[world.spec.sizing.name], placement=PLACEMENT[world.spec.placement.name]),
            endings=ending[name],
            rents=rents,
            tokens=_tokens(f"{spec.name}.{name}", first_intent),
        )
        decisions[name] = decide_stage(case)
        first_intent += _launches(decisions[name].commands)
    return decisions


def _held_by(decisions: Mapping[str, StageDecision]) -> Mapping[str, frozenset[ClampCode]]:
    """By stage, what clamped its size, where anything did."""
    clamps = {name: decision.plan.reason.clamps for name, decision in decisions.items()}
    return {name: frozenset([clamp.code for clamp in each]) for name, each in clamps.items() if each}


def _launches(commands: tuple[Command, ...]) -> int:
    return len([command for command in commands if isinstance(command, LaunchReplica)]) if commands else 0


def _tokens(prefix: str, first_intent: int) -> Iterator[str]:
    intent = first_intent
    while True:
        yield f"{prefix}.{intent}"
        intent += 1


def _first_intent(snapshot: Snapshot, spec: FleetSpec, memory: Memory) -> int:
    """Past the memory's counter and every token of ours in sight."""
    tokens = frozenset([replica.launch_token for stage in snapshot.stages for replica in stage.replicas])
    return max(memory.next_intent, _last_intent(tokens, spec.name) + 1)


@lru_cache(maxsize=16)  # the same tokens are in sight decision after decision
def _last_intent(tokens: frozenset[str | None], fleet: str) -> int:
    """The highest number of our tokens; -1 where there is none."""
    return max(map(_intent, tokens, repeat(fleet)), default=-1)


@lru_cache(maxsize=1 << 16)
def _intent(token: str | None, fleet: str) -> int:
    """The number of one of our tokens; -1 for any other."""
    if token is None or not token.startswith(f"{fleet}."):
        return -1
    text = token.rpartition(".")[2]
    return int(text) if text.isdecimal() and len(text) <= LONGEST_INTENT_DIGITS else -1


def _next_memory(spec: FleetSpec, memory: Memory, decisions: dict[str, StageDecision], next_intent: int) -> Memory:
    """One entry for each stage of the specification that has one; a stage out of sight keeps its own."""
    remembered = dict(memory.stages) | {name: decision.memory for name, decision in decisions.items()}
    names = [stage.name for stage in spec.stages if stage.name in remembered]
    return Memory(stages=tuple((name, remembered[name]) for name in names), next_intent=next_intent)


def _dry(plan: Plan) -> Plan:
    """The same plan, explained and not carried out."""
    return replace(plan, commands=(), stages=tuple(_dry_stage(plan, stage) for stage in plan.stages))


def _dry_memory(after: Memory, before: Memory) -> Memory:
    """No size is remembered, and no token counts as used."""
    remembered = dict(before.stages)
    stages = tuple(
        (name, _dry_stage_memory(memory, remembered.get(name, StageMemory()))) for name, memory in after.stages
    )
    return Memory(stages=stages, next_intent=before.next_intent)


def _dry_stage_memory(after: StageMemory, before: StageMemory) -> StageMemory:
    return replace(
        after, last_up_at_s=before.last_up_at_s, last_down_at_s=before.last_down_at_s, desired=None, observed=None
    )


def _dry_stage(plan: Plan, stage: StagePlan) -> StagePlan:
    withheld = sum(command.stage == stage.stage for command in plan.commands)
    message = f"dry run, {withheld} commands withheld ({stage.reason.code}): {stage.reason.message}"
    return replace(stage, reason=replace(stage.reason, code=ReasonCode.DRY_RUN, message=message))


def _nothing(spec: FleetSpec, memory: Memory, reason: Reason) -> Plan:
    stages = tuple(_blank(stage, reason) for stage in spec.stages)
    return Plan(commands=(), look_again_in_s=max(0.1, spec.interval_s), stages=stages, memory=memory)


def _unseen(stage: StageSpec) -> StagePlan:
    return _blank(stage, _hold(f"stage {stage.name} is not in sight", ReasonCode.HOLD_PARTIAL_LIST))


def _blank(stage: StageSpec, reason: Reason) -> StagePlan:
    return StagePlan(
        stage=stage.name, desired=0, requested=0, observed=0, ready=0, reason=reason, policy=stage.sizing.name
    )


def _hold(why: str, code: ReasonCode) -> Reason:
    return Reason(code=code, message=f"holding: {why}")
