"""A fleet that begins with nothing: what it takes its goodput to be until that can be told.

The first groups come a launch and a whole generation after the first request, and for a while after that the goodput measured
is far below what it will be: long units are still under way. A fleet sized by it would ask for many times too many replicas
where spot is there, and would find a replica worth nothing where it is not. So until `settles_s` after the first
measurement the goodput is taken to be that of a fleet in balance whose rent at the cheapest price is the trainer's,

    g_0 = rate * q / C

or what is measured, where that is more; nothing is let go meanwhile, and nothing measured is remembered. Workers that
never give any cost no more than the trainer that waits for them.

Memory: one number, or two. Where C is not declared there is nothing to begin with: the fleet starts with one replica.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from policies.base import SizingInput
from policies.demand import GOODPUT, SINCE_S, Demand
from policies.offers import Offer

COLD_S, GIVES_S = "cold_s", "gives_s"
"""Memory: since when a fleet is new, and since when it gives anything."""


class Start(NamedTuple):
    """The demand as it is to be taken, and whether the fleet is new still."""

    demand: Demand
    cold: bool


def started(
    view: SizingInput, demand: Demand, known: Sequence[Offer], trainer_usd_per_h: float | None, settles_s: float
) -> Start:
    """See the module's docstring; a fleet that had a goodput, or a ready replica, when it was first judged is not new."""
    since_s = _cold_since_s(view, demand)
    if since_s is None or not trainer_usd_per_h or not known:
        return Start(demand=demand, cold=False)
    gives_s = view.memory.get(GIVES_S, math.inf if demand.goodput is None else view.now_s)
    if view.now_s - gives_s >= settles_s:
        return Start(demand=demand, cold=False)
    assumed = demand.rate / max(1.0, trainer_usd_per_h / known[0].usd_per_h)
    memory = {key: value for key, value in demand.memory.items() if key not in {GOODPUT, SINCE_S}}
    memory |= {COLD_S: since_s} if math.isinf(gives_s) else {COLD_S: since_s, GIVES_S: gives_s}
    goodput = max(demand.goodput or 0.0, assumed)
    return Start(demand=demand._replace(goodput=goodput, may_lower=False, memory=memory), cold=True)


def _cold_since_s(view: SizingInput, demand: Demand) -> float | None:
    if COLD_S in view.memory:
        return view.memory[COLD_S]
    return view.now_s if demand.goodput is None and not view.ready else None
