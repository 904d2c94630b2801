"""A whole job in a fake clock: workers, a trainer, a controller, and everything that may go wrong with units.

`Mill.turn` is one round of all of them. What it promises to notice: that no batch has been trained on for so many
rounds that something must have stalled, and that more is in flight than admission allows.
"""

from dataclasses import dataclass
from random import Random

from scaler.ledger.contract import Ledger
from scaler.model.job import JobSettings
from scaler.model.work import Batch, Lease, ReleaseReason
from tests.builders.ledger import READY, TTL_S, beat_of, commit_of, delta, group, identity, release_of, version
from tests.ledger.factories import LedgerFactory


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How often things go wrong, each between 0 and 1."""

    unit_fails: float = 0.0
    infrastructure_fails: float = 0.0
    worker_vanishes: float = 0.0
    group_is_filtered: float = 0.0
    unit_is_slow: float = 0.0


class Mill:
    """The job, its workers w0.., and its trainer."""

    def __init__(
        self, factory: LedgerFactory, settings: JobSettings, weather: Weather, *, workers: int = 3, seed: int = 0
    ) -> None:
        self.factory, self.settings, self.weather = factory, settings, weather
        self.random = Random(seed)
        self.ledger: Ledger = factory.open()
        self.ledger.configure(settings)
        self.workers = [f"w{number}" for number in range(workers)]
        self.held: dict[str, list[Lease]] = {worker: [] for worker in self.workers}
        for worker in self.workers:
            self.ledger.register(identity(worker))
        self.epoch = self.ledger.attach_trainer("t")
        self.batch: Batch | None = None
        self.step = 0
        self.prompts = 0
        self.rounds_since_update = 0

    def turn(self) -> None:
        """One round: prompts are topped up, each worker does a little, the trainer does what it can."""
        self.factory.now_s += 2.0
        if self.ledger.stats().pending < 2 * self.settings.batch_samples:
            self._put_prompts()
        for worker in self.workers:
            self._work(worker)
        before = self.step
        self._train()
        self.rounds_since_update = 0 if self.step > before else self.rounds_since_update + 1
        self._check_admission()

    def _put_prompts(self) -> None:
        for _ in range(self.settings.batch_groups):
            self.ledger.put_units(group(f"p{self.prompts}", self.settings.group_size))
            self.prompts += 1

    def _happens(self, chance: float) -> bool:
        return self.random.random() < chance

    def _work(self, worker: str) -> None:
        if self._happens(self.weather.worker_vanishes):
            # Killed: the ledger hears nothing, and gets its units back when their leases run out.
            self.held[worker] = []
            return
        reply = self.ledger.lease(worker, self.random.randint(1, 5), TTL_S)
        held = self.held[worker] + list(reply.leases)
        beats = [beat_of(lease, delta(0, 2, self.step)) for lease in held]
        control = self.ledger.heartbeat(worker, beats, READY, TTL_S)
        useless = {*control.lost, *control.abandon}
        self.ledger.release(
            worker,
            [release_of(lease, ReleaseReason.ABANDONED) for lease in held if lease.unit.unit_id in control.abandon],
        )
        self.held[worker] = [lease for lease in held if lease.unit.unit_id not in useless]
        self._finish(worker)

    def _finish(self, worker: str) -> None:
        slow, failed, broken, done = [], [], [], []
        for lease in self.held[worker]:
            if self._happens(self.weather.unit_fails):
                failed.append(release_of(lease, ReleaseReason.UNIT_FAILURE, error="boom"))
            elif self._happens(self.weather.infrastructure_fails):
                broken.append(release_of(lease, ReleaseReason.INFRASTRUCTURE))
            elif self._happens(self.weather.unit_is_slow):
                slow.append(lease)
            else:
                done.append(commit_of(lease, self.random.randint(2, 9), self.step))
        self.ledger.release(worker, [*failed, *broken])
        self.ledger.commit(worker, done)
        self.held[worker] = slow

    def _train(self) -> None:
        if self.batch is None:
            settings = self.settings
            self.batch = self.ledger.take_batch(self.epoch, settings.batch_groups, self.step, settings.max_staleness)
            if self.batch is None:
                return
            rejected = [one.group_id for one in self.batch.groups if self._happens(self.weather.group_is_filtered)]
            filled = self.ledger.take_more(self.epoch, self.batch.batch_id, rejected) if rejected else self.batch
        else:
            filled = self.ledger.take_more(self.epoch, self.batch.batch_id, [])
        if filled is None:
            return
        assert len(filled.groups) == self.settings.batch_groups
        self.step += 1
        assert self.ledger.ack_batch(self.epoch, [self.batch.batch_id]) == 1
        self.ledger.publish(self.epoch, version(self.step))
        self.batch = None

    def _check_admission(self) -> None:
        stats, settings = self.ledger.stats(), self.settings
        bound = (settings.max_staleness + 1) * settings.batch_samples * settings.batches_per_version
        assert stats.running <= settings.max_concurrent
        assert stats.running + stats.buffered <= bound
