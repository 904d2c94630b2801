"""What a simulated run gives: figures, and the fleet over time."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


def share(value: float) -> float:
    """From 0 to 1: a solver's rounding, or that of many sums, may leave a little less than nothing, or more than all."""
    return min(1.0, max(0.0, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run. Costs in USD, times in seconds, tokens and samples as counts.

    `samples_trained` is what the trainer consumed; cost per sample divides by `samples_credited` (see `scenario`).
    """

    scenario: str
    policy: str
    seed: int
    hours: float
    cost_usd: float
    """Trainers included, refunds taken off."""
    samples_trained: int
    samples_credited: float
    cost_usd_per_1k_samples: float
    """Infinite where nothing was credited."""
    trainer_wait_ratio: float
    """Time that the trainer waited for a batch, over the whole time."""
    interruptions: int
    """Instances taken by the cloud or lost."""
    interruptions_unnoticed: int
    kills_at_work: int
    """Of those without notice: rollout replicas that held units."""
    tokens_generated: int
    tokens_salvaged: int
    """Published by a holder that lost its lease and continued by another."""
    tokens_wasted: int
    """Generated and never committed: lost with a holder, or given up with a unit whose group was too stale to go on.

    What is still held for units that wait or run is not wasted. A demo and `headrace record` count the same.
    """
    tokens_lost: int
    """Of those, what a holder had generated and not published when its units were taken from it."""
    tokens_stale: int
    """Committed, and dropped because they were too stale to be trained on."""
    replicas_mean: float
    """Ready rollout replicas, over time."""
    wall_s: float
    """Of the computation."""
    policy_updates: int
    cost_trainer_usd: float
    cost_by_capacity_usd: Mapping[str, float]
    """Rent by capacity type, refunds taken off."""
    refunds_usd: float
    launches: int
    """Asked for, whether granted or refused."""
    refusals: int
    """Of those."""
    samples_dropped: int
    """Too stale."""
    samples_filtered: int
    end_stock_samples: float
    start_stock_samples: float

    def to_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The run in steps of `step_s`; every sequence has one value a step, the mean over it unless it says otherwise."""

    step_s: float
    held: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Instances granted and not gone, by offering id."""
    ready: tuple[float, ...] = ()
    capacity: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What the offering would hold, by offering id."""
    buffered_samples: tuple[float, ...] = ()
    waiting_ratio: tuple[float, ...] = ()
    """Shares: from 0 to 1, without the rounding of what made them."""
    rent_usd_per_h: tuple[float, ...] = ()
    wasted_tokens: tuple[float, ...] = ()
    """In the step."""
    interruptions: tuple[int, ...] = ()
    """In the step."""
    desired: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated run."""

    summary: Summary
    timeline: Timeline
