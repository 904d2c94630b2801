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
from dataclasses import dataclass

from policies.offer_history import AGE_BOUNDS_H, bucket_of

NEXT_TO_NOTHING = 1e-9
BUCKET_ENDS_H = (*AGE_BOUNDS_H, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """An offering's terms. Hazards by age bucket, an hour."""

    usd_per_h: float
    hazards_per_h: Sequence[float]
    refund_h: float
    loss_usd: float

    def per_hour_of_use(self, *, age_h: float, wait_h: float, use_h: float) -> float:
        """USD/h; infinite where nothing of it can be used."""
        end_h = age_h + wait_h + use_h
        held_h, _, survival = self._integrate(age_h, end_h)
        waited_h = self._integrate(age_h, age_h + wait_h)[0] if wait_h > 0 else 0.0
        refunded_h = self._integrate(age_h, min(self.refund_h, end_h))[1] if self.refund_h > age_h else 0.0
        used_h = held_h - waited_h
        if used_h <= 0:
            return math.inf
        return max(0.0, self.usd_per_h * (held_h - refunded_h) + self.loss_usd * (1 - survival)) / used_h

    def _integrate(self, from_h: float, to_h: float) -> tuple[float, float, float]:
        """(integral of S, integral of x h S, S at the end) over these ages; nothing where they are the wrong way round."""
        if to_h <= from_h:
            return 0.0, 0.0, 1.0
        survived_h, taken_h, survival, begin, hazards = 0.0, 0.0, 1.0, from_h, self.hazards_per_h
        for bucket in range(bucket_of(from_h), len(BUCKET_ENDS_H)):
            if begin >= to_h:
                break
            hazard, bound = hazards[bucket], BUCKET_ENDS_H[bucket]
            span = (bound if bound < to_h else to_h) - begin  # noqa: FURB136, called for every replica
            if not hazard:
                survived_h += survival * span
                begin += span
                continue
            left = math.exp(-hazard * span)
            here = span if hazard * span < NEXT_TO_NOTHING else (1 - left) / hazard
            survived_h += survival * here
            # by parts: [-x S] + integral of S
            taken_h += survival * (begin - (begin + span) * left + here)
            survival *= left
            begin += span
        return survived_h, taken_h, survival
