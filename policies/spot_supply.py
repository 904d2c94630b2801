"""What spot has given of what was wanted of it, over time.

    s  mean share that spot held of the balance n*

A mean since the start that turns into an exponential one (time constant `forget_s`), and begins with what is expected. A fleet
that wants less than n* of spot, because its buffer is full, is not short: what was wanted last is in the memory.
A new fleet that holds none and was not refused yet is no sign of scarcity.

Memory: four numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policies.base import SizingInput
from policies.demand import Demand
from policies.ewma import remembered
from policies.offers import Offer

SHARE, AVERAGED_S = "spot_share", "share_averaged_s"
SHORT_SINCE_S, WANTED = "short_since_s", "spot_wanted"
LEAST_SHARE = 0.05
FIRST_S = 3600.0
"""What the first reading counts as: capacity stays as it is for hours rather than minutes (research/spot-policies.md 1.3)."""


class SpotSupply(NamedTuple):
    """See the module's docstring. `short_since_s` None: not short now."""

    share: float
    short_since_s: float | None
    averaged_s: float | None
    """None: nothing was seen yet."""

    @property
    def memory(self) -> Mapping[str, float]:
        """To be kept for the next judgement, with what is wanted of spot (`WANTED`)."""
        kept = {} if self.averaged_s is None else {SHARE: self.share, AVERAGED_S: self.averaged_s}
        return kept if self.short_since_s is None else {**kept, SHORT_SINCE_S: self.short_since_s}

    def to_count_on(self, observation_s: float) -> float:
        """1 / E[1 / s], since what a sample costs on spot alone goes with 1 / s, which a short look does not tell for sure.

        s is Beta distributed, its mean known from n looks of `observation_s` each: (n s - 1) / (n - 1). 0, or nothing
        seen yet: as if it were certain.
        """
        if observation_s <= 0 or self.averaged_s is None:
            return self.share
        looks = self.averaged_s / observation_s
        return max(LEAST_SHARE, (looks * self.share - 1) / (looks - 1)) if looks > 1 else LEAST_SHARE

    def lasts_s(self, now_s: float, usual_s: float) -> float:
        """How long a shortage that is on, or begins now, is reckoned to last.

        What has lasted will last as long again. Where spot gives a share s, shortages are (1 - s) / s times as long as the time
        between them, which is taken to be `usual_s`; and not shorter than that.
        """
        share = max(LEAST_SHARE, min(1.0, self.share))
        so_far_s = 0.0 if self.short_since_s is None else max(0.0, now_s - self.short_since_s)
        return max(usual_s * max(1.0, (1 - share) / share), so_far_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is expected of spot before it was seen: `ratio` for s, worth as much as `weight_s` of seeing."""

    ratio: float
    weight_s: float
    forget_s: float


def spot_supply(view: SizingInput, known: Sequence[Offer], demand: Demand, expected: Expectation) -> SpotSupply:
    """The means after this reading; `demand` has a goodput."""
    balance = demand.balance or 0.0
    wanted = min(balance, view.memory.get(WANTED, balance))
    spot = [offer for offer in known if offer.spot]
    there = len([replica for offer in spot for replica in offer.held if replica.instance_ids])
    since_s = view.memory.get(SHORT_SINCE_S, view.now_s) if there < wanted - 1 else None
    before, averaged_s = remembered(view.memory, SHARE), remembered(view.memory, AVERAGED_S)
    seen_s = demand.elapsed_s
    if before is None or averaged_s is None:
        before, averaged_s = expected.ratio, expected.weight_s
        if not there and not any(offer.view.refusals for offer in spot):
            return SpotSupply(share=before, short_since_s=since_s, averaged_s=None)
        seen_s = FIRST_S
    averaged_s = min(expected.forget_s, averaged_s + seen_s)
    share = min(1.0, there / wanted) if wanted > 0 else 1.0
    gain = min(1.0, seen_s / averaged_s) if averaged_s > 0 else 1.0
    return SpotSupply(share=before + gain * (share - before), short_since_s=since_s, averaged_s=averaged_s)
