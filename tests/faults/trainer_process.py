"""The trainer as a process: production's loop, intake and order of steps; the arithmetic of the update left out.

It is the one part that blocks, so it runs outside the event loop, and its pauses are what moves the world.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from scaler.ledger.contract import Ledger
from scaler.model.job import JobSettings
from scaler.model.work import PolicyVersion, Resume, WorkUnit
from tests.faults.training_record import TrainingRecord
from tests.faults.virtual_loop import START_S, VirtualLoop
from trainer.checkpoint import Checkpoint, CheckpointStore
from trainer.grpo import LossParts
from trainer.intake import IntakeSettings, ScoredBatch
from trainer.learner import LearnerFactory
from trainer.loop import Trainer, TrainerSettings
from trainer.moe import MoEConfig
from trainer.supply import PromptSupply
from trainer.tasks import Prompt

TRAIN_S = 4.0
_NO_LOSS = LossParts(loss=torch.zeros(()), clipped_ratio=0.0, capped_ratio=0.0, weight_mean=1.0, entropy=0.0)


class Killed(BaseException):
    """SIGKILL: nothing of the process goes on."""


class KeyedTask:
    """Prompts whose answers are of any length up to a bound; every seventh group is worth nothing to the trainer."""

    def model(self) -> MoEConfig:
        return MoEConfig(vocab=97, max_len=64)

    def prompt(self, seed: int, index: int) -> Prompt:
        bound = 44 if index % 4 == 1 else 6 + index * 5 % 15
        return Prompt(tokens=(1, index % 97), max_tokens=bound, payload={"flat": str(index % 7 == 3)})

    def reward(self, payload: Mapping[str, str], tokens: tuple[int, ...]) -> float:
        return 0.5 if payload["flat"] == "True" else (sum(tokens) + len(tokens)) % 5 / 4


class MixedSupply(PromptSupply):
    """Some groups cannot be continued by another worker."""

    def units(self, index: int) -> tuple[WorkUnit, ...]:
        units = super().units(index)
        resume = {4: Resume.RESTART, 8: Resume.TURN}.get(index % 9, Resume.TOKEN)
        return tuple(replace(unit, resume=resume) for unit in units)


@dataclass(slots=True)
class PausingClock:
    """A `TrainerClock` whose pauses are the world's turn."""

    loop: VirtualLoop
    during: Callable[[float], None]

    def now_s(self) -> float:
        return START_S + self.loop.time()

    def monotonic_s(self) -> float:
        return self.loop.time()

    def pause(self, seconds: float) -> None:
        self.during(seconds)


class _Checkpoints:
    """Stands where the folder of checkpoints would."""

    def __init__(self, record: TrainingRecord) -> None:
        self._record = record

    def save(self, checkpoint: Checkpoint) -> None:
        self._record.save(checkpoint.state)


class TrainerProcess(Trainer):
    """Built by a new process: everything it knows comes from the checkpoints and the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        job: JobSettings,
        record: TrainingRecord,
        clock: PausingClock,
        *,
        folder: Path,
        published: Callable[[int], None],
        at_phase: Callable[[int, str], None],
    ) -> None:
        self._record = record
        self._made_readable = published
        settings = TrainerSettings(
            owner="trainer",
            job=job,
            updates=1_000_000,
            weights=folder,
            checkpoints=folder,
            min_train_s=TRAIN_S,
            intake=IntakeSettings(poll_s=3.0, look_every_s=9.0, stock_batches=0, refill_rounds=1, refill_wait_s=6.0),
        )
        super().__init__(
            ledger,
            KeyedTask(),
            settings,
            clock,
            stop=threading.Event(),
            listener=at_phase,
            on_update=lambda _: None,
        )
        supply = self._intake.supply
        self._intake.supply = MixedSupply(
            task=supply.task, seed=supply.seed, group_size=supply.group_size, time_bound_s=supply.time_bound_s
        )

    def _restore_or_begin(self, learner: LearnerFactory) -> None:
        self._store = cast("CheckpointStore", _Checkpoints(self._record))
        if self._record.states:
            self._state = self._record.states[-1]
        else:
            self._record.save(self._state)

    def _train(self, taken: ScoredBatch) -> list[LossParts]:
        batch = taken.batch
        self._record.trained(batch.batch_id, tuple(group.group_id for group in batch.groups))
        return [_NO_LOSS]

    def _snapshot(self) -> Checkpoint:
        nothing: dict[str, Any] = {}
        return Checkpoint(state=self._state, model=nothing, optimiser=nothing, generator=torch.zeros(0))

    def _publish(self, epoch: int) -> PolicyVersion:
        step = self._state.step
        version = PolicyVersion(step, f"{step:064x}")
        self._made_readable(step)
        self._calls.call(lambda ledger: ledger.publish(epoch, version))
        self._watch.published(step, self._clock.monotonic_s())
        return version

    def _prune(self) -> None:
        """Nothing lies on a disk."""
