"""What a policy learns of its spot offerings in use: how long instances last by age, and how often launches are refused.

    h(z, a) = (w * prior(a) + interruptions(z, a)) / (w + hours(z, a))          per hour, age bucket a of offering z
    p(z)    = (1 + grants(z)) / (1 + grants(z) + refusals(z))

Sums are forgotten exponentially. An interruption is a notice given since the last judgement, put in the bucket of the
instance's age then; exposure is that of every replica that counts and has an instance. The prior says what research/
spot-policies.md section 0 measured: hazard falls a hundredfold with age. Its weight w is in hours.

Memory: two numbers for each age bucket that an offering has seen, and two for its answers: bounded by the offerings.
Non-goals: losses without notice (about 1 %) are not seen here; they show as demand for replacements.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from policies.base import SizingInput
from policies.offers import Offer
from scaler.model.interruption import NoticeKind
from scaler.model.snapshot import ReplicaView

HOUR_S = 3600.0
AGE_BOUNDS_H: tuple[float, ...] = (0.25, 1.0, 4.0, 12.0)
"""Ends of the age buckets but the last, which has no end."""
PRIOR_PER_H: tuple[float, ...] = (1.0, 0.4, 0.15, 0.05, 0.02)
"""Interruptions an hour by age bucket before anything was seen."""
NEVER_PER_H = (0.0,) * len(PRIOR_PER_H)
NONE_YET = (0,) * len(PRIOR_PER_H)
SEEN, TAKEN, GRANTED, REFUSED = "hours:", "taken:", "granted:", "refused:"
EVERY = ""
"""Stands for all offerings, where they share what is seen in any."""
_MOST_NAMES = 1 << 14
"""Names of sums that are kept, so that they are not put together anew in every judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How fast and how much is learnt. A weight of infinity leaves the prior as it is."""

    prior_weight_h: float
    """Above 0."""
    forget_s: float
    by_age: bool
    """Otherwise one hazard for every age, the prior's mean over the first day."""
    by_offering: bool
    """Otherwise all offerings share what is seen in any."""
    answers_forget_s: float


@dataclass(frozen=True, slots=True)
class History:
    """See the module's docstring."""

    learning: Learning
    sums: Mapping[str, float]
    """Also what is to be remembered."""
    ages_h: Mapping[str, Sequence[float]]
    """By name of the offer: of each replica held there."""
    young: Mapping[str, int]
    """By name of the offer: instances there in the first age bucket."""

    def hazards_per_h(self, offer: Offer) -> Sequence[float]:
        """By age bucket; zeros where the cloud does not take back."""
        if not offer.spot:
            return NEVER_PER_H
        pot, weight, of = _pot(self.learning, offer), self.learning.prior_weight_h, self.sums.get
        if math.isinf(weight):
            return PRIOR_PER_H if self.learning.by_age else (MEAN_PRIOR_PER_H,) * len(PRIOR_PER_H)
        if self.learning.by_age:
            by_age = _by_age(pot)
            return tuple(
                [(weight * prior + of(taken, 0.0)) / (weight + of(seen, 0.0)) for prior, taken, seen in by_age]
            )
        all_taken = sum([of(name, 0.0) for name in _names(TAKEN, pot)])
        hours = sum([of(name, 0.0) for name in _names(SEEN, pot)])
        return ((weight * MEAN_PRIOR_PER_H + all_taken) / (weight + hours),) * len(PRIOR_PER_H)

    def grant_ratio(self, offer: Offer) -> float:
        """Share of the requests that bring an instance, as of late."""
        granted = self.sums.get(GRANTED + offer.name, 0.0)
        refused = self.sums.get(REFUSED + offer.name, 0.0)
        return (1 + granted) / (1 + granted + refused)


def _mean_prior() -> float:
    ends = (*AGE_BOUNDS_H, 24.0)
    spans = (end - begin for begin, end in zip((0.0, *AGE_BOUNDS_H), ends, strict=True))
    return sum(rate * span for rate, span in zip(PRIOR_PER_H, spans, strict=True)) / 24.0


MEAN_PRIOR_PER_H = _mean_prior()


bucket_of: Callable[[float], int] = partial(bisect_right, AGE_BOUNDS_H)
"""The age bucket of an age (hours)."""


def age_h(replica: ReplicaView, now_s: float) -> float:
    """Hours since its instance was launched; 0 where that is unknown."""
    at_s = replica.launched_at_s
    return (now_s - at_s) / HOUR_S if replica.instance_ids and at_s is not None and -math.inf < at_s <= now_s else 0.0


