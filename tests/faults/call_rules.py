"""What must hold at the moment a controller calls the cloud: it names only what is ours, drained and not the cloud's to take."""

from collections.abc import Callable

from scaler.act.base import LaunchOutcome, LaunchResult
from scaler.model.interruption import InterruptionNotice
from scaler.model.plan import LaunchReplica, TerminateReplica
from scaler.model.spec import FleetSpec
from scaler.runtime.launcher import THROTTLE_WAIT_S
from tests.faults.cloud import Cloud, Machine
from tests.faults.plan_rules import PlanRules
from tests.faults.tally import Tally, WorkerFacts
from tests.faults.virtual_loop import START_S, HostClock
from tests.faults.watch import Watch

_ROUNDING_S = 1e-6
_JUST_REGISTERED_S = 15.0
"""A worker that registers while the order to end its instance is under way cannot be known."""


class ControllerCallRules:
    """Made anew for each controller process; `lost_place` says that the process may not call any more."""

    def __init__(
        self,
        watch: Watch,
        clock: HostClock,
        cloud: Cloud,
        tally: Tally,
        plans: PlanRules,
        spec: Callable[[], FleetSpec],
        registered_s: dict[str, float],
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._cloud = cloud
        self._tally = tally
        self._plans = plans
        self._spec = spec
        self._registered_s = registered_s
        self._throttled_s: dict[str, float] = {}
        self.lost_place = False

    def listed(self, pool: str, machines: tuple[Machine, ...]) -> None:
        """See `CallRules`."""
        self._plans.told.lists[pool] = {machine.replica_id: machine.token for machine in machines}

    def notices_told(self, notices: tuple[InterruptionNotice, ...]) -> None:
        """See `CallRules`."""
        self._plans.told.notices = notices

    def launch_called(self, command: LaunchReplica) -> None:
        """See `CallRules`."""
        self._watch.event("calls launch", command.token, command.offering_id)
        self._check_place("launch")
        if self._since_throttled_s(command.pool) + _ROUNDING_S < THROTTLE_WAIT_S:
            self._watch.broke("throttling", f"{command.pool} was called again right after it throttled")
        if not self._plans.is_persisted(command):
            self._watch.broke(
                "journal", f"{command.token} was called for before it was persisted, or is another launch"
            )

    def launch_answered(self, command: LaunchReplica, outcome: LaunchOutcome) -> None:
        """See `CallRules`."""
        self._watch.event("launch answered", command.token, outcome.result)
        if outcome.result is LaunchResult.THROTTLED:
            if self._since_throttled_s(command.pool) >= THROTTLE_WAIT_S:
                self._throttled_s[command.pool] = self._clock.monotonic_s()
            return
        self._throttled_s.pop(command.pool, None)
        refused = outcome.result not in (LaunchResult.LAUNCHED, LaunchResult.ALREADY)
        self._plans.launch_answered(command, refused=refused)

    def _since_throttled_s(self, pool: str) -> float:
        return self._clock.monotonic_s() - self._throttled_s.get(pool, float("-inf"))

    def terminate_called(self, command: TerminateReplica, machines: tuple[Machine, ...]) -> None:
        """See `CallRules`."""
        self._watch.event("calls end", command.replica_id, command.reason.code)
        self._check_place("end")
        ours = {machine.instance_id for machine in machines}
        foreign = set(command.instance_ids) - ours
        if foreign:
            self._watch.broke(
                "trainers untouchable", f"{command.replica_id} names {sorted(foreign)}, which are not ours"
            )
        for machine in machines:
            if machine.replica_id != command.replica_id:
                self._watch.broke("end", f"{machine.instance_id} is not of {command.replica_id}")
            self._check_end(machine)

    def _check_place(self, what: str) -> None:
        if self.lost_place:
            self._watch.broke("leadership", f"a controller called {what} after it had lost its place")

    def _check_end(self, machine: Machine) -> None:
        name = f"w-{machine.instance_id}"
        worker = self._tally.workers.get(name)
        held = self._tally.held_by(name)
        if held and not self._cannot_know(name):
            self._watch.broke("end", f"{machine.instance_id} holds {held}")
        if worker is not None and not self._may_go(worker, name):
            self._watch.broke("end", f"{machine.instance_id} would be ended and its worker was never told to drain")
        self._check_notice(machine)

    def _may_go(self, worker: WorkerFacts, name: str) -> bool:
        return worker.gone or worker.drain_deadline_s is not None or self._cannot_know(name)

    def _cannot_know(self, name: str) -> bool:
        return self._clock.monotonic_s() - self._registered_s.get(name, float("-inf")) < _JUST_REGISTERED_S

    def _check_notice(self, machine: Machine) -> None:
        """Until its deadline and a while, a noticed instance is the cloud's to take."""
        known = self._plans.told.deadlines_s(machine.instance_id)
        if not known:
            return
        due_s = min(known) + self._spec().stages[0].drain.reap_after_s
        now_s = max(self._clock.now_s(), START_S + self._clock.monotonic_s())
        if now_s < due_s - 1.0 and self._clock.monotonic_s() - self._clock.stepped_at_s > 30.0:
            self._watch.broke("notice", f"{machine.instance_id} is noticed and ended {due_s - now_s:.0f} s too early")
