"""What a replica really costs: expected rent, net of refunds, for each hour of expected use.

A fresh replica that is kept for at most T hours, d hours from being granted to being ready, hazard h(a) an hour at age a:

    S(a) = exp(-integral of h to a)         used = integral of S over [d, d + T]
    paid = q * (integral of S over [0, d + T] - refunded),   refunded = integral of a * h(a) * S(a) over [0, R]
    q_eff = (paid + loss * (1 - S(d + T))) / used

q rent (USD/h), R the age up to which the cloud takes nothing where it takes the instance back itself (h), loss what one
interruption costs beside the rent (USD). The running cost of one that is held looks forward only: q + h(a) * loss, and while
it is not ready yet (used + d) / used of that. Hazards are constant within age buckets (`policies.offer_history`), so that the
integrals are sums of closed forms.

Invariants: never below 0, rising in q, in h for R = 0, and in d.
"""

import math
from collections.abc import Sequence

from policies.offer_history import AGE_BOUNDS_H


def fresh_usd_per_h(
    rent_usd_per_h: float,
    hazards_per_h: Sequence[float],
    *,
    delay_h: float,
    use_h: float,
    refund_h: float,
    loss_usd: float,
) -> float:
    """q_eff of a replica that is yet to be launched; infinite where nothing of it can be used."""
    held_h, _, survival = _integrate(hazards_per_h, delay_h + use_h)
    before_h, _, _ = _integrate(hazards_per_h, delay_h)
    _, refunded_h, _ = _integrate(hazards_per_h, min(refund_h, delay_h + use_h))
    used_h = held_h - before_h
    if used_h <= 0:
        return math.inf
    return max(0.0, rent_usd_per_h * (held_h - refunded_h) + loss_usd * (1 - survival)) / used_h


def _integrate(hazards_per_h: Sequence[float], until_h: float) -> tuple[float, float, float]:
    """(integral of S, integral of a h S, S at the end), ages from 0 to `until_h`."""
    survived_h, taken_h, survival, begin = 0.0, 0.0, 1.0, 0.0
    for hazard, bound in zip(hazards_per_h, (*AGE_BOUNDS_H, math.inf), strict=True):
        span = min(bound, until_h) - begin
        if span <= 0:
            break
        left = math.exp(-hazard * span)
        here = span if hazard * span < 1e-9 else (1 - left) / hazard
        survived_h += survival * here
        # integral of a h S over the bucket, by parts: [-a S] + integral of S
        taken_h += survival * (begin - (begin + span) * left + here)
        survival *= left
        begin += span
    return survived_h, taken_h, survival