def learn(view: SizingInput, known: Sequence[Offer], learning: Learning, since_s: float) -> History:
    """The history after what happened between `since_s` and now."""
    now_s, elapsed_s = view.now_s, max(0.0, view.now_s - since_s)
    spot, hours = [offer for offer in known if offer.spot], elapsed_s / HOUR_S
    sums = _faded(view.memory, tuple([offer.name for offer in spot]), learning, elapsed_s)
    ages_h: dict[str, Sequence[float]] = {}
    young: dict[str, int] = {}
    for offer in known:
        held, name = offer.held, offer.name
        ages = ages_h[name] = [age_h(replica, now_s) for replica in held]
        counts = _by_bucket(held, ages) if held else NONE_YET
        young[name] = counts[0]
        if offer.spot:
            if held:
                _see(sums, counts, _pot(learning, offer), hours)
                _grants(sums, offer, since_s, ages, hours)
            _refusal(sums, offer, since_s)
    _count_taken(sums, view, spot, learning, since_s)
    return History(learning, sums, ages_h, young)


def _pot(learning: Learning, offer: Offer) -> str:
    return offer.name if learning.by_offering else EVERY


def _faded(
    memory: Mapping[str, float], names: tuple[str, ...], learning: Learning, elapsed_s: float
) -> dict[str, float]:
    """What is remembered of these offerings, and of all together."""
    keep = math.exp(-elapsed_s / learning.forget_s)
    keep_answers = math.exp(-elapsed_s / learning.answers_forget_s)
    aged = _sums_of(names)
    return {name: value * (keep if aged[name] else keep_answers) for name, value in memory.items() if name in aged}


@lru_cache(maxsize=256)  # the same offerings are there judgement after judgement
def _sums_of(offers: tuple[str, ...]) -> Mapping[str, bool]:
    """Whether it is a sum by age, of each sum that these offers may have."""
    ages = {name: True for pot in (*offers, EVERY) for kind in (SEEN, TAKEN) for name in _names(kind, pot)}
    return ages | {kind + offer: False for offer in offers for kind in (GRANTED, REFUSED)}


@lru_cache(maxsize=_MOST_NAMES)
def _by_age(pot: str) -> tuple[tuple[float, str, str], ...]:
    """By age bucket: the prior, and where interruptions and exposure are summed."""
    return tuple(zip(PRIOR_PER_H, _names(TAKEN, pot), _names(SEEN, pot), strict=True))


@lru_cache(maxsize=_MOST_NAMES)
def _names(kind: str, pot: str) -> tuple[str, ...]:
    """By age bucket."""
    return tuple(f"{kind}{bucket}:{pot}" for bucket in range(len(PRIOR_PER_H)))


def _by_bucket(held: Sequence[ReplicaView], ages_h: Sequence[float]) -> Sequence[int]:
    """How many instances of each age there are."""
    counts = [0] * len(PRIOR_PER_H)
    for age in ages_h:
        counts[bucket_of(age)] += 1
    if 0.0 in ages_h:
        counts[0] -= [replica.instance_ids for replica in held].count(())
    return counts


def _see(sums: dict[str, float], counts: Sequence[int], pot: str, hours: float) -> None:
    for name, count in zip(_names(SEEN, pot), counts, strict=True):
        if count:
            sums[name] = sums.get(name, 0.0) + count * hours


def _grants(sums: dict[str, float], offer: Offer, since_s: float, ages_h: Sequence[float], hours: float) -> None:
    """They show as instances that are no older than the time since then."""
    if min(ages_h) > hours:
        return
    granted = len([r for r in offer.held if r.instance_ids and (r.launched_at_s or 0.0) > since_s])
    if granted:
        sums[GRANTED + offer.name] = sums.get(GRANTED + offer.name, 0.0) + granted


def _refusal(sums: dict[str, float], offer: Offer, since_s: float) -> None:
    """Of several since then the last one shows."""
    refused_at_s = offer.view.refused_at_s
    if refused_at_s is not None and refused_at_s > since_s:
        sums[REFUSED + offer.name] = sums.get(REFUSED + offer.name, 0.0) + 1


def _count_taken(
    sums: dict[str, float], view: SizingInput, spot: Sequence[Offer], learning: Learning, since_s: float
) -> None:
    noticed = [replica for replica in view.stage.replicas if replica.notice is not None]
    by_key = {offer.key: offer for offer in spot} if noticed else {}
    for replica in noticed:
        notice = replica.notice
        if notice is None or notice.kind is not NoticeKind.SPOT_INTERRUPTION:
            continue
        offer = by_key.get((replica.pool, replica.offering_id))
        if offer is not None and since_s < notice.noticed_at_s <= view.now_s:
            age = age_h(replica, notice.noticed_at_s)
            name = f"{TAKEN}{bucket_of(age)}:{_pot(learning, offer)}"
            sums[name] = sums.get(name, 0.0) + 1.0
