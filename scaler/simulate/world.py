"""The simulated world: cloud, stations, ledger, trainer and the production engine on one agenda.

Policy: the world starts warm and in the middle of its work: warm replicas are ready, each lane has a group at a phase that
the seed gives, long tails of earlier groups still run, and the buffer holds `warm_depth_samples`.

Invariants (`check`, to be asked after any event): those of the ledger and the cloud; no lease is held by two; no lane is
free while there is work for it; the controller is shown replicas as they are; a run depends on scenario and seed alone.
Non-goals: networks, clocks that disagree, stores that fail: those are the fault schedules' business.
"""

import time
from collections.abc import Callable, Mapping

from policies.base import Registered
from scaler.simulate.cloud import Callbacks, Cloud
from scaler.simulate.consumer import SimulatedTrainer
from scaler.simulate.control import Control, Hands
from scaler.simulate.delays import draw
from scaler.simulate.groups import Group
from scaler.simulate.kernel import Kernel
from scaler.simulate.ledger import SimulatedLedger
from scaler.simulate.replica import Replica
from scaler.simulate.result import Run, Summary
from scaler.simulate.scenario import Scenario, warm_start
from scaler.simulate.service import ServiceWork
from scaler.simulate.station import Station
from scaler.simulate.tally import HOUR_S, Tally

LONG_AGO_S = 30 * 24 * HOUR_S
"""Age of warm replicas: past every refund."""


def simulate(
    scenario: Scenario,
    seed: int = 0,
    *,
    watch: "Callable[[World], None] | None" = None,
    passed: Callable[[float], None] | None = None,
    others: Mapping[str, Registered] | None = None,
) -> Run:
    """Run a scenario to its end. `watch`, `passed`: see `World.run`; `others`: see `scaler.decide.engine.decide`."""
    world = World(scenario, seed, others)
    world.run(watch, passed)
    return world.result()


