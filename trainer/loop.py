"""The trainer: takes batches, trains, checkpoints, publishes, acknowledges; in this order, which the promises rest on.

train -> checkpoint durable -> weights durable -> `publish` -> `ack_batch`. So a kill before the checkpoint gets the same
batch again and trains it again from the same state, bit for bit; a kill after it finds the batch's id in the checkpoint
and acknowledges it before taking anything. A policy version is the checkpoint's step: no worker ever sees weights that
a crash could take back.

Stops: `StaleEpoch` means that another trainer took over; this one ends without touching anything more. A stop request
ends waits at once and an update under way after its acknowledgement; what was taken and not trained comes again.
While the ledger is away the trainer waits with back-off; nothing is invented.

Non-goals: deciding how many workers there are; who holds the weights (`trainer.learner`).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from scaler.ledger.contract import Ledger
from scaler.model.job import JobSettings, Phase, TrainerReport
from scaler.model.work import PolicyVersion
from trainer.batching import collate_groups
from trainer.checkpoint import Checkpoint, CheckpointStore, TrainerState
from trainer.grpo import LossParts
from trainer.intake import Intake, IntakeSettings, ScoredBatch, longest_generation_s
from trainer.learner import LearnerFactory, LocalLearner
from trainer.ledger_calls import LedgerCalls, Stopped
from trainer.moe import MoEConfig, dump_state
from trainer.publication import prune_weights, publish_weights
from trainer.record import UpdateRecord, record_update
from trainer.supply import PromptSupply
from trainer.tasks import Task
from trainer.timing import ACKNOWLEDGE, PhaseListener, PhaseTimer, RedistributionWatch, TrainerClock
from trainer.update import UpdateSettings, draw_minibatches


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSettings:
    """What a run is."""

    owner: str
    job: JobSettings
    updates: int
    """Step to stop at, counted over restarts."""
    weights: Path
    checkpoints: Path
    seed: int = 0
    time_bound_s: float = 600.0
    """Longest a unit may take."""
    min_train_s: float = 0.0
    """Least time the training of an update takes: lets a small model stand for one of a given speed."""
    keep_versions: int = 4
    """Newest weight versions kept, beside those a live worker reports."""
    keep_checkpoints: int = 3
    update: UpdateSettings = field(default_factory=UpdateSettings)
    intake: IntakeSettings = field(default_factory=IntakeSettings)


class Trainer:
    """One trainer of one job. `listener` hears each phase as it is entered, `on_update` each finished update."""

    def __init__(
        self,
        ledger: Ledger,
        task: Task,
        settings: TrainerSettings,
        clock: TrainerClock,
        *,
        stop: threading.Event,
        listener: PhaseListener,
        on_update: Callable[[UpdateRecord], None],
        learner: LearnerFactory = LocalLearner,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._calls = LedgerCalls(ledger=ledger, clock=clock, stop=stop)
        self._stop = stop
        self._listener = listener
        self._on_update = on_update
        self._store = CheckpointStore(settings.checkpoints)
        self._watch = RedistributionWatch()
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._state = TrainerState(architecture=task.model().to_mapping())
        self._restore_or_begin(learner)
        self._intake = Intake(
            calls=self._calls,
            task=task,
            supply=PromptSupply(
                task=task, seed=settings.seed, group_size=settings.job.group_size, time_bound_s=settings.time_bound_s
            ),
            job=settings.job,
            settings=settings.intake,
            watch=self._watch,
            next_prompt=self._state.next_prompt,
            on_look=self._remind,
        )
        self._waited_s = 0.0
        self._last_report: tuple[int, TrainerReport] | None = None

    @property
    def step(self) -> int:
        """Updates done."""
        return self._state.step

    def run(self) -> None:
        """Train until the last update or a stop request.

        Raises:
            StaleEpoch: another trainer took over.
            LedgerRefused: the ledger may not be used.
        """
        try:
            epoch = self._attach()
            began_s = self._clock.monotonic_s()
            while self._state.step < self._settings.updates and not self._stop.is_set():
                self._iterate(epoch, began_s)
        except Stopped:
            return

    def _restore_or_begin(self, learner: LearnerFactory) -> None:
        """State from the newest complete checkpoint, or a first checkpoint of fresh weights."""
        checkpoint = self._store.load_newest()
        if checkpoint is not None:
            self._state = checkpoint.state
        config = MoEConfig.from_mapping(self._state.architecture)
        self._learner = learner(config, self._settings.seed, self._settings.update)
        if checkpoint is None:
            self._store.save(self._snapshot())
            return
        self._learner.restore(checkpoint.model, checkpoint.optimiser)
        self._generator.set_state(checkpoint.generator)

    def _attach(self) -> int:
        """Become the trainer, acknowledge what the checkpoint contains, make its weights known."""
        epoch = self._calls.call(lambda ledger: ledger.attach_trainer(self._settings.owner))
        self._calls.call(lambda ledger: ledger.ack_batch(epoch, self._state.recent_batches))
        self._publish(epoch)
        return epoch

    def _iterate(self, epoch: int, began_s: float) -> None:
        timer = PhaseTimer(self._clock, self._state.step, self._listener)
        taken = self._intake.next_batch(epoch, self._state.step, timer)
        with timer.within(Phase.TRAIN):
            ready_s = self._clock.monotonic_s() + self._settings.min_train_s
            parts = self._train(taken)
            if (early_s := ready_s - self._clock.monotonic_s()) > 0:
                self._clock.pause(early_s)
        with timer.within(Phase.CHECKPOINT):
            self._state = self._state.consumed(taken.batch.batch_id, self._intake.next_prompt)
            self._store.save(self._snapshot())
        with timer.within(Phase.PUBLISH):
            self._publish(epoch)
        timer.announce(ACKNOWLEDGE)
        self._calls.call(lambda ledger: ledger.ack_batch(epoch, (taken.batch.batch_id,)))
        self._tell(epoch, taken, parts, timer, began_s)
        self._prune()

    def _train(self, taken: ScoredBatch) -> list[LossParts]:
        batch = collate_groups(taken.batch.groups, taken.rewards)
        return self._learner.update(batch, draw_minibatches(len(batch), self._settings.update, self._generator))

    def _snapshot(self) -> Checkpoint:
        return Checkpoint(
            state=self._state,
            model=self._learner.model_state(),
            optimiser=self._learner.optimiser_state(),
            generator=self._generator.get_state(),
            manifest=self._learner.manifest,
        )

    def _publish(self, epoch: int) -> PolicyVersion:
        """Weights durable first, then known."""
        step = self._state.step
        data = dump_state(self._learner.model_state())
        parent = step - 1 if step else None
        version = publish_weights(self._settings.weights, data, self._state.architecture, step, parent)
        self._calls.call(lambda ledger: ledger.publish(epoch, version))
        self._watch.published(step, self._clock.monotonic_s())
        return version

    def _tell(self, epoch: int, taken: ScoredBatch, parts: list[LossParts], timer: PhaseTimer, began_s: float) -> None:
        """Report to the ledger and to whoever listens."""
        self._waited_s += timer.wait_s
        busy_s = max(timer.iteration_s - timer.wait_s, 1e-9)
        elapsed_s = max(self._clock.monotonic_s() - began_s, 1e-9)
        phase_s = dict(timer.phase_s)
        if self._watch.last_s is not None:
            phase_s[Phase.REDISTRIBUTION] = self._watch.last_s
        samples = sum(len(group.samples) for group in taken.batch.groups)
        if (generation_s := longest_generation_s(taken)) is not None:
            phase_s[Phase.GENERATION] = generation_s
        report = TrainerReport(
            step=self._state.step,
            unblocked_samples_per_s=samples / busy_s,
            phase=Phase.BUFFER_WAIT,
            phase_s=phase_s,
            reward_mean=sum(taken.seen_rewards) / len(taken.seen_rewards),
            wait_ratio=min(1.0, self._waited_s / elapsed_s),
        )
        self._calls.call(lambda ledger: ledger.report(epoch, report))
        self._last_report = epoch, report
        self._on_update(record_update(report, taken, parts, self._clock.now_s()))

    def _remind(self) -> None:
        """Say the last report again: a starved trainer's unblocked rate still holds, and a signal that went stale would not."""
        if self._last_report is not None:
            epoch, report = self._last_report
            self._calls.call(lambda ledger: ledger.report(epoch, report))

    def _prune(self) -> None:
        workers = self._calls.call(lambda ledger: ledger.workers())
        in_use = {w.status.version for w in workers if not w.gone and w.status.version is not None}
        self._store.prune(self._settings.keep_checkpoints)
        prune_weights(self._settings.weights, keep=self._settings.keep_versions, in_use=in_use)
