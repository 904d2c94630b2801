"""A little closed loop: workers as a fluid that fills a buffer, a consumer that empties it, and the real engine between.

Launches take `launch_s`; a ready replica makes `goodput_per_s` samples while admission lets it; the consumer takes
`demand_per_s` while there is anything. Signals are what such a world would show, idle workers' low goodput included.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import DrainReplica, LaunchReplica, Memory, TerminateReplica, UndrainReplica
from scaler.model.reading import Reading
from scaler.model.snapshot import ReplicaView, Snapshot
from scaler.model.spec import FleetSpec
from tests.builders.snapshots import OFFERING, a_pool_view, a_snapshot, a_stage, planned, some_signals

TICK_S = 10.0


@dataclass(kw_only=True)
class FluidWorld:
    """Run it with `run`; `sizes` and `depths` are one entry a tick."""

    spec: FleetSpec
    demand_per_s: Callable[[float], float]
    goodput_per_s: float = 0.25
    launch_s: float = 60.0
    batch_samples: int = 32
    max_staleness: int = 3
    now_s: float = 0.0
    depth: float = 0.0
    starved_s: float = 0.0
    memory: Memory = field(default_factory=Memory)
    replicas: dict[str, ReplicaView] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    depths: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> Self:
        for _ in range(int(seconds / TICK_S)):
            self._tick()
        return self

    def _tick(self) -> None:
        ready = sum(replica.phase is ReplicaPhase.READY for replica in self.replicas.values())
        made = self._flow(ready)
        plan = planned(self._snapshot(ready, made), self.spec, self.memory)
        self.memory = plan.memory
        for command in plan.commands:
            self._carry_out(command)
        self.sizes.append(plan.stages[0].requested)
        self.depths.append(self.depth)
        self.now_s += TICK_S
        self._age()

    def _flow(self, ready: int) -> float:
        """Samples made in this tick; admission stops workers at a full buffer."""
        wanted = self.demand_per_s(self.now_s) * TICK_S
        room = (self.max_staleness + 1) * self.batch_samples - self.depth + wanted
        made = max(0.0, min(ready * self.goodput_per_s * TICK_S, room))
        taken = min(wanted, self.depth + made)
        self.starved_s += TICK_S * (1 - taken / wanted) if wanted else 0.0
        self.depth += made - taken
        return made

    def _snapshot(self, ready: int, made: float) -> Snapshot:
        def seen(value: float) -> Reading:
            return Reading(value, self.now_s)

        signals = some_signals(
            buffered_samples=seen(self.depth),
            unblocked_rate_per_s=seen(self.demand_per_s(self.now_s)),
            goodput_per_replica_per_s=seen(made / TICK_S / ready) if ready else Reading(),
            pending_units=seen(1000),
            batch_samples=self.batch_samples,
            max_staleness=self.max_staleness,
        )
        pools = [a_pool_view(listed_at_s=self.now_s)]
        return a_snapshot(a_stage(self.replicas.values(), signals=signals, pools=pools), now_s=self.now_s)

    def _carry_out(self, command: object) -> None:
        match command:
            case LaunchReplica(token=token):
                self.replicas[token] = ReplicaView(
                    replica_id=token,
                    pool="pool",
                    offering_id=OFFERING.offering_id,
                    phase=ReplicaPhase.LAUNCHING,
                    launched_at_s=self.now_s,
                    launch_token=token,
                )
            case DrainReplica(replica_id=name) | TerminateReplica(replica_id=name):
                del self.replicas[name]
            case UndrainReplica():
                raise AssertionError("drains end within their tick here")

    def _age(self) -> None:
        for name, replica in self.replicas.items():
            if replica.phase is ReplicaPhase.LAUNCHING and self.now_s - (replica.launched_at_s or 0) >= self.launch_s:
                self.replicas[name] = _ready(replica)


def _ready(replica: ReplicaView) -> ReplicaView:
    name = replica.replica_id
    return replace(replica, phase=ReplicaPhase.READY, worker=f"w-{name}", instance_ids=(f"i-{name}",), running_units=8)
