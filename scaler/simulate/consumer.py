"""The trainer: takes a batch when there is one, trains, publishes; waits when there is none, and that is counted."""

from collections.abc import Callable

from scaler.simulate.kernel import Kernel
from scaler.simulate.ledger import SimulatedLedger
from scaler.simulate.scenario import Scenario


class SimulatedTrainer:
    """Call `look` whenever a batch may have become complete."""

    def __init__(self, scenario: Scenario, kernel: Kernel, ledger: SimulatedLedger, swap: Callable[[], None]) -> None:
        self._scenario, self._kernel, self._ledger, self._swap = scenario, kernel, ledger, swap
        self.waiting_since_s: float | None = 0.0
        self.waits: list[tuple[float, float]] = []
        """(from, to) of every wait that has ended."""
        self.updates = 0

    def look(self) -> None:
        """Take a batch if idle and there is one."""
        if self.waiting_since_s is None or not self._ledger.take_batch():
            return
        if self._kernel.now_s > self.waiting_since_s:
            self.waits.append((self.waiting_since_s, self._kernel.now_s))
        self.waiting_since_s = None
        publishes = (self.updates + 1) % self._scenario.job.batches_per_version == 0
        publish_s = self._scenario.trainer.publish_s if publishes else 0.0
        self._kernel.at(self._kernel.now_s + self._scenario.trainer.train_s + publish_s, self._trained, publishes)

    def _trained(self, publishes: bool) -> None:
        """Published before it is acknowledged, as the trainer does: what is admitted in its place starts with new weights."""
        self.updates += 1
        if publishes:
            self._ledger.publish()
            self._swap()
        self._ledger.acknowledge()
        self.waiting_since_s = self._kernel.now_s
        self.look()

    def waited_s(self) -> float:
        """Seconds that it has waited so far."""
        open_s = 0.0 if self.waiting_since_s is None else self._kernel.now_s - self.waiting_since_s
        return sum(end - start for start, end in self.waits) + open_s
