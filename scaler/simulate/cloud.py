"""The cloud of a simulated world: grants and refuses, boots and loads, gives notice and takes away, and is paid.

All draws are keyed by seed, offering and slot (or request number), so that two policies that hold the same slots meet the
same luck. See `scenario` for the accounting.

Invariants: an offering never grants above its count; every granted replica is charged exactly once.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scaler.model.capacity import ReplicaPhase
from scaler.model.interruption import InterruptionNotice, NoticeKind
from scaler.observe.offerings import OfferingMemory
from scaler.simulate.delays import draw
from scaler.simulate.kernel import Kernel
from scaler.simulate.replica import OfferingState, Replica
from scaler.simulate.scenario import AgeHazard, OfferingModel, Scenario
from scaler.simulate.tally import HOUR_S, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What the rest of the world does when a replica becomes ready or is lost, and when a launch is refused or a notice comes."""

    ready: Callable[[Replica], None]
    lost: Callable[[Replica], None]
    """It is gone with what it held."""
    refused: Callable[[], None]
    noticed: Callable[[], None]


class Cloud:
    """See the module's docstring."""

    def __init__(self, scenario: Scenario, kernel: Kernel, seed: int, tally: Tally, callbacks: Callbacks) -> None:
        self._scenario, self._kernel, self._seed = scenario, kernel, seed
        self._tally, self._call = tally, callbacks
        self._stage_of = {pool.name: stage.name for stage in scenario.fleet.stages for pool in stage.pools}
        self.offerings: Mapping[tuple[str, str], OfferingState] = {
            model.key: OfferingState(model, model.capacity.at(0.0)) for model in scenario.offerings
        }
        self.memory = OfferingMemory()
        self.replicas: dict[str, Replica] = {}
        """Requested and not ended; those lost stay while they hold leases."""
        for state in self.offerings.values():
            self._plan_capacity(state)
        self._plan_bursts()

    def _plan_capacity(self, state: OfferingState) -> None:
        for time_s, count in state.model.capacity.changes():
            if 0.0 < time_s < self._scenario.end_s:
                self._kernel.at(time_s, self._count_changes, (state, count))

    # launching

    def warm(self, replica_id: str, model: OfferingModel, age_s: float) -> Replica:
        """A replica that has been ready since long ago."""
        state = self.offerings[model.key]
        replica = Replica(replica_id, self._stage_of[model.pool], state, -age_s)
        self.replicas[replica_id] = replica
        self._occupy(replica, -age_s)
        replica.is_ready(0.0)
        self._tally.ready(replica, 1)
        self._plan_lifetime(replica, 0, age_s)
        return replica

    def request(self, token: str, pool: str, offering_id: str) -> None:
        """Ask for one replica more."""
        state = self.offerings[pool, offering_id]
        replica = Replica(token, self._stage_of[pool], state, self._kernel.now_s)
        self.replicas[token] = replica
        self._tally.launches += 1
        state.asked += 1
        answer_s = self._scenario.launch.answer.at(draw(self._seed, *state.key, "answer", state.asked))
        self._kernel.at(self._kernel.now_s + answer_s, self._answer, replica)

    def _answer(self, replica: Replica) -> None:
        if replica.gone:
            return
        state = replica.offering
        if len(state.held) >= state.count:
            self._tally.refusals += 1
            self.memory.refused(*state.key, self._kernel.now_s, replica.requested_s)
            self._forget(replica)
            self._call.refused()
            return
        self.memory.launched(*state.key)
        occupant = self._occupy(replica, self._kernel.now_s)
        launch, key = self._scenario.launch, (*state.key, replica.slot, occupant)
        if draw(self._seed, *key, "fails") >= launch.failure_ratio:
            boot_s = launch.boot.at(draw(self._seed, *key, "boot"))
            load_s = launch.load.at(draw(self._seed, *key, "load"))
            self._kernel.at(self._kernel.now_s + boot_s, self._registers, (replica, load_s))
        self._plan_lifetime(replica, occupant)

    def _occupy(self, replica: Replica, granted_s: float) -> int:
        """Take a slot; how often it was taken before."""
        state = replica.offering
        replica.is_granted(state.free_slot(), granted_s)
        state.held[replica.slot] = replica
        self._tally.held(state, 1)
        occupant = state.occupants.get(replica.slot, 0)
        state.occupants[replica.slot] = occupant + 1
        return occupant

    def _registers(self, launched: tuple[Replica, float]) -> None:
        replica, load_s = launched
        if not replica.gone:
            replica.registers()
            self._kernel.at(self._kernel.now_s + load_s, self._becomes_ready, replica)

    def _becomes_ready(self, replica: Replica) -> None:
        if replica.gone:
            return
        replica.is_ready(self._kernel.now_s)
        self.memory.became_ready(*replica.offering.key)
        self._tally.ready(replica, 1)
        self._call.ready(replica)

    # taking away

    def _count_changes(self, change: tuple[OfferingState, int]) -> None:
        state, count = change
        fell = count < state.count
        state.count = count
        if fell and state.model.reclaims:
            state.falls += 1
            staying = [replica for replica in state.held.values() if not replica.doomed]
            excess = len(staying) - count
            staying.sort(key=lambda replica: draw(self._seed, *state.key, replica.slot, "fall", state.falls))
            for replica in staying[: max(0, excess)]:
                self._doom(replica, state.falls)

    def _doom(self, replica: Replica, event: int) -> None:
        """The cloud takes it, with or without notice, at its own moment."""
        replica.doomed = True
        notices, key = self._scenario.notices, (*replica.offering.key, replica.slot, event)
        begins_s = self._kernel.now_s + notices.spread_s * draw(self._seed, *key, "moment")
        kind = draw(self._seed, *key, "notice")
        if kind < notices.none_ratio:
            self._kernel.at(begins_s, self._taken, replica)
            return
        gone_s = begins_s + notices.lead_s
        told_s = begins_s
        if kind < notices.none_ratio + notices.late_ratio:
            span_s = notices.late_most_s - notices.late_least_s
            told_s = gone_s - min(notices.lead_s, notices.late_least_s + span_s * draw(self._seed, *key, "late"))
        self._kernel.at(told_s, self._tell, (replica, gone_s))
        self._kernel.at(gone_s, self._taken, replica)

    def _tell(self, told: tuple[Replica, float]) -> None:
        replica, gone_s = told
        if replica.gone:
            return
        now_s = self._kernel.now_s
        notice = InterruptionNotice(
            instance_id=f"i-{replica.replica_id}",
            kind=NoticeKind.SPOT_INTERRUPTION,
            noticed_at_s=now_s,
            deadline_s=gone_s,
        )
        replica.is_noticed(notice)
        self.memory.reclaiming(*replica.offering.key, now_s)
        self._call.noticed()

    def _taken(self, replica: Replica) -> None:
        if not replica.gone:
            self._lose(replica, refundable=True)

    def _fails(self, replica: Replica) -> None:
        if not replica.gone:
            self._lose(replica, refundable=False)

    def _lose(self, replica: Replica, *, refundable: bool) -> None:
        self._tally.interruptions += 1
        if replica.notice is None:
            self._tally.unnoticed += 1
            was_ready = replica.phase is ReplicaPhase.READY
            self.memory.lost(*replica.offering.key, self._kernel.now_s, was_ready=was_ready)
        self._end(replica, taken=refundable)
        self._call.lost(replica)

    def _plan_lifetime(self, replica: Replica, occupant: int, age_s: float = 0.0) -> None:
        """Hazards that are drawn beforehand: by age (`age_s` is survived already), and hard failures."""
        key = (*replica.offering.key, replica.slot, occupant)
        hazard, now_s = replica.offering.model.hazard, self._kernel.now_s
        if hazard is not None:
            exposure = exposure_at(hazard, age_s) - math.log(draw(self._seed, *key, "life"))
            left_s = age_at(hazard, exposure) - age_s
            self._kernel.at(min(now_s + left_s, self._scenario.end_s), self._hazard_strikes, (replica, occupant))
        rate = self._scenario.hard_failures_per_h
        if rate > 0:
            life_s = -math.log(draw(self._seed, *key, "hard")) / rate * HOUR_S
            self._kernel.at(min(now_s + life_s, self._scenario.end_s), self._fails, replica)

    def _hazard_strikes(self, struck: tuple[Replica, int]) -> None:
        replica, occupant = struck
        if not replica.gone and not replica.doomed:
            self._doom(replica, -1 - occupant)

    def _plan_bursts(self) -> None:
        zones = {
            state.model.offering.zone: state.model.hazard
            for state in self.offerings.values()
            if state.model.hazard is not None and state.model.hazard.bursts_per_h > 0
        }
        for zone, hazard in zones.items():
            time_s, burst = 0.0, 0
            while True:
                time_s += -math.log(draw(self._seed, zone, "burst", burst)) / hazard.bursts_per_h * HOUR_S
                if time_s >= self._scenario.end_s:
                    break
                self._kernel.at(time_s, self._burst, (zone, burst))
                burst += 1

    def _burst(self, struck: tuple[str, int]) -> None:
        zone, burst = struck
        for state in self.offerings.values():
            hazard = state.model.hazard
            if hazard is None or state.model.offering.zone != zone:
                continue
            for replica in list(state.held.values()):
                key = (*state.key, replica.slot, "burst", burst)
                if not replica.doomed and draw(self._seed, *key) < hazard.burst_ratio:
                    self._doom(replica, -1_000_000 - burst)

    # ending

    def terminate(self, replica: Replica) -> None:
        """We end it: charged to this second, no refund."""
        if not replica.gone:
            self._end(replica, taken=False)

    def _end(self, replica: Replica, *, taken: bool) -> None:
        if replica.granted_s is not None:
            del replica.offering.held[replica.slot]
            self._tally.held(replica.offering, -1)
            self._tally.charge(replica, self._kernel.now_s, taken=taken)
        if replica.ready_s is not None:
            self._tally.ready(replica, -1)
        self._forget(replica)

    def _forget(self, replica: Replica) -> None:
        replica.ends()
        if not replica.leases:
            self.replicas.pop(replica.replica_id, None)

    def settle(self) -> None:
        """Charge what still runs at the end."""
        for state in self.offerings.values():
            for replica in state.held.values():
                self._tally.charge(replica, self._kernel.now_s, taken=False, running=True)

    def check(self) -> list[str]:
        """What is broken; empty where nothing is."""
        return [
            f"slot {slot} of {state.model.offering.offering_id} holds a replica that is not there"
            for state in self.offerings.values()
            for slot, replica in state.held.items()
            if replica.gone or replica.slot != slot
        ]


def age_at(hazard: AgeHazard, exposure: float) -> float:
    """The age (s) at which the cumulative hazard reaches `exposure`; infinite where it never does."""
    ends = (*(from_s for from_s, _ in hazard.steps[1:]), math.inf)
    for (from_s, per_h), to_s in zip(hazard.steps, ends, strict=True):
        gained = per_h * (to_s - from_s) / HOUR_S if per_h else 0.0
        if exposure < gained:
            return from_s + exposure / per_h * HOUR_S
        exposure -= gained
    return math.inf


def exposure_at(hazard: AgeHazard, age_s: float) -> float:
    """The cumulative hazard at an age."""
    ends = (*(from_s for from_s, _ in hazard.steps[1:]), math.inf)
    steps = zip(hazard.steps, ends, strict=True)
    return sum(per_h * max(0.0, min(age_s, to_s) - from_s) / HOUR_S for (from_s, per_h), to_s in steps)
