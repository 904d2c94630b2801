"""Keeping the ledger stocked with work units, ahead of what admission may let run.

Invariant: the units of a prompt depend on (seed, index) alone and their ids on the index, so putting them again after a
restart adds nothing, and no index is left out.
"""

import random
from dataclasses import dataclass

from scaler.model.work import WorkUnit
from trainer.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSupply:
    """Units of the `index`-th prompt."""

    task: Task
    seed: int
    group_size: int
    time_bound_s: float

    def units(self, index: int) -> tuple[WorkUnit, ...]:
        """The group of prompt `index`: the same prompt, each unit with a sampling seed of its own."""
        prompt = self.task.prompt(self.seed, index)
        draw = random.Random(f"units/{self.seed}/{index}")
        return tuple(
            WorkUnit(
                group_id=f"g{index:08d}",
                sample_index=place,
                group_size=self.group_size,
                prompt=prompt.tokens,
                seed=draw.getrandbits(62),
                max_tokens=prompt.max_tokens,
                time_bound_s=self.time_bound_s,
                payload=prompt.payload,
            )
            for place in range(self.group_size)
        )
