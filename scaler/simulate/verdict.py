"""Which policy is cheapest in a scenario, and whether by more than chance.

Policy: costs are means over the windows that count, those with a bound; the cheapest is held against the next, window by window,
so that what makes a window dear for all is out of the difference. Its interval is that of `bootstrap`.
Non-goals: scenarios together, whose costs differ by their machines; a correction for having picked the two out of many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from scaler.simulate.bootstrap import both_draws, mean_of, wider
from scaler.simulate.compare import Comparison, Estimate, Row, blocks_of, judges
from scaler.simulate.jobs import OPTIMUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The cheapest policy of a scenario; costs in USD per 1,000 samples, means over `windows` windows."""

    scenario: str
    windows: int
    policy: str
    cost: float
    next_policy: str | None
    """None where there is no other."""
    next_cost: float
    more: Estimate
    """By how much the next one costs more, window by window; no interval where windows are too few or a cost is infinite."""

    @property
    def more_than_chance(self) -> bool:
        """Whether the interval holds only what is above 0."""
        return self.more.interval is not None and self.more.interval.low > 0


def verdicts(comparison: Comparison) -> Iterator[Verdict]:
    """One for every scenario, in the order of the rows."""
    rows = [row for row in comparison.rows if row.policy != OPTIMUM and judges(row.bound_usd_per_1k_samples)]
    for scenario in dict.fromkeys(row.scenario for row in rows):
        yield _verdict([row for row in rows if row.scenario == scenario])


def _verdict(rows: Sequence[Row]) -> Verdict:
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.policy, []).append(row)
    mean = {name: fmean(row.cost_usd_per_1k_samples for row in mine) for name, mine in by_name.items()}
    first, *others = sorted(mean, key=lambda name: mean[name])
    second = others[0] if others else None
    return Verdict(
        scenario=rows[0].scenario,
        windows=len(by_name[first]),
        policy=first,
        cost=mean[first],
        next_policy=second,
        next_cost=math.nan if second is None else mean[second],
        more=_more(by_name[first], by_name[second or first]),
    )


def _more(first: Sequence[Row], second: Sequence[Row]) -> Estimate:
    costs = zip(first, second, strict=True)
    more = [b.cost_usd_per_1k_samples - a.cost_usd_per_1k_samples for a, b in costs]
    if not all(map(math.isfinite, more)):
        return Estimate(value=math.nan, interval=None)
    drawn = both_draws(*blocks_of([row.place for row in first]))
    return Estimate(value=fmean(more), interval=wider(mean_of(more), drawn))
