"""The production engine in the simulated world: builds its snapshot, lets it decide, carries its commands out.

Signals are those of the live controller: goodput per busy replica-second times acceptance, averaged the same way
(`scaler.observe.averages`), the trainer's unblocked rate, buffer depth. Commands take effect at once; what the cloud makes
of them takes its time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.base import Registered
from scaler.decide.engine import decide
from scaler.decide.timing import AFTER_REFUSAL_S
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import (
    Command,
    DrainReplica,
    LaunchReplica,
    Memory,
    Plan,
    ReleaseReplicaWork,
    TerminateReplica,
    UndrainReplica,
)
from scaler.model.reading import MISSING, Reading
from scaler.model.snapshot import PoolView, ReplicaView, Signals, Snapshot, StageView
from scaler.model.spec import StageSpec
from scaler.observe.averages import DecayingRatio
from scaler.simulate.cloud import Cloud
from scaler.simulate.kernel import Kernel
from scaler.simulate.ledger import SimulatedLedger
from scaler.simulate.replica import Replica
from scaler.simulate.scenario import Scenario
from scaler.simulate.service import ServiceWork
from scaler.simulate.tally import Tally

AVERAGED_OVER_S = 600.0
AFTER_NOTICE_S = 2.0
"""From a notice to the decision that it wakes, an interval at most: it has to be heard of."""
SHORTEST_S = 1.0
"""Between decisions, or an interval where that is shorter."""
WITH_WORKER = frozenset({ReplicaPhase.LOADING, ReplicaPhase.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What commands do to the world."""

    drain: Callable[[Replica, float], None]
    """(replica, deadline)."""
    undrain: Callable[[Replica], None]
    release: Callable[[Replica], None]
    busy: Callable[[str], int]
    """Lanes taken, of all replicas of a stage."""


