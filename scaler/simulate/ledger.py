"""The ledger's promises over groups: admission, leases, progress that is kept, staleness, acceptance.

It is the simulated counterpart of `scaler.ledger` and uses its rules (`scaler.ledger.rules`) for admission and staleness.
What a lost holder had does not back off there either. A group takes its place when it is first leased and gives it back
when its batch is acknowledged, or when it is filtered or dropped; one that waits to be continued keeps it and goes before
fresh ones, oldest first.

Invariants (`check`): every group admitted is in exactly one of: waiting, running, in service, buffered, in training; what
left is trained, filtered or dropped; the numbers add up to those admitted; no more in flight than admission allows.
Non-goals: single units. The units of a group stay together, since agents lease whole groups.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from scaler.ledger import rules
from scaler.simulate.delays import draw
from scaler.simulate.groups import Group, Shape, shapes
from scaler.simulate.kernel import Kernel
from scaler.simulate.replica import Lanes, Lease, Replica
from scaler.simulate.scenario import Scenario


class SimulatedLedger:
    """See the module's docstring. Counts are of groups unless a name says otherwise."""

    def __init__(self, scenario: Scenario, kernel: Kernel, seed: int) -> None:
        self._scenario, self._kernel = scenario, kernel
        self._job = scenario.job
        self._seed = seed
        self._size = scenario.job.group_size
        self._rate = scenario.generation.tokens_per_s
        self._lane_s, self._acceptance_ratio = scenario.mean_unit_s, scenario.acceptance_ratio
        self._first_token_s, self._resume_s = scenario.generation.first_token_s, scenario.generation.resume_s
        self._concurrent = scenario.job.max_concurrent
        groups = scenario.stock_bound_samples // self._size + 1
        self._places = [rules.admissible(scenario.job, 0, in_flight * self._size) for in_flight in range(groups + 1)]
        """Units that the ledger's rules admit, by groups in flight."""
        self._shapes = shapes(scenario.generation.lengths, self._size, seed)
        self._drawn = -1
        self.flight: dict[int, Group] = {}
        """Admitted and not out again, by number."""
        self.running: dict[int, Lease] = {}
        self._waiting: list[tuple[int, Group]] = []
        self.in_service: set[int] = set()
        self.ready: deque[Group] = deque()
        self.ready_groups = 0
        """Of `ready`, those that were not dropped."""
        self.training: list[Group] = []
        self.version = 0
        self._oldest_version = 0
        """No group in flight has an older one: what begins later has that of its time."""
        self.admitted = self.trained = self.filtered = self.dropped = self.completed = 0
        self._accepted = 0
        """Of those completed."""
        self.completed_here = 0
        """By rollout replicas, whatever became of them."""
        self.tokens_generated = self.tokens_salvaged = self.tokens_stale = 0.0
        self.tokens_lost = self.tokens_given_up = 0.0
        self.after_rollout: Callable[[Group], object] = self.reviewed
        """Where a group goes that rollout has completed: the next stage, if there is one."""
        self.leave: Callable[[Lease], None] = lambda lease: None
        """Tells a holder that its group is of no use."""
        self.lanes = Lanes()
        """Those of rollout replicas."""
        self.released: Callable[[], None] = lambda: None
        """Something may be leased, or taken, that could not before."""

    # what a station asks of it

    def next(self) -> Group | None:
        """The oldest group that waits, else a fresh one if admission lets it in."""
        while self._waiting:
            _, group = heappop(self._waiting)
            if not group.dropped:
                if not group.done:
                    group.oldest_version = self.version
                return group
        return self._admit() if self._admits_one() else None

    def _admissible(self) -> int:
        """Units that may be admitted: all in flight keep their places, and only what is in a lane runs.

        The slots of a group's early finishers serve the next one, so its lane is what it takes of the concurrency.
        """
        places, free = self._places[len(self.flight)], self._concurrent - self.lanes.busy * self._size
        return max(0, min(places, free))

    def _admits_one(self) -> bool:
        """Whether a whole group may be; looked at all the time."""
        size = self._size
        return self._places[len(self.flight)] >= size <= self._concurrent - self.lanes.busy * size

    def _admit(self) -> Group:
        number = self.admitted
        self.admitted = number + 1
        group = self.flight[number] = Group(number, self._next_shape(), self._lane_s, self.version)
        return group

    def _next_shape(self) -> Shape:
        self._drawn += 1
        return self._shapes[self._drawn % len(self._shapes)]

    def next_warm(self, tokens_each: float, *, in_lane: bool) -> Group | None:
        """A group that was begun before the start.

        None where admission is used up, or where one that left its lane would have ended before `tokens_each`.
        """
        if not self._admits_one():
            return None
        if not in_lane and self._shapes[(self._drawn + 1) % len(self._shapes)].longest <= tokens_each:
            self._next_shape()
            return None
        return self._admit()

    def buffer_warm(self) -> None:
        """A complete group that was there at the start."""
        group = self._admit()
        group.ended_each, group.lane_left_s, group.buffered = float(group.shape.longest), 0.0, True
        self.ready.append(group)
        self.ready_groups += 1

    def begin(self, group: Group) -> tuple[float, float]:
        """(lane time, time to completion), with the prefill of what is continued."""
        tokens_each = group.tokens_each
        run_s = (group.shape.longest - tokens_each) / self._rate
        if not tokens_each:
            return group.lane_left_s, self._first_token_s + run_s
        return group.lane_left_s + self._resume_s, self._silent_s(group) + run_s

    def _silent_s(self, group: Group) -> float:
        """From the lease to the first token that is new."""
        return self._first_token_s + (self._resume_s if group.tokens_each else 0.0)

    def leased(self, lease: Lease) -> None:
        """A station started the lease."""
        self.running[lease.group.number] = lease

    def complete(self, lease: Lease) -> None:
        """All units of the group are committed."""
        group = lease.group
        del self.running[group.number]
        self.completed_here += 1
        self.tokens_generated += group.shape.total - group.done
        group.ended_each = float(group.shape.longest)
        group.lane_left_s = 0.0
        self.in_service.add(group.number)
        self.after_rollout(group)

    def reviewed(self, group: Group) -> None:
        """It has passed every stage: accepted into the buffer, or filtered."""
        self.in_service.discard(group.number)
        if group.dropped:
            return
        before, self.completed = self._accepted, self.completed + 1
        self._accepted = int(self.completed * self._acceptance_ratio + 1e-9)
        if self._accepted > before:
            group.buffered = True
            self.ready.append(group)
            self.ready_groups += 1
        else:
            self.filtered += 1
            del self.flight[group.number]
        self.released()

    def give_back(self, lease: Lease, at_s: float, *, published: bool) -> None:
        """The holder lost it at `at_s`: it waits to be continued from what was published."""
        group = lease.group
        del self.running[group.number]
        done_s = self._keep(lease, at_s, published=published)
        self.tokens_salvaged += group.done - group.shape.ended(group.ended_each)
        left_of_work = 1.0 - group.done / group.shape.total
        group.lane_left_s = max(group.lane_left_s - done_s, self._lane_s * left_of_work)
        heappush(self._waiting, (group.number, group))

    def _keep(self, lease: Lease, at_s: float, *, published: bool) -> float:
        """Count what was generated, kept and lost; the seconds of generation that are kept.

        Not `published`: units that came to their end are committed all the same, of the others what the holder generated
        since it last published is lost.
        """
        group, shape = lease.group, lease.group.shape
        ran_s = max(0.0, at_s - lease.begun_s - self._silent_s(group))
        kept_s = ran_s if published else max(0.0, ran_s - self._unpublished_s(lease.holder, at_s))
        before, reached_each = group.done, group.tokens_each + ran_s * self._rate
        group.ended_each = max(group.ended_each, reached_each)
        reached = shape.done(reached_each, group.ended_each)
        group.tokens_each = min(float(shape.longest), group.tokens_each + kept_s * self._rate)
        self.tokens_generated += reached - before
        self.tokens_lost += reached - group.done
        return kept_s

    def _unpublished_s(self, holder: Replica, at_s: float) -> float:
        """How long ago a holder published for the last time: all its units at once, at any moment of the interval."""
        phase = draw(self._seed, *holder.offering.key, holder.slot, "published", round(at_s * 1000))
        return self._scenario.generation.progress_s * phase

    # what the trainer asks of it

    def take_batch(self) -> bool:
        """Move a batch of complete groups into training, dropping what is too stale; whether there was one."""
        if self.training or self.ready_groups < self._job.batch_groups:
            return False
        while len(self.training) < self._job.batch_groups:
            group = self.ready.popleft()
            if not group.dropped:
                self.ready_groups -= 1
                self.training.append(group)
        return True

    def acknowledge(self) -> None:
        """The batch is trained on and durable."""
        for group in self.training:
            del self.flight[group.number]
        self.trained += len(self.training)
        self.training.clear()
        self.released()

    def publish(self) -> None:
        """A new policy version: what it makes too stale to be trained on is dropped at once."""
        self.version += 1
        if rules.too_stale(self._oldest_version, self.version, self._job.max_staleness):
            self._drop_stale()
        self.released()

    def _drop_stale(self) -> None:
        in_training = {group.number for group in self.training}
        versions = {group.oldest_version for group in self.flight.values()}
        old = {version for version in versions if rules.too_stale(version, self.version, self._job.max_staleness)}
        stale = [group for group in self.flight.values() if group.oldest_version in old] if old else []
        for group in stale:
            if group.number not in in_training:
                self._drop(group)
        self._oldest_version = min([group.oldest_version for group in self.flight.values()], default=self.version)

    def _drop(self, group: Group) -> None:
        group.dropped = True
        del self.flight[group.number]
        self.in_service.discard(group.number)
        self.dropped += 1
        lease = self.running.pop(group.number, None)
        if lease is not None:
            self._keep(lease, min(self._kernel.now_s, lease.stopped_s), published=True)
            self.leave(lease)
        elif group.buffered:
            self.ready_groups -= 1
        committed = group.shape.ended(group.ended_each)
        self.tokens_stale += committed
        self.tokens_given_up += group.done - committed

    # what others look at

    @property
    def tokens_wasted(self) -> float:
        """Generated, and neither committed nor kept for whoever goes on with them."""
        return self.tokens_lost + self.tokens_given_up

    @property
    def waiting(self) -> int:
        """Groups that wait to be continued."""
        in_buffer = self.ready_groups + len(self.training)
        return len(self.flight) - len(self.running) - len(self.in_service) - in_buffer

    @property
    def admissible_groups(self) -> int:
        """Fresh groups that admission would let in now."""
        return self._admissible() // self._size

    def stock_samples(self) -> float:
        """Accepted samples in the buffer, and the work done on those that are not there yet (see `scenario`)."""
        begun = sum(self._share(group) for group in self.flight.values() if group.lane_left_s > 0.0)
        accepted = self._acceptance_ratio * (begun + len(self.in_service))
        return self._size * (self.ready_groups + len(self.training) + accepted)

    def _share(self, group: Group) -> float:
        """Of its lane time, what is spent and not lost."""
        left_s = group.lane_left_s
        lease = self.running.get(group.number)
        if lease is not None:
            until_s = min(self._kernel.now_s, lease.stopped_s)
            left_s -= min(left_s, max(0.0, until_s - lease.begun_s))
        return 1.0 - left_s / self._lane_s

    def check(self) -> list[str]:
        """What is broken; empty where nothing is."""
        broken = []
        out = self.trained + self.filtered + self.dropped
        if self.admitted != out + len(self.flight):
            broken.append(f"{self.admitted} admitted, but {out} out and {len(self.flight)} in flight")
        waiting = {number for number, group in self._waiting if not group.dropped}
        buffered = [group.number for group in self.ready if not group.dropped]
        training = [group.number for group in self.training]
        places = [*waiting, *self.running, *self.in_service, *buffered, *training]
        if len(places) != len(set(places)) or set(places) != set(self.flight):
            broken.append(f"{len(places)} places for {len(self.flight)} groups in flight")
        if len(buffered) != self.ready_groups:
            broken.append(f"{len(buffered)} buffered, but {self.ready_groups} counted")
        bound = self._scenario.stock_bound_samples
        if len(self.flight) * self._size > bound:
            broken.append(f"{len(self.flight) * self._size} samples in flight, admission allows {bound}")
        return broken
