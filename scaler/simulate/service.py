"""Reward and environment stages: groups that rollout completed wait for a replica's lane, then go to the next stage.

A group takes `service` once for every `concurrent_samples` of its samples. A group whose replica is lost starts over: there
is nothing to salvage in one sample's service.
"""

from collections import deque
from collections.abc import Callable

from scaler.simulate.delays import draw
from scaler.simulate.groups import Group
from scaler.simulate.replica import Lease
from scaler.simulate.scenario import ServiceStage


class ServiceWork:
    """The queue in front of one stage. `done` takes the group on."""

    def __init__(self, stage: ServiceStage, group_size: int, seed: int, done: Callable[[Group], None]) -> None:
        self._stage, self._seed, self._done = stage, seed, done
        self.lanes = stage.lanes(group_size)
        self._rounds = stage.rounds(group_size)
        self.queue: deque[Group] = deque()
        self.running = 0
        self.completed = 0

    def next(self) -> Group | None:
        """The group that has waited longest and is still of use."""
        while self.queue:
            group = self.queue.popleft()
            if not group.dropped:
                return group
            self._done(group)
        return None

    def begin(self, group: Group) -> tuple[float, float]:
        """A lane is taken until the group is done."""
        service_s = self._stage.service.at(draw(self._seed, self._stage.name, group.number)) * self._rounds
        return service_s, service_s

    def leased(self, lease: Lease) -> None:
        """Counted."""
        del lease
        self.running += 1

    def complete(self, lease: Lease) -> None:
        """On to the next stage."""
        self.running -= 1
        self.completed += 1
        self._done(lease.group)

    def give_back(self, lease: Lease, at_s: float, *, published: bool) -> None:
        """It goes first."""
        del at_s, published
        self.running -= 1
        self.queue.appendleft(lease.group)