class Control:
    """See the module's docstring."""

    def __init__(
        self,
        scenario: Scenario,
        kernel: Kernel,
        cloud: Cloud,
        ledger: SimulatedLedger,
        services: dict[str, ServiceWork],
        tally: Tally,
        hands: Hands,
        others: Mapping[str, Registered] | None = None,
    ) -> None:
        self._others = others
        self._scenario, self._kernel, self._cloud, self._ledger = scenario, kernel, cloud, ledger
        self._services, self._tally, self._hands = services, tally, hands
        self.memory = Memory()
        self.last: tuple[Snapshot, Plan] | None = None
        self._due_s = 0.0
        self._goodput = {stage.name: DecayingRatio() for stage in scenario.fleet.stages}
        if scenario.rates_known:
            # Of before the start, when the fleet was at work: as in life it stays known where no replica is left.
            made = scenario.generation.concurrent_units / scenario.mean_unit_s
            self._goodput[scenario.fleet.stages[0].name].add(made * AVERAGED_OVER_S, AVERAGED_OVER_S, 0.0)
        self._seen: dict[str, tuple[float, int]] = {stage.name: (0.0, 0) for stage in scenario.fleet.stages}
        self._batch = scenario.job.batch_samples
        self._unblocked = scenario.unblocked_samples_per_s
        self._hand_for: dict[type[Command], Callable[[Any], None]] = {
            LaunchReplica: self._launch,
            DrainReplica: self._drain,
            UndrainReplica: self._undrain,
            ReleaseReplicaWork: self._release,
            TerminateReplica: self._terminate,
        }
        self._generating_ratio = 1.0 - scenario.generation.first_token_s / scenario.mean_unit_s

    def start(self) -> None:
        """Decide for the first time now."""
        self._kernel.at(self._kernel.now_s, self._turn)

    def noticed(self) -> None:
        """A notice: the live loop is woken by one."""
        self._wake(AFTER_NOTICE_S)

    def refused(self) -> None:
        """A refusal: likewise."""
        self._wake(AFTER_REFUSAL_S)

    def _wake(self, after_s: float) -> None:
        soon_s = self._kernel.now_s + min(after_s, self._scenario.fleet.interval_s)
        if self._due_s > soon_s:
            self._due_s = soon_s
            self._kernel.at(soon_s, self._turn)

    def _turn(self, _: None) -> None:
        now_s = self._kernel.now_s
        if now_s < self._due_s:
            return
        snapshot = self._snapshot()
        plan = decide(snapshot, self._scenario.fleet, self.memory, self._others)
        self.last = snapshot, plan
        self.memory = plan.memory
        for command in plan.commands:
            self._carry_out(command)
        self._show(plan)
        self._due_s = now_s + max(min(SHORTEST_S, self._scenario.fleet.interval_s), plan.look_again_in_s)
        self._kernel.at(self._due_s, self._turn)

    def _show(self, plan: Plan) -> None:
        self._tally.desired.set(self._kernel.now_s, plan.stages[0].desired)
        self._tally.buffered.set(self._kernel.now_s, self._ledger.ready_groups * self._scenario.job.group_size)
        self._tally.wasted(self._ledger.tokens_wasted)

    # commands

    def _carry_out(self, command: Command) -> None:
        hand = self._hand_for.get(type(command))
        if hand is None:
            raise TypeError(f"no hand for {command}")
        hand(command)

    def _launch(self, command: LaunchReplica) -> None:
        self._cloud.request(command.token, command.pool, command.offering_id)

    def _drain(self, command: DrainReplica) -> None:
        replica = self._cloud.replicas.get(command.replica_id)
        if replica is not None and not replica.gone:
            replica.drains(command.deadline_s, command.reason.code)
            self._hands.drain(replica, command.deadline_s)

    def _undrain(self, command: UndrainReplica) -> None:
        replica = self._cloud.replicas.get(command.replica_id)
        if replica is not None and not replica.gone:
            replica.drains(None, None)
            self._hands.undrain(replica)

    def _release(self, command: ReleaseReplicaWork) -> None:
        replica = self._cloud.replicas.get(command.replica_id)
        if replica is not None:
            self._hands.release(replica)

    def _terminate(self, command: TerminateReplica) -> None:
        replica = self._cloud.replicas.get(command.replica_id)
        if replica is not None:
            self._hands.release(replica)
            self._cloud.terminate(replica)

    # the snapshot

    def _snapshot(self) -> Snapshot:
        by_stage: dict[str, list[ReplicaView]] = {stage.name: [] for stage in self._scenario.fleet.stages}
        for replica in self._cloud.replicas.values():
            shown, leases = replica.shown, len(replica.leases)
            view = shown.get(leases)
            if view is None:
                view = shown[leases] = self.new_view(replica)
            by_stage[replica.stage].append(view)
        stages = tuple(
            StageView(
                name=stage.name,
                signals=self._signals(i, stage),
                pools=self._pools(stage),
                replicas=tuple(by_stage[stage.name]),
            )
            for i, stage in enumerate(self._scenario.fleet.stages)
        )
        return Snapshot(now_s=self._kernel.now_s, fleet=self._scenario.fleet.name, stages=stages)

    def _pools(self, stage: StageSpec) -> tuple[PoolView, ...]:
        return tuple(
            PoolView(
                name=pool.name,
                offerings=self._cloud.memory.views(pool.name, pool.offerings),
                listed_at_s=self._kernel.now_s,
            )
            for pool in stage.pools
        )

    def new_view(self, replica: Replica) -> ReplicaView:
        """The replica as observed.

        The version that it serves is left out: nothing that decides looks at it, and it would make every view a new one.
        """
        has_worker = replica.phase in WITH_WORKER or bool(replica.leases)
        granted = replica.granted_s is not None and not replica.gone
        pool, offering_id = replica.offering.key
        return ReplicaView(
            replica_id=replica.replica_id,
            pool=pool,
            offering_id=offering_id,
            phase=replica.shown_phase(),
            instance_ids=(f"i-{replica.replica_id}",) if granted else (),
            worker=replica.replica_id if has_worker else None,
            launched_at_s=replica.requested_s if replica.granted_s is None else replica.granted_s,
            ready_at_s=replica.ready_s,
            running_units=len(replica.leases) * self._scenario.job.group_size,
            unpublished_tokens=self._unpublished(replica),
            notice=replica.notice,
            drain_deadline_s=replica.drain_deadline_s,
            drain_reason=replica.drain_reason,
            launch_token=replica.replica_id,
        )

    def _unpublished(self, replica: Replica) -> int:
        """What a kill would lose on average: half an interval of publication of every unit in a lane."""
        generation = self._scenario.generation
        units = min(len(replica.leases) * self._scenario.job.group_size, generation.concurrent_units)
        return int(units * self._generating_ratio * generation.tokens_per_s * generation.progress_s / 2)

    def _signals(self, index: int, stage: StageSpec) -> Signals:
        now_s, size = self._kernel.now_s, self._scenario.job.group_size
        service = self._services.get(stage.name)
        # A stage's buffer is all that waits between it and the trainer: what the stages behind it have not taken is its depth.
        behind = sum(len(self._services[other.name].queue) for other in self._scenario.fleet.stages[index + 1 :])
        buffered = (self._ledger.ready_groups + behind) * size
        pending = len(service.queue) if service else self._ledger.waiting + self._ledger.admissible_groups
        running = service.running if service else len(self._ledger.running)
        return Signals(
            buffered_samples=Reading(float(buffered), now_s),
            ready_groups=Reading(float(self._ledger.ready_groups), now_s),
            pending_units=Reading(float(pending * size), now_s),
            running_units=Reading(float(running * size), now_s),
            unblocked_rate_per_s=self._unblocked_rate(),
            goodput_per_replica_per_s=self._goodput_of(stage, service),
            acceptance_ratio=Reading(self._scenario.acceptance_ratio, now_s),
            queue_age_s=Reading(self._ledger.ready_groups * size / self._unblocked, now_s),
            policy_version=Reading(float(self._ledger.version), now_s),
            batch_samples=self._batch,
            batches_per_version=self._scenario.job.batches_per_version,
            max_staleness=self._scenario.job.max_staleness,
        )

    def _unblocked_rate(self) -> Reading:
        """Known from the first batch on: a trainer that begins has nothing to tell."""
        known = self._scenario.rates_known or self._ledger.trained > 0
        return Reading(self._unblocked, self._kernel.now_s) if known else MISSING

    def _goodput_of(self, stage: StageSpec, service: ServiceWork | None) -> Reading:
        """Accepted samples per busy replica-second, as the live controller averages it."""
        now_s = self._kernel.now_s
        completed = service.completed if service else self._ledger.completed_here
        before_s, before = self._seen[stage.name]
        self._seen[stage.name] = now_s, completed
        elapsed_s = now_s - before_s
        lanes = service.lanes if service else self._scenario.lanes_per_replica
        ratio = self._goodput[stage.name]
        if elapsed_s > 0 and completed:
            part = (completed - before) * self._scenario.job.group_size
            ratio.add(part, elapsed_s * self._hands.busy(stage.name) / lanes, elapsed_s / AVERAGED_OVER_S)
        return MISSING if ratio.value is None else Reading(ratio.value * self._scenario.acceptance_ratio, now_s)
