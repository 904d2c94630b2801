"""What must hold of every decision, over time and against the truth (design sections 3, 5, 6 and 8).

`scaler.decide.invariants.check_plan` judges a plan against its snapshot; here the snapshot is judged against what the
controller was really told, and the plan against the ones before it: cool-downs, freshness, launch tokens, notices.
A plan counts only once it was persisted; one that a crash took back never happened.

Where a clock was set, a time that has passed on either clock, the true one or the controller's, has passed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from scaler.decide.invariants import HOLDS, check_plan
from scaler.model.capacity import COUNTS_AS_CAPACITY
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.model.plan import (
    ClampCode,
    Command,
    DrainReplica,
    LaunchReplica,
    Plan,
    ReasonCode,
    StagePlan,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.snapshot import ReplicaView, Snapshot, StageView
from scaler.model.spec import FleetSpec, GuardRails
from tests.faults.cloud import TRAINER_INSTANCE, TRAINER_WORKER
from tests.faults.setup import STAGE
from tests.faults.virtual_loop import HostClock
from tests.faults.watch import Watch

_SHORT = frozenset({ClampCode.NO_OFFERING, ClampCode.SPEND, ClampCode.HOLD})
_NOT_SIZED = (ReasonCode.HOLD_NOT_SYNCED, ReasonCode.HOLD_PARTIAL_LIST, ReasonCode.HOLD_POOL_REFUSED)
"""Holds that say what is there, not what is wanted."""
_TOLERANCE_S = 0.01
_STEP_MATTERS_S = 60.0
"""After a clock was set, what was stamped before may be misjudged for about as long."""


@dataclass(slots=True)
class Moment:
    """A moment on the true clock and on the controller's."""

    true_s: float = float("-inf")
    wall_s: float = float("-inf")

    def since_s(self, now: "Moment") -> float:
        """The longer of the two."""
        return max(now.true_s - self.true_s, now.wall_s - self.wall_s)


@dataclass(slots=True)
class Told:
    """What one controller process was told last; the truth that its snapshots must show."""

    lists: dict[str, dict[str, str]] = field(default_factory=dict)
    """Pool -> replica id -> launch token, of the last complete list."""
    notices: tuple[InterruptionNotice, ...] = ()
    refused: dict[tuple[str, str], Moment] = field(default_factory=dict)
    """(pool, offering) -> when it refused, where that was its last answer."""
    first_decided: Moment | None = None
    """When it decided for the first time on rebuilt state."""

    def deadlines_s(self, instance_id: str) -> list[float]:
        """Of the notices that bind, those that name one."""
        told = (each for each in self.notices if each.instance_id == instance_id)
        named = (each.deadline_s for each in told if each.kind is NoticeKind.SPOT_INTERRUPTION)
        return [deadline_s for deadline_s in named if deadline_s is not None and math.isfinite(deadline_s)]


