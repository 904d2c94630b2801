"""A small run: a task of short answers, a ledger, a worker that works while the trainer pauses."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from scaler.ledger.contract import Ledger
from scaler.model.job import JobSettings
from tests.builders.in_process_worker import InProcessWorker, PausingClock
from trainer.loop import Trainer, TrainerSettings
from trainer.moe import MoEConfig
from trainer.record import UpdateRecord
from trainer.tasks import Repeat

JOB = JobSettings(group_size=4, batch_groups=3, max_staleness=2)


class ShortRepeat(Repeat):
    """Answers of a few tokens, and a model of a few weights."""

    def __init__(self) -> None:
        super().__init__(digits=2, counts=(2, 4), weights=(1, 1))

    def model(self) -> MoEConfig:
        return replace(super().model(), dim=16, layers=1, heads=2, hidden=16)


class Run:
    """A folder with checkpoints and weights, and trainers that run in it one after the other."""

    def __init__(self, folder: Path, ledger: Ledger, *, units_per_pause: int = 5) -> None:
        self.settings = TrainerSettings(
            owner="test",
            job=JOB,
            updates=4,
            weights=folder / "weights",
            checkpoints=folder / "checkpoints",
            seed=1,
            keep_versions=100,
        )
        self.ledger = ledger
        self.stop = threading.Event()
        self.records: list[UpdateRecord] = []
        self.phases: list[tuple[int, str]] = []
        worker = InProcessWorker(ledger, self.settings.weights)
        self.clock = PausingClock(lambda: worker.work(units_per_pause))

    def trainer(self, at_phase: Callable[[int, str], None] = lambda step, phase: None, **changes: object) -> Trainer:
        """A trainer as a new process would be: everything it knows comes from the folder and the ledger."""

        def listen(step: int, phase: str) -> None:
            self.phases.append((step, phase))
            at_phase(step, phase)

        return Trainer(
            self.ledger,
            ShortRepeat(),
            replace(self.settings, **changes),  # type: ignore[arg-type]
            self.clock,
            stop=self.stop,
            listener=listen,
            on_update=self.records.append,
        )

    def digests(self) -> dict[int, str]:
        """Published versions: step -> beginning of the digest."""
        folders = self.settings.weights.glob("v*")
        return {int(folder.name[1:9]): folder.name[10:] for folder in folders if (folder / "STABLE").exists()}
