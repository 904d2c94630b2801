"""The steps of a problem, with an edge wherever capacity that may be refunded falls.

They are no longer than a launch, unless launches are next to nothing.
Invariants: the first edge is 0, the last is the end; edges grow strictly; at most `MOST_STEPS` steps.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from scaler.simulate.optimum.steps import Floats

WANTED_STEP_S = 300.0
MOST_LAUNCHES = 1500
"""Launches shorter than so small a part of the window are as good as none."""
PLAIN_STEPS = 200
"""At least so many steps where launches are."""
MOST_STEPS = 4000
"""Beyond that steps are all equal and may be longer than a launch, or the solver would not end."""
_APART_S = 1e-3


def edges_of(end_s: float, launch_s: float, falls_s: Iterable[float]) -> Floats:
    """The edges of the steps, in seconds."""
    wanted_s = min(launch_s if launch_s >= end_s / MOST_LAUNCHES else end_s / PLAIN_STEPS, WANTED_STEP_S)
    knots = list(_apart(sorted({*falls_s, 0.0, end_s}), end_s))
    counts = [_parts(to_s - from_s, wanted_s, launch_s) for from_s, to_s in pairwise(knots)]
    if sum(counts) > MOST_STEPS:
        return np.linspace(0.0, end_s, MOST_STEPS + 1)
    parts = (
        np.linspace(from_s, to_s, n, endpoint=False) for (from_s, to_s), n in zip(pairwise(knots), counts, strict=True)
    )
    return np.concatenate([*parts, [end_s]])


def _apart(moments: list[float], end_s: float) -> Iterator[float]:
    """Those that are not too near to the one before; the end always."""
    last = -math.inf
    for moment in moments:
        if moment == end_s or (moment - last > _APART_S and end_s - moment > _APART_S):
            yield moment
            last = moment


def _parts(gap_s: float, wanted_s: float, launch_s: float) -> int:
    """Equal parts of at most `wanted_s`; one more where whole parts then fill more of a launch."""
    fewest = max(1, math.ceil(gap_s / wanted_s - 1e-9))

    def filled_s(parts: int) -> float:
        part_s = gap_s / parts
        return math.floor(launch_s / part_s + 1e-9) * part_s

    return max((fewest, fewest + 1), key=lambda parts: (filled_s(parts) > 1.1 * filled_s(fewest), -parts))
