"""What a replica really costs from now on: expected rent, net of refunds, for each hour of expected use.

A replica of age a (0: yet to be launched), ready in w hours, then wanted for T hours, with hazard h(x) an hour at age x:

    S(x) = exp(-integral of h from a to x)      end = a + w + T          used = integral of S over [a + w, end]
    paid = q * (integral of S over [a, end] - integral of x * h(x) * S(x) over [a, R])
    cost = (paid + loss * (1 - S(end))) / used

q rent (USD/h), R the age up to which the cloud takes nothing, the past rent included, where it takes the instance back itself
(h), loss what one interruption costs beside the rent (USD). What was paid before a is sunk, so that a replica once launched
costs less from then on than a new one like it: nothing is bought twice. Where a minimum M is charged however soon it goes (h), a
new one is charged M for certain, and of one that was launched that is sunk: with A = integral of S over [a, min(M, end)],

    paid = q * (...) + q * (M - A)  for a new one        paid = q * (...) - q * A  for one of age a < M

Hazards are constant within age buckets (`policies.offer_history`), so that the integrals are sums of closed forms. That a refund
gives back a minimum too is left out: a cloud with both, and a minimum above minutes, is not known.

Invariants: never below 0, rising in q and in w; rising in h where R = 0 and M = 0.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from policies.offer_history import AGE_BOUNDS_H, bucket_of

NEXT_TO_NOTHING = 1e-9
BUCKET_ENDS_H = (*AGE_BOUNDS_H, math.inf)


class Rent(NamedTuple):
    """An offering's terms. Hazards by age bucket, an hour. A named tuple: they are made anew in every judgement."""

    usd_per_h: float
    hazards_per_h: Sequence[float]
    refund_h: float
    loss_usd: float
    minimum_h: float = 0.0

    def per_hour_of_use(self, age_h: float, wait_h: float, use_h: float, *, launched: bool = False) -> float:
        """USD/h; infinite where nothing of it can be used. `launched`: a minimum is paid for already."""
        usd_per_h, hazards_per_h, refund_h, loss_usd, minimum_h = self
        first, then = _course(age_h, wait_h, use_h, refund_h)
        held_h, survival, refunded_h, waited_h = _begun(first, hazards_per_h) if first else _AT_WORK
        for bucket, span in then:
            hazard = hazards_per_h[bucket]
            risk = hazard * span
            left = math.exp(-risk)
            held_h += survival * (span if risk < NEXT_TO_NOTHING else (1 - left) / hazard)
            survival *= left
        used_h = held_h - waited_h
        if used_h <= 0:
            return math.inf
        if age_h < minimum_h:
            within_h = _survived_h(age_h, min(minimum_h, age_h + wait_h + use_h), hazards_per_h)
            held_h += -within_h if launched else minimum_h - within_h
        return max(0.0, usd_per_h * (held_h - refunded_h) + loss_usd * (1 - survival)) / used_h


def _survived_h(begin_h: float, end_h: float, hazards_per_h: Sequence[float]) -> float:
    """Integral of S between two ages, S = 1 at the first."""
    _, spans = _course(begin_h, 0.0, end_h - begin_h, 0.0)  # no wait and no refund: nothing comes first
    survival, within_h = 1.0, 0.0
    for bucket, span_h in spans:
        within_h += survival * _lasts_h(hazards_per_h[bucket], span_h)
        survival *= math.exp(-hazards_per_h[bucket] * span_h)
    return within_h


_AT_WORK = 0.0, 1.0, 0.0, 0.0
"""What `_begun` says of one that is ready and past any refund."""


_Stretch: TypeAlias = tuple[int, float, float, float, float, bool]
"""Time in one age bucket (hours): bucket, begin, span, from its begin until it is ready, until the last refund (0 where that is
not within it), and whether the last refund ends with it. A plain tuple, which is taken apart all the time."""


@lru_cache(maxsize=1 << 12)  # ages are rounded: the same ones come in judgement after judgement
def _course(
    age_h: float, wait_h: float, use_h: float, refund_h: float
) -> tuple[tuple[_Stretch, ...], tuple[tuple[int, float], ...]]:
    """The age buckets passed through from now on, whatever their hazards: until ready and past refunds, then (bucket, span)."""
    stretches = tuple(_stretches(age_h, wait_h, use_h, refund_h))
    marked = (
        i for i, (*_, to_ready_h, to_refund_h, ends) in enumerate(stretches, 1) if to_ready_h or to_refund_h or ends
    )
    first = max(marked, default=0)
    return stretches[:first], tuple([(bucket, span_h) for bucket, _, span_h, *_ in stretches[first:]])


def _stretches(age_h: float, wait_h: float, use_h: float, refund_h: float) -> Iterator[_Stretch]:
    ready_h, begin_h = age_h + wait_h, age_h
    end_h = ready_h + use_h
    refund_h = min(refund_h, end_h)
    marked = wait_h > 0 or refund_h > age_h
    for bucket in range(bucket_of(age_h), len(BUCKET_ENDS_H)):
        if begin_h >= end_h:
            break
        stop_h = min(BUCKET_ENDS_H[bucket], end_h)
        to_ready_h = ready_h - begin_h if marked and begin_h < ready_h <= stop_h else 0.0
        to_refund_h = refund_h - begin_h if marked and begin_h < refund_h < stop_h else 0.0
        yield bucket, begin_h, stop_h - begin_h, to_ready_h, to_refund_h, marked and stop_h == refund_h
        begin_h += stop_h - begin_h


def _begun(stretches: tuple[_Stretch, ...], hazards_per_h: Sequence[float]) -> tuple[float, float, float, float]:
    """(hours held, survival, hours paid back, hours of waiting) over these stretches."""
    held_h, taken_h, survival = 0.0, 0.0, 1.0
    waited_h, refunded_h = 0.0, 0.0
    for bucket, begin, span, to_ready_h, to_refund_h, refunds_end in stretches:
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
    return held_h, survival, refunded_h, waited_h


def _lasts_h(hazard: float, span_h: float) -> float:
    """Integral of S over a span of one hazard, which begins with S = 1."""
    return (1 - math.exp(-hazard * span_h)) / hazard if hazard * span_h >= NEXT_TO_NOTHING else span_h


def _taken_h(hazard: float, begin_h: float, span_h: float) -> float:
    """Integral of x h S over it."""
    if not hazard:
        return 0.0
    return begin_h - (begin_h + span_h) * math.exp(-hazard * span_h) + _lasts_h(hazard, span_h)
