"""A world: controller, workers, trainer, store and cloud, all production but the last, in time that only this file moves.

Faults come down on it for two minutes of its time. Then they stop, a size is ordered, no more prompts come, and the
world must come to rest: the fleet at that size, every unit trained on or visibly dropped, the ledger's audit clean.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from scaler.act.base import InstanceState
from scaler.ledger.audit import audit
from scaler.ledger.contract import UnitState
from scaler.model.job import WorkerIdentity, WorkerStatus
from scaler.model.spec import FleetSpec
from tests.faults.cloud import TRAINER_INSTANCE, TRAINER_WORKER, Cloud, Troubles
from tests.faults.controller_process import Plug
from tests.faults.hosts import WorkerHosts, worker_of
from tests.faults.kinds import FAULTS
from tests.faults.leaders import Leaders
from tests.faults.ledger_rules import LedgerRules
from tests.faults.plan_rules import PlanRules
from tests.faults.schedule import CALM_S, Fault, Schedule
from tests.faults.setup import RESERVE, SPOT, static_size, with_stage
from tests.faults.store import Store
from tests.faults.trainers import Trainers
from tests.faults.training_record import TrainingRecord
from tests.faults.virtual_loop import HostClock, VirtualLoop
from tests.faults.watch import Watch

_LONGEST_CALM_S = 500.0
"""The fleet is lowered one by one with cool-downs between, and a notice without a deadline is waited for 150 s."""
_CENSUS_EVERY_S = 10.0
_SAME_DEADLINE_S = 2.0


class Over(BaseException):
    """The schedule has ended."""


class World:
    """See the module's docstring."""

    def __init__(self, schedule: Schedule, folder: Path, say: Callable[[str], None] | None = None) -> None:
        seed, job = schedule.seed, schedule.setup.job
        self._schedule = schedule
        self._random = Random(f"world/{seed}")
        self.loop = VirtualLoop()
        self.watch = Watch(self.loop.time, say)
        self.controller_clock, self.store_clock = HostClock(self.loop), HostClock(self.loop)
        self.store_clock.ahead_s = self._random.choice((0.0, 0.0, 700.0, -300.0))
        self.fleet = schedule.setup.fleet
        self.plug = Plug(Random(f"plug/{seed}"))
        capacity = {offering.offering_id: 5 for offering in (*SPOT, *RESERVE)}
        self.cloud = Cloud(self.loop, Random(f"cloud/{seed}"), self.watch, capacity)
        self.record = TrainingRecord(self.watch)
        self.store = Store(folder, self.store_clock, Random(f"store/{seed}"), self.watch, self.later)
        self.rules = LedgerRules(self.watch, job, self.record)
        self.store.watched_by(self.rules, self._drain_told)
        self.plans = PlanRules(self.watch, self.controller_clock, self._signals_are_fresh, self.cloud.came_and_went)
        self.trainers = Trainers(
            folder=folder,
            loop=self.loop,
            store=self.store,
            job=job,
            record=self.record,
            rules=self.rules,
            watch=self.watch,
            advance=self._advance,
        )
        self.hosts = WorkerHosts(
            self.cloud, self.store, self.watch, Random(f"hosts/{seed}"), lambda: self.trainers.newest_version
        )
        self.cloud.hosts = self.hosts
        self.leaders = Leaders(
            folder=folder,
            clock=self.controller_clock,
            cloud=self.cloud,
            store=self.store,
            job=job,
            spec=lambda: self.fleet,
            plug=self.plug,
            rules=self.rules,
            plans=self.plans,
            watch=self.watch,
        )
        self._calm = False
        self._size = 0

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """From the start to rest, or to the first broken promise."""
        try:
            self._begin()
            try:
                while True:
                    self.trainers.run()
            except Over:
                pass
            if not self.watch.broken:
                self._end()
        finally:
            self._stop()

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something in a while, unless the faults are over by then."""
        self.loop.call_later(seconds, self._unless_calm, what)

    def change_fleet(self, fleet: FleetSpec) -> None:
        """Another configuration from now on."""
        self.fleet = fleet
        self.plug.spec_changes += 1
        self.leaders.wake()

    def _begin(self) -> None:
        self._direct("configure", self._schedule.setup.job)
        self._direct(
            "register", WorkerIdentity(worker=TRAINER_WORKER, replica_id="trainer", instance_id=TRAINER_INSTANCE)
        )
        self._direct("heartbeat", TRAINER_WORKER, (), WorkerStatus(ready=True, version=0), 1e9)
        self.leaders.start()
        for fault in self._schedule.faults:
            self.loop.call_at(fault.at_s, self._strike, fault)
        self.loop.call_at(CALM_S, self._calm_down)
        self.loop.call_at(_CENSUS_EVERY_S, self._take_census)

    def _strike(self, fault: Fault) -> None:
        self.watch.event("FAULT", fault.kind)
        FAULTS[fault.kind](self, Random(fault.seed))

    def _advance(self, seconds: float) -> None:
        """Let the world go on; a trainer calls this too, and may die in it."""
        end_s = self.loop.time() + seconds
        while self.loop.time() < end_s:
            self.loop.run_until_s(min(end_s, self.loop.time() + 2.0))
            if self.watch.broken or self._is_over():
                raise Over

    def _take_census(self) -> None:
        self.loop.call_later(_CENSUS_EVERY_S, self._take_census)
        self.rules.check_census(self.store.direct)

    def _stop(self) -> None:
        self.hosts.stop()
        self.leaders.stop()
        self.loop.run_until_s(self.loop.time() + 0.001)
        self.store.close()
        self.loop.close()

    def _direct(self, method: str, *args: object) -> Any:
        return self.store.call("world", method, args)

    def _unless_calm(self, what: Callable[[], None]) -> None:
        if not self._calm:
            what()

    # --- the truth, for the rules -----------------------------------------------------------------------------------

    def _signals_are_fresh(self, policy: str) -> bool:
        """Whether all that a sizing policy needs is known, and no older than it may be."""
        if policy == "static":
            return True
        now_s, max_age_s = self.loop.time(), self.fleet.stages[0].guard_rails.signal_max_age_s
        gap_s = now_s - self.plug.gap_began_s
        if self.plug.gap is not None and (self.plug.gap != "stale" or gap_s > max_age_s):
            return False
        ages = [now_s - self.store.answered_s(self.leaders.client, "stats")]
        if policy == "rate_match":
            # A report is dated by the store: where that one's clock steps, its age does, and nobody can tell.
            ages.append(self.store_clock.now_s() - self.store.reported_s)
        return max(ages) <= max_age_s + 0.1

    def _drain_told(self, worker: str, deadline_s: float) -> None:
        """A noticed worker hears the deadline of its notice, on the store's clock."""
        machine = self.cloud.machines.get(worker.removeprefix("w-"))
        if machine is None or machine.notice is None:
            return
        told = self.plans.told.deadlines_s(machine.instance_id)
        clocks = (self.controller_clock, self.store_clock)
        if not told or any(self.loop.time() - clock.stepped_at_s < 60.0 for clock in clocks):
            return
        ahead_s = self.store_clock.ahead_s - self.controller_clock.ahead_s
        if deadline_s - ahead_s > min(told) + _SAME_DEADLINE_S:
            self.watch.broke("deadline", f"{worker} goes at {min(told):.1f} and is told {deadline_s - ahead_s:.1f}")

    # --- rest -------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """Everything that went wrong ends, and a last size is ordered."""
        self._calm = True
        self.cloud.troubles = Troubles()
        self.cloud.capacity = dict.fromkeys(self.cloud.capacity, 6)
        self.hosts.engines.infrastructure = self.hosts.engines.slow_call = 0.0
        self.hosts.engines.speed = 6
        self.hosts.end_old()
        self.store.loss = self.store.doubles_until_s = 0.0
        self.store.away_until_s.clear()
        self.store.full = True
        self.plug.gap, self.plug.crash_at, self.plug.ledger_hangs_until_s = None, None, 0.0
        self.trainers.kill_at, self.trainers.away_s, self.leaders.away_s = None, 0.5, 0.5
        rails = replace(self.fleet.stages[0].guard_rails, max_spend_usd_per_h=100.0)
        self._size = max(1, min(rails.max_replicas, 4, self.plans.desired_now + self._random.choice((-1, -1, 0, 1))))
        fleet = with_stage(replace(self.fleet, paused=False, dry_run=False), guard_rails=rails)
        self.change_fleet(static_size(fleet, self._size))
        self.watch.event("CALM", "size", self._size)

    def _is_over(self) -> bool:
        if not self._calm:
            return False
        if self.loop.time() > CALM_S + _LONGEST_CALM_S:
            self.watch.broke("convergence", self._unrest() or self._unfinished() or "")
            return True
        return self._unfinished() is None and self._unrest() is None

    def _unrest(self) -> str | None:
        """Why the fleet is not at its size, or None."""
        living = self.cloud.living()
        if len(living) != self._size:
            return f"{len(living)} instances live, {self._size} are wanted"
        for machine in living:
            process = self.hosts.processes.get(machine.instance_id)
            worker = self.rules.tally.workers.get(worker_of(machine))
            if machine.state is not InstanceState.RUNNING or process is None or not process.alive or worker is None:
                return f"{machine.instance_id} is {machine.state} without a worker"
            if worker.gone or worker.drain_deadline_s is not None or not process.machine.ready:
                return f"{machine.instance_id}: its worker is not ready, or draining"
        if self.leaders.now is None or self.leaders.now.open_business():
            return "the controller is away, or has open business"
        return None if self.plans.desired_now == self._size else f"desired is {self.plans.desired_now}"

    def _unfinished(self) -> str | None:
        """What the trainer still waits for, or None where what is left makes no whole batch."""
        tally, job = self.rules.tally, self._schedule.setup.job
        waiting = tally.counts[UnitState.PENDING] + tally.counts[UnitState.LEASED]
        if waiting or tally.taken:
            return f"{waiting} units wait or run, {len(tally.taken)} groups are in a batch"
        left = tally.counts[UnitState.COMMITTED]
        return f"{left} samples wait" if left >= job.batch_samples else None

    def _end(self) -> None:
        """The rest is taken group by group; then nothing may be left, and the audit must be clean."""
        epoch, step = self._direct("attach_trainer", "sweep"), self.record.durable_step
        while batch := self._direct("take_batch", epoch, 1, step, self._schedule.setup.job.max_staleness):
            self.record.trained(batch.batch_id, tuple(group.group_id for group in batch.groups))
            state = self.record.states[-1]
            self.record.save(state.consumed(batch.batch_id, state.next_prompt))
            self._direct("ack_batch", epoch, [batch.batch_id])
        self.rules.check_census(self.store.direct)
        if self.rules.tally.open_units:
            self.watch.broke("left over", f"{self.rules.tally.open_units} units are neither trained nor dropped")
        for finding in audit(self.store.direct).findings:
            self.watch.broke("audit", f"{finding.fault}: {finding.subject}: {finding.message}")
