"""What a replica really costs from now on: expected rent, net of refunds, for each hour of expected use.

A replica of age a (0: yet to be launched), ready in w hours, then wanted for T hours, with hazard h(x) an hour at age x:

    S(x) = exp(-integral of h from a to x)      end = a + w + T          used = integral of S over [a + w, end]
    paid = q * (integral of S over [a, end] - integral of x * h(x) * S(x) over [a, R])
    cost = (paid + loss * (1 - S(end))) / used

q rent (USD/h), R the age up to which the cloud takes nothing, the past rent included, where it takes the instance back itself
(h), loss what one interruption costs beside the rent (USD). What was paid before a is sunk, so that a replica once launched
costs less from then on than a new one like it: nothing is bought twice. Hazards are constant within age buckets
(`policies.offer_history`), so that the integrals are sums of closed forms.

Invariants: never below 0, rising in q and in w; rising in h where R = 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from policies.offer_history import AGE_BOUNDS_H, bucket_of

NEXT_TO_NOTHING = 1e-9
BUCKET_ENDS_H = (*AGE_BOUNDS_H, math.inf)


class Rent(NamedTuple):
    """An offering's terms. Hazards by age bucket, an hour. A named tuple: they are made anew in every judgement."""

    usd_per_h: float
    hazards_per_h: Sequence[float]
    refund_h: float
    loss_usd: float

    def per_hour_of_use(self, age_h: float, wait_h: float, use_h: float) -> float:
        """USD/h; infinite where nothing of it can be used."""
        ready_h = age_h + wait_h
        end_h = ready_h + use_h
        refund_h = min(self.refund_h, end_h)
        marked = wait_h > 0 or refund_h > age_h
        held_h, taken_h, survival = 0.0, 0.0, 1.0
        waited_h, refunded_h, begin = 0.0, 0.0, age_h
        for bucket in range(bucket_of(age_h), len(BUCKET_ENDS_H)):
            if begin >= end_h:
                break
            hazard, bound = self.hazards_per_h[bucket], BUCKET_ENDS_H[bucket]
            end = bound if bound < end_h else end_h  # noqa: FURB136
            span = end - begin
            if marked and begin < ready_h <= end:
                waited_h = held_h + survival * _lasts_h(hazard, ready_h - begin)
            if marked and begin < refund_h < end:
                refunded_h = taken_h + survival * _taken_h(hazard, begin, refund_h - begin)
            if hazard:
                left = math.exp(-hazard * span)
                here = span if hazard * span < NEXT_TO_NOTHING else (1 - left) / hazard
                held_h += survival * here
                # by parts: [-x S] + integral of S
                taken_h += survival * (begin - (begin + span) * left + here)
                survival *= left
            else:
                held_h += survival * span
            if marked and end == refund_h:
                refunded_h = taken_h
            begin += span
        used_h = held_h - waited_h
        if used_h <= 0:
            return math.inf
        return max(0.0, self.usd_per_h * (held_h - refunded_h) + self.loss_usd * (1 - survival)) / used_h


def _lasts_h(hazard: float, span_h: float) -> float:
    """Integral of S over a span of one hazard, which begins with S = 1."""
    return (1 - math.exp(-hazard * span_h)) / hazard if hazard * span_h >= NEXT_TO_NOTHING else span_h


def _taken_h(hazard: float, begin_h: float, span_h: float) -> float:
    """Integral of x h S over it."""
    if not hazard:
        return 0.0
    return begin_h - (begin_h + span_h) * math.exp(-hazard * span_h) + _lasts_h(hazard, span_h)
