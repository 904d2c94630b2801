"""Who holds the weights and learns: this process alone (`LocalLearner`), or a crew of them (`trainer.expert_parallel`).

The loop asks for updates and for the whole state; how many processes hold it is the learner's affair. So a checkpoint
is the same file whoever wrote it, and a run may go on with another number of ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from trainer.batching import TokenBatch
from trainer.checkpoint import optimiser_tensors, restore_optimiser
from trainer.grpo import LossParts
from trainer.moe import MoEConfig, TinyMoE
from trainer.update import UpdateSettings, make_optimiser, update_policy


class Learner(Protocol):
    """See the module's docstring."""

    @property
    def manifest(self) -> Mapping[str, str]:
        """What it was built from and runs on; empty where nothing was declared that would have to be proved."""
        ...

    def restore(self, model: Mapping[str, Tensor], optimiser: Mapping[str, Tensor]) -> None:
        """Go on from whole states, as `model_state` and `optimiser_state` gave them."""
        ...

    def update(self, batch: TokenBatch, minibatches: Sequence[Tensor]) -> list[LossParts]:
        """A gradient step for each of `minibatches`, rows of `batch`; the parts of each step."""
        ...

    def model_state(self) -> Mapping[str, Tensor]:
        """All weights by name."""
        ...

    def optimiser_state(self) -> Mapping[str, Tensor]:
        """All of the optimiser's tensors, keyed "<parameter index>.<name>"."""
        ...


LearnerFactory = Callable[[MoEConfig, int, UpdateSettings], Learner]
"""(architecture, seed of fresh weights, settings) -> a learner."""


class LocalLearner:
    """The whole model in this process."""

    manifest: Mapping[str, str] = {}

    def __init__(self, config: MoEConfig, seed: int, settings: UpdateSettings) -> None:
        self._settings = settings
        self._model = TinyMoE(config, seed=seed)
        self._optimiser = make_optimiser(self._model, settings)

    def restore(self, model: Mapping[str, Tensor], optimiser: Mapping[str, Tensor]) -> None:
        """Take these."""
        self._model.load_state_dict(model)
        restore_optimiser(self._optimiser, optimiser)

    def update(self, batch: TokenBatch, minibatches: Sequence[Tensor]) -> list[LossParts]:
        """Here."""
        return update_policy(self._model, self._optimiser, batch, self._settings, minibatches)

    def model_state(self) -> Mapping[str, Tensor]:
        """The model's own tensors, not copies."""
        state: Mapping[str, torch.Tensor] = self._model.state_dict()
        return state

    def optimiser_state(self) -> Mapping[str, Tensor]:
        """The optimiser's own tensors, not copies."""
        return optimiser_tensors(self._optimiser)
