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
from functools import lru_cache
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
        usd_per_h, hazards_per_h, refund_h, loss_usd = self
        held_h, taken_h, survival = 0.0, 0.0, 1.0
        waited_h, refunded_h = 0.0, 0.0
        for bucket, begin, span, to_ready_h, to_refund_h, refunds_end in _course(age_h, wait_h, use_h, refund_h):
            hazard = hazards_per_h[bucket]
            if to_ready_h:
                waited_h = held_h + survival * _lasts_h(hazard, to_ready_h)
            if to_refund_h:
                refunded_h = taken_h + survival * _taken_h(hazard, begin, to_refund_h)
            if hazard:
                left = math.exp(-hazard * span)
                here = span if hazard * span < NEXT_TO_NOTHING else (1 - left) / hazard
                held_h += survival * here
                # by parts: [-x S] + integral of S
                taken_h += survival * (begin - (begin + span) * left + here)
                survival *= left
            else:
                held_h += survival * span
            if refunds_end:
                refunded_h = taken_h
        used_h = held_h - waited_h
        if used_h <= 0:
            return math.inf
        return max(0.0, usd_per_h * (held_h - refunded_h) + loss_usd * (1 - survival)) / used_h


class _Stretch(NamedTuple):
    """Time in one age bucket. Hours."""

    bucket: int
    begin_h: float
    span_h: float
    to_ready_h: float
    """From its begin, 0 where it is not ready within it; likewise the others."""
    to_refund_h: float
    refunds_end: bool
    """Whether the last refund ends with it."""


@lru_cache(maxsize=1 << 12)  # ages are rounded: the same ones come in judgement after judgement
def _course(age_h: float, wait_h: float, use_h: float, refund_h: float) -> tuple[_Stretch, ...]:
    """The age buckets that a replica passes through from now on, whatever their hazards."""
    ready_h, begin_h = age_h + wait_h, age_h
    end_h = ready_h + use_h
    refund_h = min(refund_h, end_h)
    marked = wait_h > 0 or refund_h > age_h
    course: list[_Stretch] = []
    for bucket in range(bucket_of(age_h), len(BUCKET_ENDS_H)):
        if begin_h >= end_h:
            break
        stop_h = min(BUCKET_ENDS_H[bucket], end_h)
        to_ready_h = ready_h - begin_h if marked and begin_h < ready_h <= stop_h else 0.0
        to_refund_h = refund_h - begin_h if marked and begin_h < refund_h < stop_h else 0.0
        stretch = bucket, begin_h, stop_h - begin_h, to_ready_h, to_refund_h, marked and stop_h == refund_h
        course.append(_Stretch(*stretch))
        begin_h += stop_h - begin_h
    return tuple(course)


def _lasts_h(hazard: float, span_h: float) -> float:
    """Integral of S over a span of one hazard, which begins with S = 1."""
    return (1 - math.exp(-hazard * span_h)) / hazard if hazard * span_h >= NEXT_TO_NOTHING else span_h


def _taken_h(hazard: float, begin_h: float, span_h: float) -> float:
    """Integral of x h S over it."""
    if not hazard:
        return 0.0
    return begin_h - (begin_h + span_h) * math.exp(-hazard * span_h) + _lasts_h(hazard, span_h)
