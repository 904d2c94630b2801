"""Taking batches: keeps the ledger stocked, waits for complete groups, scores them, and sends useless ones back.

A group whose rewards are all equal teaches nothing. It is sent back and its place filled, for a bounded number of
rounds and a bounded wait; then the batch is trained with what it has, and one group always stays, so that a policy that
is always right (or always wrong) never makes the trainer wait for ever. A batch that comes again after a crash is taken
as it is: it was filtered before, and must be the same again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scaler.ledger.contract import Ledger, LedgerRefused
from scaler.model.job import JobSettings, Phase
from scaler.model.work import Batch, GroupSamples
from trainer.ledger_calls import LedgerCalls
from trainer.supply import PromptSupply
from trainer.tasks import Task
from trainer.timing import PhaseTimer, RedistributionWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """How the trainer waits."""

    poll_s: float = 0.05
    look_every_s: float = 0.5
    """While waiting: how often the stock of units and the workers' versions are looked at."""
    stock_batches: int = 1
    """Batches of units kept pending beyond what admission may let run."""
    refill_rounds: int = 2
    refill_wait_s: float = 2.0
    """Longest wait of one round for groups that fill the places of those sent back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBatch:
    """A batch, its rewards, and what was seen on the way to it."""

    batch: Batch
    rewards: tuple[tuple[float, ...], ...]
    """Group by group, sample by sample, as in the batch."""
    seen_rewards: tuple[float, ...]
    """Of every sample scored, those sent back too: the policy's mean reward, unbiased by the filter."""
    groups_filtered: int


def score(task: Task, group: GroupSamples) -> tuple[float, ...]:
    """Rewards of a group; a sample that carries one keeps it."""
    return tuple(
        task.reward(unit.payload, sample.tokens) if sample.reward is None else sample.reward
        for unit, sample in zip(group.units, group.samples, strict=True)
    )


def useless(groups: Sequence[GroupSamples], rewards: dict[str, tuple[float, ...]]) -> list[str]:
    """Ids of the groups without spread, all but the last one where no other group would stay."""
    flat = [group.group_id for group in groups if len(set(rewards[group.group_id])) == 1]
    return flat if len(flat) < len(groups) else flat[:-1]


def longest_generation_s(taken: ScoredBatch) -> float | None:
    """Seconds of the longest generation in a batch; None where no worker said."""
    samples = [sample for group in taken.batch.groups for sample in group.samples]
    return max((sample.generation_s for sample in samples if sample.generation_s is not None), default=None)


@dataclass(slots=True, kw_only=True)
class Intake:
    """See the module's docstring."""

    calls: LedgerCalls
    task: Task
    supply: PromptSupply
    job: JobSettings
    settings: IntakeSettings
    watch: RedistributionWatch
    next_prompt: int
    """Index of the next prompt to put."""
    on_look: Callable[[], None] = lambda: None
    """Called with each look around: what has to be said again and again, however long the wait."""
    _looked_s: float | None = None

    def next_batch(self, epoch: int, version: int, timer: PhaseTimer) -> ScoredBatch:
        """Wait for a batch, score and filter it; `Stopped` where asked to stop before there is one."""
        batch = self._take(epoch, version, timer)
        rewards: dict[str, tuple[float, ...]] = {}
        self._score(batch, rewards, timer)
        filtered = 0
        for _ in range(0 if batch.redelivered else self.settings.refill_rounds):
            reject = useless(batch.groups, rewards)
            if not reject:
                break
            filtered += len(reject)
            batch = self._refill(epoch, batch, reject, timer)
            self._score(batch, rewards, timer)
        return ScoredBatch(
            batch=batch,
            rewards=tuple(rewards[group.group_id] for group in batch.groups),
            seen_rewards=tuple(value for group in rewards.values() for value in group),
            groups_filtered=filtered,
        )

    def stock(self) -> None:
        """Put prompts until enough units are pending; a store that is nearly full is tried again later."""
        job = self.job
        batches = (job.max_staleness + 1) * job.batches_per_version + self.settings.stock_batches
        pending = self.calls.call(lambda ledger: ledger.stats()).pending
        try:
            while pending < batches * job.batch_samples:
                pending += self._put(range(self.next_prompt, self.next_prompt + job.batch_groups))
        except LedgerRefused:
            return

    def look_around(self) -> None:
        """At most every `look_every_s`: restock, see which version the workers have, and say what has to be said again."""
        now_s = self.calls.clock.monotonic_s()
        if self._looked_s is None or now_s - self._looked_s >= self.settings.look_every_s:
            self._looked_s = now_s
            self.stock()
            self.watch.observe(self.calls.call(lambda ledger: ledger.workers()), now_s)
            self.on_look()

    def _put(self, indices: range) -> int:
        """Put these prompts' units; how many the ledger did not know."""
        units = [unit for index in indices for unit in self.supply.units(index)]
        new = self.calls.call(lambda ledger: ledger.put_units(units))
        self.next_prompt = indices.stop
        return new

    def _take(self, epoch: int, version: int, timer: PhaseTimer) -> Batch:
        job = self.job
        with timer.within(Phase.BUFFER_WAIT):
            self.look_around()
            batch = self._wait(
                lambda ledger: ledger.take_batch(epoch, job.batch_groups, version, job.max_staleness), limit_s=None
            )
        if batch is None:
            raise AssertionError("a wait without a limit ended without a batch")
        return batch

    def _refill(self, epoch: int, batch: Batch, reject: Sequence[str], timer: PhaseTimer) -> Batch:
        """Send groups back; the batch with their places filled, or without them where nothing came in time."""
        with timer.within(Phase.BUFFER_WAIT):
            filled = self.calls.call(lambda ledger: ledger.take_more(epoch, batch.batch_id, reject))
            if filled is None:
                filled = self._wait(
                    lambda ledger: ledger.take_more(epoch, batch.batch_id, ()), limit_s=self.settings.refill_wait_s
                )
        kept = tuple(group for group in batch.groups if group.group_id not in reject)
        return replace(batch, groups=kept) if filled is None else filled

    def _wait(self, action: Callable[[Ledger], Batch | None], *, limit_s: float | None) -> Batch | None:
        return self.calls.wait_for(action, poll_s=self.settings.poll_s, limit_s=limit_s, idle=self.look_around)

    def _score(self, batch: Batch, rewards: dict[str, tuple[float, ...]], timer: PhaseTimer) -> None:
        """Add the rewards of groups not scored yet."""
        with timer.within(Phase.REWARD):
            for group in batch.groups:
                if group.group_id not in rewards:
                    rewards[group.group_id] = score(self.task, group)
