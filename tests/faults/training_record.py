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
    """Batch -> groups, as last handed to a trainer."""

    @property
    def durable_step(self) -> int:
        """The newest checkpoint's step; -1 before there is one."""
        return self.states[-1].step if self.states else -1

    def is_checkpointed(self, batch_id: int) -> bool:
        """Whether a durable checkpoint contains the batch."""
        return bool(self.states) and batch_id in self.states[-1].recent_batches

    def trained(self, batch_id: int, groups: tuple[str, ...]) -> None:
        """A trainer computes a gradient on a batch; worth nothing before its checkpoint."""
        self.batches[batch_id] = groups

    def save(self, state: TrainerState) -> None:
        """A checkpoint became durable."""
        before = self.states[-1] if self.states else TrainerState()
        for batch_id in state.recent_batches:
            if batch_id in before.recent_batches:
                continue
            for group in self.batches.get(batch_id, ()):
                if group in self.prompts:
                    step = self.prompts[group]
                    self.watch.broke("trained twice", f"{group} is in the checkpoints of steps {step} and {state.step}")
                self.prompts[group] = state.step
        self.states.append(state)