class PlanRules:
    """See the module's docstring.

    `fresh` says whether the signals that a policy needs are, in truth, fresh; `is_gone` whether a launch's instance came
    and went.
    """

    def __init__(
        self, watch: Watch, clock: HostClock, fresh: Callable[[str], bool], is_gone: Callable[[str], bool]
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._fresh = fresh
        self._is_gone = is_gone
        self.told = Told()
        self._changed = Moment()
        self._not_fresh = Moment(self.now.true_s, self.now.wall_s)
        self._desired: int | None = None
        self._tokens: dict[str, LaunchReplica] = {}
        """Every launch that was ever persisted."""
        self._open: dict[str, float] = {}
        """Launches that must count: token -> true time of their decision."""
        self._proposed: tuple[Plan, FleetSpec] | None = None
        self.desired_now = 0
        self.last_spec: FleetSpec | None = None

    @property
    def now(self) -> Moment:
        return Moment(self._clock.monotonic_s(), self._clock.now_s())

    def restarted(self) -> None:
        """A new controller process knows nothing yet."""
        self.told = Told()
        self._proposed = None

    def decided(self, snapshot: Snapshot, spec: FleetSpec, plan: Plan) -> None:
        """A plan was made; it is not persisted yet."""
        self._watch.event("decides", _Commands(plan))
        for what in check_plan(snapshot, spec, plan):
            self._broke("plan", what)
        self._proposed = plan, spec
        self._check_names(plan)
        if not snapshot.synced:
            return
        now = self.now
        self.told.first_decided = self.told.first_decided or now
        stage, decided = snapshot.stages[0], plan.stages[0]
        self._settle(max(pool.launch_timeout_s for pool in spec.stages[0].pools))
        self._check_shown(stage)
        self._check_launches(spec, plan, now)
        self._check_pace(spec.stages[0].guard_rails, plan, decided, now)
        if not self._fresh(spec.stages[0].sizing.name):
            self._not_fresh = now
        self._check_fresh(spec.stages[0].guard_rails, plan, now)
        if not spec.dry_run:
            self._check_notices(stage, plan, snapshot.now_s)
            self._check_replaced(stage, plan, decided)

    def persisted(self) -> None:
        """The last plan outlives a crash from now on."""
        if self._proposed is None:
            return
        (plan, spec), self._proposed = self._proposed, None
        now, decided = self.now, plan.stages[0]
        self.last_spec = spec
        for command in plan.commands:
            if isinstance(command, LaunchReplica):
                self._tokens[command.token] = command
                self._open[command.token] = now.true_s
            elif isinstance(command, TerminateReplica) and not command.instance_ids:
                self._open.pop(command.replica_id, None)
        if self._lowers(plan) or self._raises(plan, decided):
            self._changed = now
        if decided.reason.code is ReasonCode.PAUSED:
            self._desired = None
        elif decided.reason.code not in _NOT_SIZED:
            self._desired = decided.desired
        self.desired_now = decided.desired

    def is_persisted(self, command: LaunchReplica) -> bool:
        """Whether exactly this launch was decided and persisted."""
        return self._tokens.get(command.token) == command

    def launch_answered(self, command: LaunchReplica, *, refused: bool) -> None:
        """The controller knows what became of a launch; a refused one need not count any more."""
        slot = command.pool, command.offering_id
        self.told.refused.pop(slot, None)
        if refused:
            self._open.pop(command.token, None)
            self.told.refused[slot] = self.now

    def _broke(self, rule: str, detail: str) -> None:
        self._watch.broke(rule, detail)

    def _check_names(self, plan: Plan) -> None:
        for command in plan.commands:
            named = (getattr(command, "worker", None), *getattr(command, "instance_ids", ()))
            if TRAINER_INSTANCE in named or TRAINER_WORKER in named:
                self._broke("trainers untouchable", f"{type(command).__name__} names {command.reason.message!r}")

    def _stepped_lately(self) -> bool:
        return self._clock.monotonic_s() - self._clock.stepped_at_s < _STEP_MATTERS_S

    # --- the snapshot against what was told -------------------------------------------------------------------------

    def _check_shown(self, stage: StageView) -> None:
        """Every replica listed is shown, nothing else is, and every launch under way counts."""
        shown = {view.replica_id for view in stage.replicas if view.instance_ids}
        listed = {name for replicas in self.told.lists.values() for name in replicas}
        if shown != listed:
            self._broke("snapshot", f"shows {sorted(shown - listed)} too many, {sorted(listed - shown)} too few")
        tokens = {view.launch_token for view in stage.replicas}
        for token in self._open:
            if token not in tokens and not self._stepped_lately():
                self._broke("intent", f"{token} is under way and does not count")
        noticed = {view.replica_id for view in stage.replicas if view.notice is not None}
        for notice in self.told.notices:
            replica_id = f"r{notice.instance_id[1:]}"
            if replica_id in listed and replica_id not in noticed:
                self._broke("notice", f"{replica_id} has a notice and the snapshot does not show it")

    def _settle(self, timeout_s: float) -> None:
        """Launches whose instance is gone, or that nobody answered in time, need not count any more."""
        now_s = self._clock.monotonic_s()
        for token, decided_s in list(self._open.items()):
            if now_s - decided_s > timeout_s or self._is_gone(token):
                del self._open[token]

    # --- over time --------------------------------------------------------------------------------------------------

    def _lowers(self, plan: Plan) -> bool:
        return any(command.reason.code is ReasonCode.SIZE_DOWN for command in plan.commands)

    def _raises(self, plan: Plan, decided: StagePlan) -> bool:
        more = any(
            isinstance(command, LaunchReplica | UndrainReplica) and command.reason.code is ReasonCode.SIZE_UP
            for command in plan.commands
        )
        return more and self._desired is not None and decided.desired > self._desired

    def _check_launches(self, spec: FleetSpec, plan: Plan, now: Moment) -> None:
        pools = {pool.name: pool for pool in spec.stages[0].pools}
        for command in plan.commands:
            if not isinstance(command, LaunchReplica):
                continue
            if command.token in self._tokens:
                self._broke("launch token", f"{command.token} was used before")
            refused = self.told.refused.get((command.pool, command.offering_id), Moment())
            if refused.since_s(now) + _TOLERANCE_S < pools[command.pool].refusal_backoff_initial_s:
                self._broke(
                    "back-off", f"{command.offering_id} refused {refused.since_s(now):.1f} s ago and is asked again"
                )

    def _check_pace(self, rails: GuardRails, plan: Plan, decided: StagePlan, now: Moment) -> None:
        since_s = self._changed.since_s(now) + _TOLERANCE_S
        if self._lowers(plan) and since_s < rails.cooldown_down_s:
            self._broke("cool-down", f"lowered {since_s:.1f} s after the last change, not {rails.cooldown_down_s:.0f}")
        raised = self._raises(plan, decided) and (self._desired or 0) >= rails.min_replicas
        if raised and since_s < rails.cooldown_up_s:
            self._broke("cool-down", f"raised {since_s:.1f} s after the last change, not {rails.cooldown_up_s:.0f}")

    def _check_fresh(self, rails: GuardRails, plan: Plan, now: Moment) -> None:
        if not self._lowers(plan):
            return
        since_s = self._not_fresh.since_s(now)
        if since_s <= 0:
            self._broke("freshness", "lowered although a signal is missing, stale or invalid")
        elif since_s + _TOLERANCE_S < rails.lower_after_fresh_s:
            self._broke("freshness", f"lowered {since_s:.1f} s after a signal was not fresh")
        began = self.told.first_decided or now
        if began.since_s(now) + _TOLERANCE_S < rails.lower_after_fresh_s:
            self._broke("freshness", f"a new controller lowered after {began.since_s(now):.1f} s")

    # --- notices ----------------------------------------------------------------------------------------------------

    def _check_notices(self, stage: StageView, plan: Plan, now_s: float) -> None:
        """Every noticed replica is told to drain at once, by its deadline."""
        drains = {each.replica_id: each for each in plan.commands if isinstance(each, DrainReplica)}
        for view in stage.replicas:
            deadline_s = _deadline_s(view)
            if deadline_s is None or now_s >= deadline_s or view.phase.value in ("drained", "terminating"):
                continue
            shown_s = view.drain_deadline_s
            ordered = drains.get(view.replica_id)
            by_s = ordered.deadline_s if ordered else shown_s if view.phase.value == "draining" else None
            if by_s is None or by_s > deadline_s + 1.0:
                self._broke("notice", f"{view.replica_id} goes at {deadline_s:.1f} and is told to drain by {by_s}")

    def _check_replaced(self, stage: StageView, plan: Plan, decided: StagePlan) -> None:
        """What is taken is replaced in the same plan, unless something says why not."""
        stopped = {clamp.code for clamp in decided.reason.clamps} & _SHORT
        if decided.reason.code in HOLDS or stopped:
            return
        leaving = {
            command.replica_id for command in plan.commands if isinstance(command, DrainReplica | TerminateReplica)
        }
        counting = sum(
            view.phase in COUNTS_AS_CAPACITY and not _is_noticed(view) and view.replica_id not in leaving
            for view in stage.replicas
        )
        added = sum(isinstance(command, LaunchReplica | UndrainReplica) for command in plan.commands)
        if counting + added < decided.desired:
            self._broke("replacement", f"{counting} count, {added} are added, {decided.desired} are desired")


def _is_noticed(view: ReplicaView) -> bool:
    return view.notice is not None and view.notice.kind is NoticeKind.SPOT_INTERRUPTION


def _deadline_s(view: ReplicaView) -> float | None:
    """The deadline of a notice that names one."""
    if view.notice is None or not _is_noticed(view) or view.notice.deadline_s is None:
        return None
    return view.notice.deadline_s if math.isfinite(view.notice.deadline_s) else None


class _Commands:
    """A plan in words, only put together where somebody reads them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __str__(self) -> str:
        stage = next((each for each in self._plan.stages if each.stage == STAGE), None)
        sizes = (
            ""
            if stage is None
            else (f"{stage.reason.code} desired {stage.desired} requested {stage.requested} ready {stage.ready}")
        )
        return f"{sizes}: {' '.join(map(_word, self._plan.commands))}"


def _word(command: Command) -> str:
    name = command.token if isinstance(command, LaunchReplica) else command.replica_id
    return f"{type(command).__name__}({name},{command.reason.code})"
