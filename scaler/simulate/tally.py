"""What a run costs and shows: charges and refunds, and levels over time as means of equal steps."""

from scaler.model.capacity import CapacityType
from scaler.simulate.kernel import Kernel
from scaler.simulate.replica import OfferingState, Replica
from scaler.simulate.result import Timeline, share
from scaler.simulate.scenario import Scenario

HOUR_S = 3600.0
STEP_S = 300.0


class Level:
    """A number that changes now and then, and its integral over each step."""

    def __init__(self, end_s: float, step_s: float, value: float = 0.0) -> None:
        self.value = value
        self._since_s = 0.0
        self._step_s = step_s
        self._areas = [0.0] * max(1, -int(-end_s // step_s))
        self._end_s = end_s

    def add(self, now_s: float, change: float) -> None:
        """It changes by so much at `now_s`."""
        self.set(now_s, self.value + change)

    def set(self, now_s: float, value: float) -> None:
        """It is `value` from `now_s` on."""
        self._cover(self._since_s, min(now_s, self._end_s))
        self._since_s = max(self._since_s, now_s)
        self.value = value

    def _cover(self, from_s: float, to_s: float) -> None:
        step_s, value = self._step_s, self.value
        while from_s < to_s:
            i = min(int(from_s / step_s), len(self._areas) - 1)
            edge_s = to_s if i == len(self._areas) - 1 else min(to_s, (i + 1) * step_s)
            self._areas[i] += value * (edge_s - from_s)
            from_s = edge_s if edge_s > from_s else to_s

    def means(self, now_s: float) -> tuple[float, ...]:
        """The mean of each step so far."""
        self.set(now_s, self.value)
        last = len(self._areas) - 1
        widths = [self._step_s] * last + [max(1e-9, self._end_s - last * self._step_s)]
        return tuple(area / width for area, width in zip(self._areas, widths, strict=True))

    def total(self, now_s: float) -> float:
        """The integral so far."""
        self.set(now_s, self.value)
        return sum(self._areas)


class Tally:
    """See the module's docstring."""

    def __init__(self, scenario: Scenario, kernel: Kernel) -> None:
        self._scenario, self._kernel = scenario, kernel
        end_s = scenario.end_s
        self.launches = self.refusals = self.interruptions = self.unnoticed = self.kills_at_work = 0
        self.refunds_usd = 0.0
        self.rent_usd: dict[CapacityType, float] = dict.fromkeys(CapacityType, 0.0)
        self._held = {model.key: Level(end_s, STEP_S) for model in scenario.offerings}
        self._first = scenario.fleet.stages[0].name
        self._ready = Level(end_s, STEP_S)
        self.desired = Level(end_s, STEP_S)
        self.buffered = Level(end_s, STEP_S)
        self._rent = Level(end_s, STEP_S)
        self._taken_at_s: list[float] = []
        self._wasted: list[tuple[float, float]] = []

    def held(self, state: OfferingState, change: int) -> None:
        """An instance was granted (+1) or is gone (-1)."""
        self._held[state.key].add(self._kernel.now_s, change)
        self._rent.add(self._kernel.now_s, change * state.model.usd_per_h)

    def ready(self, replica: Replica, change: int) -> None:
        """A replica became ready (+1) or is gone (-1)."""
        if replica.stage == self._first:
            self._ready.add(self._kernel.now_s, change)

    def lost(self, replica: Replica) -> None:
        """A replica is gone with the leases that it held."""
        self.kills_at_work += replica.stage == self._first and replica.notice is None and bool(replica.leases)

    def charge(self, replica: Replica, now_s: float, *, taken: bool, running: bool = False) -> None:
        """The rent of an instance that ends now, or runs on at the end of the world."""
        model, granted_s = replica.offering.model, replica.granted_s or 0.0
        billing = model.offering.billing
        age_s = now_s - granted_s
        charged_s = now_s - max(0.0, granted_s)
        if not running and granted_s >= 0.0:
            charged_s = max(charged_s, billing.minimum_s)
        rent = charged_s / HOUR_S * model.usd_per_h
        if taken:
            self._taken_at_s.append(now_s)
        if taken and age_s < billing.refund_if_interrupted_within_s:
            self.refunds_usd += rent
        else:
            self.rent_usd[model.offering.capacity_type] += rent

    def wasted(self, tokens_so_far: float) -> None:
        """Tokens wasted since the start of the world, as of now."""
        self._wasted.append((self._kernel.now_s, tokens_so_far))

    def ready_seconds(self) -> float:
        """Replica-seconds of ready rollout replicas so far."""
        return self._ready.total(self._kernel.now_s)

    def timeline(self, waits: list[tuple[float, float]]) -> Timeline:
        """The run in steps."""
        now_s, end_s = self._kernel.now_s, self._scenario.end_s
        waiting = Level(end_s, STEP_S)
        for start_s, stop_s in waits:
            waiting.set(start_s, 1.0)
            waiting.set(stop_s, 0.0)
        return Timeline(
            step_s=STEP_S,
            held={key[1]: level.means(now_s) for key, level in self._held.items()},
            ready=self._ready.means(now_s),
            capacity={model.key[1]: self._capacity(i) for i, model in enumerate(self._scenario.offerings)},
            buffered_samples=self.buffered.means(now_s),
            waiting_ratio=tuple(map(share, waiting.means(now_s))),
            rent_usd_per_h=self._rent.means(now_s),
            wasted_tokens=tuple(self._per_step(self._increments())),
            interruptions=tuple(round(n) for n in self._per_step([(at_s, 1.0) for at_s in self._taken_at_s])),
            desired=self.desired.means(now_s),
        )

    def _capacity(self, index: int) -> tuple[float, ...]:
        end_s = self._scenario.end_s
        level = Level(end_s, STEP_S)
        for time_s, count in self._scenario.offerings[index].capacity.changes():
            if time_s < end_s:
                level.set(time_s, count)
        return level.means(end_s)

    def _increments(self) -> list[tuple[float, float]]:
        before, steps = 0.0, []
        for at_s, total in self._wasted:
            steps.append((at_s, total - before))
            before = total
        return steps

    def _per_step(self, amounts: list[tuple[float, float]]) -> list[float]:
        steps = [0.0] * max(1, -int(-self._scenario.end_s // STEP_S))
        for at_s, amount in amounts:
            steps[min(int(at_s / STEP_S), len(steps) - 1)] += amount
        return steps
