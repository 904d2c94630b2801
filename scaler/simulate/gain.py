"""What a search gained: by how much the ratio to the bound fell, on the windows that it saw and on those that it did not.

Policy
* A gain is the mean over windows of the ratio before less the ratio after: 0.01 is a hundredth of the bound. A search chooses
  what did best on its training windows, so a gain there is expected of a search among numbers that are all as good.
* What it is worth the other windows say, with a 95 % interval (`bootstrap`). An interval that holds 0 is no gain; nor is one
  that cannot be told, since there are too few windows.
* Scenarios that were run on the same stretch of a trace are one observation there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from scaler.simulate.bootstrap import Interval, both_draws, ratio_of, wider
from scaler.simulate.compare import Estimate, blocks_of
from scaler.simulate.jobs import Place


class Verdict(StrEnum):
    """What a search came to."""

    GAIN = "gain"
    """On windows that it did not see, beyond chance."""
    CHANCE = "within_chance"
    """Better or worse on windows that it did not see; the interval holds 0."""
    LOSS = "loss"
    """Worse on windows that it did not see, beyond chance."""
    TOO_FEW = "too_few_windows"
    """Nobody can say."""
    UNCHANGED = "unchanged"
    """Nothing that was tried was better on the training windows either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """See the module's docstring; above 0 is better."""

    train: float
    test: Estimate

    @property
    def verdict(self) -> Verdict:
        """In a word."""
        if self.train <= 0.0:
            return Verdict.UNCHANGED
        found = self.test.interval
        if found is None:
            return Verdict.TOO_FEW
        if found.low > 0.0:
            return Verdict.GAIN
        return Verdict.LOSS if found.high < 0.0 else Verdict.CHANCE


def gain_of(
    before: Mapping[Place, float], after: Mapping[Place, float], train: Iterable[Place], test: Iterable[Place]
) -> Gain:
    """From the ratios to the bound. A place without a ratio counts for nothing; one of each split has one."""
    fell = {place: ratio - after[place] for place, ratio in before.items()}
    unseen = {place: fell[place] for place in test if place in fell}
    return Gain(
        train=fmean(fell[place] for place in train if place in fell),
        test=Estimate(value=fmean(unseen.values()), interval=_interval(unseen)),
    )


def _interval(fell: Mapping[Place, float]) -> Interval | None:
    """Of the mean over all places, drawing stretches of traces with all that was run there."""
    stretches: dict[tuple[str, int], list[Place]] = {}
    for place in sorted(fell, key=lambda place: (place.trace or "", place.window)):
        stretches.setdefault((place.trace or "", place.window), []).append(place)
    sums = [sum(fell[place] for place in places) for places in stretches.values()]
    lengths, block = blocks_of([places[0] for places in stretches.values()])
    counts = [len(places) for places in stretches.values()]
    return wider(ratio_of(sums, counts), both_draws(lengths, block))
