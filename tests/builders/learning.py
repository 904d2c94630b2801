"""Learning without a ledger: how fast a task is learnt, from samples as stale and as joined as a fleet makes them.

`python -m tests.builders.learning --seeds 0 1 2 --updates 60 --staleness 2` prints the mean reward in steps of five updates.
"""

import argparse
import copy
import random

import torch

from scaler.model.job import JobSettings
from scaler.model.work import GroupSamples, Sample, WorkUnit
from tests.builders.rollouts import generate
from trainer.batching import collate_groups
from trainer.moe import TinyMoE
from trainer.supply import PromptSupply
from trainer.tasks import TASKS
from trainer.update import UpdateSettings, draw_minibatches, make_optimiser, update_policy

JOB = JobSettings(group_size=8, batch_groups=8)


class Learning:
    """A trainer and its history of policies; groups without spread are left out, in at most two batches' worth."""

    def __init__(self, task: str, seed: int, *, staleness: int, joined_ratio: float) -> None:
        self.task = TASKS[task]()
        self.staleness = staleness
        self.joined_ratio = joined_ratio
        self.model = TinyMoE(self.task.model(), seed=seed)
        self.settings = UpdateSettings()
        self.optimiser = make_optimiser(self.model, self.settings)
        self.generator = torch.Generator().manual_seed(seed)
        self.random = random.Random(seed)
        self.supply = PromptSupply(task=self.task, seed=seed, group_size=JOB.group_size, time_bound_s=60.0)
        self.policies = [copy.deepcopy(self.model)]
        self.prompts = 0

    def update(self) -> float:
        """One update; the mean reward of every sample drawn for it."""
        groups: list[GroupSamples] = []
        rewards: list[list[float]] = []
        seen: list[float] = []
        drawn = 0
        while len(groups) < JOB.batch_groups:
            group = self._group(self.supply.units(self.prompts))
            values = [self.task.reward(u.payload, s.tokens) for u, s in zip(group.units, group.samples, strict=True)]
            seen += values
            drawn, self.prompts = drawn + 1, self.prompts + 1
            if len(set(values)) > 1 or drawn > 2 * JOB.batch_groups:
                groups.append(group)
                rewards.append(values)
        batch = collate_groups(groups, rewards)
        minibatches = draw_minibatches(len(batch), self.settings, self.generator)
        update_policy(self.model, self.optimiser, batch, self.settings, minibatches)
        self.policies.append(copy.deepcopy(self.model))
        return sum(seen) / len(seen)

    def _group(self, units: tuple[WorkUnit, ...]) -> GroupSamples:
        newest = len(self.policies) - 1
        version = max(0, newest - self.random.randint(0, self.staleness))
        samples = generate(self.policies[version], units, self.generator, version=version)
        samples = [self._joined(u, s, newest) for u, s in zip(units, samples, strict=True)]
        return GroupSamples(
            group_id=units[0].group_id,
            group_epoch=0,
            units=units,
            samples=tuple(samples),
            attempts=(1,) * len(units),
        )

    def _joined(self, unit: WorkUnit, sample: Sample, newest: int) -> Sample:
        """Perhaps the same unit again, interrupted half-way and continued under the newest policy."""
        if self.random.random() >= self.joined_ratio or len(sample.tokens) < 2:
            return sample
        version = sample.oldest_version
        cut = len(sample.tokens) // 2
        first = generate(self.policies[version], [unit], self.generator, version=version, stop_after=cut)
        if first[0].tokens[-1] == self.model.config.end_token or len(first[0].tokens) < cut:
            return first[0]
        return generate(self.policies[newest], [unit], self.generator, version=newest, resumed=first)[0]


def curve(task: str, seed: int, updates: int, *, staleness: int = 2, joined_ratio: float = 0.05) -> list[float]:
    """Mean reward of each update."""
    learning = Learning(task, seed, staleness=staleness, joined_ratio=joined_ratio)
    return [learning.update() for _ in range(updates)]


def main() -> None:
    """Print curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="repeat")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--joined-ratio", type=float, default=0.05)
    options = parser.parse_args()
    for seed in options.seeds:
        values = curve(
            options.task, seed, options.updates, staleness=options.staleness, joined_ratio=options.joined_ratio
        )
        means = [sum(values[i : i + 5]) / len(values[i : i + 5]) for i in range(0, len(values), 5)]
        print(f"seed {seed}:", " ".join(f"{mean:.2f}" for mean in means), flush=True)  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
