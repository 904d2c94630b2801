"""Which of its instances a fall takes is the cloud's luck: none is likelier to be taken than another.

A fall from c0 to c1 takes held - c1 of those that are held and not doomed, drawn from all alike. Not more than c0 of them are
there, so each is taken with a probability of (held - c1) / held <= (c0 - c1) / c0 = p at the most, whatever the policy does:
it cannot know the draw. In the mean over draws, therefore, of the replicas granted before any moment and alive at the fall
at most the share p is taken. With

    q[f, j]   paid replicas granted in step j and alive at fall f      (columns)
    x[f, s]   refunded replicas granted at s and taken by fall f       (the lives)

and e[i] the edges of steps, for every fall f and edge e[i] within a refund's time before it

    sum(x[f, s] : s <= e[i])  <=  p * ( sum(q[f, j] : j <= i)  +  sum(x[f', s] : f' >= f, s <= e[i + 1]) )      (1)
    sum(q[f, j] : j < k)      <=  held[k]         for every step k before f and after the fall before f       (2)
    q[f', j]                  <=  q[f, j]         for the next fall f' after f                                 (3)

(1) A life granted between two moments is written as a mixture of lives granted at these (`relaxation`), so the left side holds
lives granted before e[i + 1] at the latest, and the right side all that were. (2) What was granted before a step and is alive
after it was held all through it. (3) What is alive later was alive before.

All rows are linear, so means over draws obey them where every draw's run does, or where luck is the same for all.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from scaler.simulate.optimum.problem import Fall, OfferingLimits
from scaler.simulate.optimum.program import Builder
from scaler.simulate.optimum.steps import Floats
from scaler.simulate.optimum.times import Columns


def add_fair_draws(
    builder: Builder, edges_s: Floats, limits: OfferingLimits, held: Columns, lives: Sequence[Columns], refund_s: float
) -> None:
    """The rows above for one offering; `lives`: their columns, one array a fall."""
    drawn = [(fall, columns) for fall, columns in zip(limits.falls, lives, strict=True) if fall.stays > 0]
    cohorts = [_Cohorts(builder, edges_s, limits, fall, refund_s) for fall, _ in drawn]
    for cohort in cohorts:
        later = [
            (fall, columns) for fall, columns in zip(limits.falls, lives, strict=True) if fall.at_s >= cohort.fall.at_s
        ]
        cohort.add_shares(builder, edges_s, later)
    before = 0
    for cohort in cohorts:
        cohort.add_held(builder, held, before)
        before = cohort.end
    for earlier, later_one in pairwise(cohorts):
        earlier.add_order(builder, later_one)


class _Cohorts:
    """The paid replicas alive at one fall, by step of their grant: steps `first` to `end` - 1, `end` begins at the fall."""

    def __init__(self, builder: Builder, edges_s: Floats, limits: OfferingLimits, fall: Fall, refund_s: float) -> None:
        self.fall = fall
        self.first = max(0, int(np.searchsorted(edges_s, fall.at_s - refund_s, "right")) - 1)
        self.end = int(np.searchsorted(edges_s, fall.at_s, "left"))
        self.columns = builder.add(np.full(self.end - self.first, float(max(limits.held_most))))

    def add_shares(self, builder: Builder, edges_s: Floats, later: Sequence[tuple[Fall, Columns]]) -> None:
        """(1), one row an edge; `later`: this fall and those after it, with their lives."""
        share = self.fall.most_replicas / (self.fall.most_replicas + self.fall.stays)
        granted_s = [np.array([life.granted_s for life in fall.lives]) for fall, _ in later]
        for i in range(self.first + 1, self.end + 1):
            taken = later[0][1][granted_s[0] <= edges_s[i]]
            if not len(taken):
                continue
            reach_s = edges_s[min(i + 1, self.end)]
            alive = [columns[at_s <= reach_s] for (_, columns), at_s in zip(later, granted_s, strict=True)]
            paid = self.columns[: i - self.first + 1]
            found = np.concatenate([taken, paid, *alive])
            value = np.concatenate([np.ones(len(taken)), np.full(len(found) - len(taken), -share)])
            builder.at_most(np.zeros(1), (np.zeros(len(found), dtype=np.int64), found, value))

    def add_held(self, builder: Builder, held: Columns, before: int) -> None:
        """(2); `before`: the step that the fall before this one begins."""
        for k in range(max(self.first + 1, before), self.end):
            granted = self.columns[: k - self.first]
            found = np.append(granted, held[k])
            value = np.append(np.ones(len(granted)), -1.0)
            builder.at_most(np.zeros(1), (np.zeros(len(found), dtype=np.int64), found, value))

    def add_order(self, builder: Builder, later: "_Cohorts") -> None:
        """(3)."""
        shared = range(later.first, self.end)
        if not shared:
            return
        now = self.columns[later.first - self.first :]
        then = later.columns[: len(shared)]
        rows = np.arange(len(shared))
        builder.at_most(np.zeros(len(shared)), (rows, then, 1.0), (rows, now, -1.0))
