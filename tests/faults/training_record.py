"""What outlives a trainer: its checkpoints, in the order they became durable, and what each was trained on."""

from dataclasses import dataclass, field

from tests.faults.watch import Watch
from trainer.checkpoint import TrainerState


@dataclass(slots=True)
class TrainingRecord:
    """A checkpointed history may contain a prompt once."""

    watch: Watch
    states: list[TrainerState] = field(default_factory=list)
    prompts: dict[str, int] = field(default_factory=dict)
    """Group id -> the step in whose checkpoint it is."""
    batches: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Batch -> its groups, when a gradient was first computed on it."""

    @property
    def durable_step(self) -> int:
        """The newest checkpoint's step; -1 before there is one."""
        return self.states[-1].step if self.states else -1

    def is_checkpointed(self, batch_id: int) -> bool:
        """Whether a durable checkpoint contains the batch."""
        return bool(self.states) and batch_id in self.states[-1].recent_batches

    def trained(self, batch_id: int, groups: tuple[str, ...]) -> None:
        """A trainer computes a gradient on a batch; worth nothing before its checkpoint."""
        before = self.batches.setdefault(batch_id, groups)
        if before != groups:
            self.watch.broke(
                "same batch again", f"batch {batch_id} was {before} when it was trained on, now it is {groups}"
            )

    def save(self, state: TrainerState) -> None:
        """A checkpoint became durable."""
        if state.step:
            for group in self.batches.get(state.recent_batches[-1], ()) if state.recent_batches else ():
                step = self.prompts.setdefault(group, state.step)
                if step != state.step:
                    self.watch.broke("trained twice", f"{group} is in the checkpoints of steps {step} and {state.step}")
        self.states.append(state)