class World:
    """See the module's docstring."""

    def __init__(self, scenario: Scenario, seed: int, others: Mapping[str, Registered] | None = None) -> None:
        self._wall_s = time.perf_counter()
        self.scenario, self.seed = scenario, seed
        self.kernel = Kernel()
        self.tally = Tally(scenario, self.kernel)
        self.ledger = SimulatedLedger(scenario, self.kernel, seed)
        callbacks = Callbacks(
            ready=self._ready,
            lost=self._lost,
            refused=self._refused,
            noticed=self._noticed,
        )
        self.cloud = Cloud(scenario, self.kernel, seed, self.tally, callbacks)
        self.trainer = SimulatedTrainer(scenario, self.kernel, self.ledger, self._swap)
        self._margin_s = {stage.name: stage.drain.margin_s for stage in scenario.fleet.stages}
        self.services = self._services()
        self.stations = self._stations()
        hands = Hands(
            drain=self._drain,
            undrain=self._undrain,
            release=self._release,
            busy=lambda stage: self.stations[stage].taken.busy,
        )
        self.control = Control(scenario, self.kernel, self.cloud, self.ledger, self.services, self.tally, hands, others)
        self.rollout = self.stations[scenario.fleet.stages[0].name]
        self.ledger.leave = self.rollout.drop
        self.ledger.lanes = self.rollout.taken
        self.ledger.released = self._released
        self._warm_up()
        self.start_stock_samples = self.ledger.stock_samples()

    def run(
        self, watch: "Callable[[World], None] | None" = None, passed: Callable[[float], None] | None = None
    ) -> None:
        """Let time pass to the end. `watch` is called after every event, `passed` now and then with the time (seconds)."""
        self.control.start()
        self.trainer.look()
        after = None if watch is None else lambda: watch(self)
        self.kernel.run(self.scenario.end_s, after, passed)
        self.cloud.settle()

    # putting together

    def _services(self) -> dict[str, ServiceWork]:
        """Each hands its groups to the one after it, the last one to the buffer."""
        found: dict[str, ServiceWork] = {}
        onwards: Callable[[Group], None] = self.ledger.reviewed
        for stage in reversed(self.scenario.services):
            work = ServiceWork(stage, self.scenario.job.group_size, self.seed, onwards)
            found[stage.name] = work
            onwards = self._queue_of(work, stage.name)
        if found:
            self.ledger.after_rollout = onwards
        return found

    def _queue_of(self, work: ServiceWork, stage: str) -> Callable[[Group], None]:
        def enqueue(group: Group) -> None:
            work.queue.append(group)
            self.stations[stage].dispatch()

        return enqueue

    def _stations(self) -> dict[str, Station]:
        first, *others = (stage.name for stage in self.scenario.fleet.stages)
        stations = {first: Station(self.kernel, self.scenario.lanes_per_replica, self.ledger)}
        for name in others:
            work = self.services[name]
            stations[name] = Station(self.kernel, work.lanes, work)
        return stations

    def _warm_up(self) -> None:
        self._fill_buffer()
        names = iter(range(1_000_000))
        models = {model.key: model for model in self.scenario.offerings}
        for key, count in warm_start(self.scenario).items():
            for _ in range(count):
                replica = self.cloud.warm(f"warm.{next(names)}", models[key], LONG_AGO_S)
                replica.free_lanes = self.rollout.lanes
                self._fill_lanes(replica)
                self.rollout.open(replica)

    def _fill_buffer(self) -> None:
        groups = min(self.scenario.warm_depth_samples // self.scenario.job.group_size, self.ledger.admissible_groups)
        for _ in range(groups):
            self.ledger.buffer_warm()

    def _fill_lanes(self, replica: Replica) -> None:
        """Each lane in the middle of a group, and the tails of the groups before it."""
        lane_s, made = self.scenario.mean_unit_s, self.scenario.generation
        for lane in range(self.rollout.lanes):
            ago_s = lane_s * draw(self.seed, "phase", replica.replica_id, lane)
            while True:
                tokens_each = max(0.0, ago_s - made.first_token_s) * made.tokens_per_s
                group = self.ledger.next_warm(tokens_each, in_lane=ago_s < lane_s)
                if group is None:
                    break
                self.rollout.start(replica, group, ago_s)
                ago_s += lane_s

    # what happens

    def _ready(self, replica: Replica) -> None:
        station = self.stations[replica.stage]
        replica.free_lanes = station.lanes
        if replica.leases_now:
            station.open(replica)

    def _lost(self, replica: Replica) -> None:
        """Its leases run out, unless the controller gives them back before."""
        self.stations[replica.stage].stop(replica)
        self.tally.lost(replica)
        lost_at_s = self.kernel.now_s
        replica.lost_at_s = lost_at_s
        if replica.leases:
            self.kernel.at(lost_at_s + self.scenario.generation.lease_ttl_s, self._release, replica)

    def _swap(self) -> None:
        """New weights: every ready rollout replica pauses."""
        pause_s = self.scenario.generation.swap_s * self.rollout.lanes
        first = self.scenario.fleet.stages[0].name
        for replica in self.cloud.replicas.values():
            if replica.stage == first and replica.leases_now:
                replica.pause_debt_s += pause_s

    def _drain(self, replica: Replica, deadline_s: float) -> None:
        """What does not end a margin before the deadline goes back then, with all its progress."""
        self.stations[replica.stage].close(replica)
        margin_s = self._margin_s[replica.stage]
        self.kernel.at(deadline_s - margin_s, self._hand_over, (replica, deadline_s))

    def _hand_over(self, ordered: tuple[Replica, float]) -> None:
        replica, deadline_s = ordered
        if not replica.gone and replica.drain_deadline_s == deadline_s:
            self.stations[replica.stage].give_back(replica, self.kernel.now_s, published=True)

    def _undrain(self, replica: Replica) -> None:
        if replica.leases_now:
            self.stations[replica.stage].open(replica)

    def _release(self, replica: Replica) -> None:
        """Whatever it still holds goes on elsewhere from what was published."""
        at_s = self.kernel.now_s if replica.lost_at_s is None else replica.lost_at_s
        self.stations[replica.stage].give_back(replica, at_s, published=False)
        if replica.gone:
            self.cloud.replicas.pop(replica.replica_id, None)

    def _refused(self) -> None:
        self.control.refused()

    def _noticed(self) -> None:
        self.control.noticed()

    def _released(self) -> None:
        self.rollout.dispatch()
        self.trainer.look()

    # what came of it

    def check(self) -> list[str]:
        """What is broken; empty where nothing is."""
        held = [lease for replica in self.cloud.replicas.values() for lease in replica.leases.values()]
        first = self.scenario.fleet.stages[0].name
        rollout = [lease for lease in held if lease.holder.stage == first]
        broken = self.ledger.check() + self.cloud.check()
        if {lease.group.number for lease in rollout} != set(self.ledger.running) or len(rollout) != len(
            self.ledger.running
        ):
            broken.append(f"{len(rollout)} leases held, {len(self.ledger.running)} known to the ledger")
        broken += [
            f"{lease.group.number} goes on with one that is gone, or stands still with one that is there"
            for lease in held
            if lease.live is lease.holder.gone
        ]
        broken += [
            f"{replica.replica_id} is shown as it was once"
            for replica in self.cloud.replicas.values()
            if (view := replica.shown.get(len(replica.leases))) is not None and view != self.control.new_view(replica)
        ]
        broken += [f"{name} idles while there is work" for name in self._idle_beside_work()]
        return broken

    def _idle_beside_work(self) -> list[str]:
        work = {name: len(service.queue) for name, service in self.services.items()}
        work[self.scenario.fleet.stages[0].name] = self.ledger.waiting + self.ledger.admissible_groups
        return [name for name, station in self.stations.items() if station.idles and work[name]]

    def result(self) -> Run:
        """Figures and timeline of a world that has run."""
        waits = list(self.trainer.waits)
        if self.trainer.waiting_since_s is not None:
            waits.append((self.trainer.waiting_since_s, self.kernel.now_s))
        return Run(summary=self._summary(), timeline=self.tally.timeline(waits))

    def _summary(self) -> Summary:
        scenario, ledger, tally, end_s = self.scenario, self.ledger, self.tally, self.scenario.end_s
        size, hours = scenario.job.group_size, end_s / HOUR_S
        trainer_usd = scenario.trainer.usd_per_h * hours
        cost_usd = trainer_usd + sum(tally.rent_usd.values())
        end_stock = ledger.stock_samples()
        credited = ledger.trained * size + min(0.0, end_stock - self.start_stock_samples)
        return Summary(
            scenario=scenario.name,
            policy=scenario.fleet.stages[0].sizing.name,
            seed=self.seed,
            hours=hours,
            cost_usd=cost_usd,
            samples_trained=ledger.trained * size,
            samples_credited=credited,
            cost_usd_per_1k_samples=cost_usd / credited * 1000.0 if credited > 0 else float("inf"),
            trainer_wait_ratio=self.trainer.waited_s() / end_s,
            interruptions=tally.interruptions,
            interruptions_unnoticed=tally.unnoticed,
            kills_at_work=tally.kills_at_work,
            tokens_generated=round(ledger.tokens_generated),
            tokens_salvaged=round(ledger.tokens_salvaged),
            tokens_wasted=round(ledger.tokens_wasted),
            tokens_lost=round(ledger.tokens_lost),
            tokens_stale=round(ledger.tokens_stale),
            replicas_mean=tally.ready_seconds() / end_s,
            wall_s=time.perf_counter() - self._wall_s,
            policy_updates=self.trainer.updates,
            cost_trainer_usd=trainer_usd,
            cost_by_capacity_usd={str(kind): usd for kind, usd in tally.rent_usd.items()},
            refunds_usd=tally.refunds_usd,
            launches=tally.launches,
            refusals=tally.refusals,
            samples_dropped=ledger.dropped * size,
            samples_filtered=ledger.filtered * size,
            end_stock_samples=end_stock,
            start_stock_samples=self.start_stock_samples,
        )
