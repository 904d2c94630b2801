"""lambda: the least that a sample costs in the long run, trainer included.

Minimising cost over samples means buying whatever costs less than lambda a sample, and lambda is the ratio that results. Two ways
to learn it, both over many hours:

AVAILABILITY  from the share of the balance n* that spot has given of late, s (`policies.spot_supply`):
                  lambda g = least over k of  (C + sum_{i <= k} q_i m_i) / sum_{i <= k} m_i
              with m_0 = s n* replicas of spot at their mean cost q_0, then the other offerings in order of cost (of an hour of
              use, `policies.rent`), each as far as it could fill n*. So on-demand is bought in the long run if
              q < (C + q_0 m_0) / m_0, whatever the moment is like.
SPENDING      from what was spent and trained, both forgotten exponentially: the ratio that our own fleet has had. It starts
              as a prior worth `prior_s` of full demand, lambda_0 = (C + n* q) / rate at the cheapest rent q.

C trainer (USD/h): declared, else the rent of a fleet in balance at the cheapest price. A declared lambda takes the place of
what is learnt in AVAILABILITY and of lambda_0 in SPENDING.
Why not from the fleet of the moment: in a shortage the momentary average is high and would buy dearly what the ratio over
time does not repay.

Memory: at most three numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from policies.base import SizingInput
from policies.demand import Demand
from policies.ewma import remembered
from policies.offer_history import HOUR_S, age_h
from policies.offers import Offer
from scaler.model.interruption import NoticeKind
from scaler.model.reading import Freshness

SPENT, TRAINED, VERSION = "spent_usd", "trained_samples", "version"


class LearnFrom(StrEnum):
    """What lambda is learnt from."""

    AVAILABILITY = "availability"
    SPENDING = "spending"


class Learnt(NamedTuple):
    """How lambda is learnt. `trainer_usd_per_h` None: unknown."""

    source: LearnFrom
    usd_per_sample: float | None
    trainer_usd_per_h: float | None
    share: float
    """s."""
    prior_s: float
    """Time of full demand that lambda_0 weighs as much as."""
    forget_s: float


class LongRunCost(NamedTuple):
    """lambda * g, which is what an hour of a needed replica earns (USD/h), and what is to be remembered."""

    worth_usd_per_h: float
    memory: Mapping[str, float]


def long_run_cost(
    view: SizingInput, known: Sequence[Offer], demand: Demand, learnt: Learnt, per_use: Callable[[Offer], float]
) -> LongRunCost:
    """Worth after what happened since the last judgement; only where the goodput is known and there are offers.

    `per_use`: what an hour of use costs of a new replica (USD/h).
    """
    if learnt.source is LearnFrom.SPENDING:
        return _from_spending(view, known, demand, learnt)
    if learnt.usd_per_sample is not None:
        return LongRunCost(worth_usd_per_h=learnt.usd_per_sample * (demand.goodput or 0.0) * HOUR_S, memory={})
    return LongRunCost(worth_usd_per_h=_least_ratio(known, demand, learnt, per_use), memory={})


def trainer_usd_per_h(known: Sequence[Offer], demand: Demand, learnt: Learnt) -> float:
    """C: declared, else the rent of a fleet in balance at the cheapest price."""
    if learnt.trainer_usd_per_h is not None:
        return learnt.trainer_usd_per_h
    return known[0].usd_per_h * (demand.balance or 0.0) if known else 0.0


def _least_ratio(known: Sequence[Offer], demand: Demand, learnt: Learnt, per_use: Callable[[Offer], float]) -> float:
    """Rents of what was there, then of what could fill the rest, while that lowers the ratio."""
    balance = demand.balance or 0.0
    usd, replicas = trainer_usd_per_h(known, demand, learnt), learnt.share * balance
    usd += _spot_usd_per_h(known, per_use) * replicas
    ratio = usd / replicas if replicas > 0 else math.inf
    others = sorted((per_use(offer), offer.key, offer) for offer in known if not offer.spot)
    for usd_per_h, _, offer in others:
        room = balance - replicas
        more = room if offer.usable else min(room, len(offer.held))
        if more > 0 and usd_per_h < ratio:
            usd, replicas = usd + usd_per_h * more, replicas + more
            ratio = usd / replicas
    return ratio


def _spot_usd_per_h(known: Sequence[Offer], per_use: Callable[[Offer], float]) -> float:
    """Mean over the spot held, or the least there is."""
    spot = [offer for offer in known if offer.spot]
    held = [offer for offer in spot if offer.held]
    if held:
        count = sum([len(offer.held) for offer in held])
        return sum([per_use(offer) * len(offer.held) for offer in held]) / count
    return min(map(per_use, spot), default=0.0)


def _from_spending(view: SizingInput, known: Sequence[Offer], demand: Demand, learnt: Learnt) -> LongRunCost:
    goodput_per_h = (demand.goodput or 0.0) * HOUR_S
    balance_usd_per_h = trainer_usd_per_h(known, demand, learnt) + known[0].usd_per_h * (demand.balance or 0.0)
    start = learnt.usd_per_sample or balance_usd_per_h / max(demand.rate * HOUR_S, 1e-12)
    spent, trained = remembered(view.memory, SPENT), remembered(view.memory, TRAINED)
    if spent is None or not trained:
        trained = demand.rate * learnt.prior_s
        spent = start * trained
    keep = math.exp(-demand.elapsed_s / learnt.forget_s)
    version = _version(view)
    spent = max(0.0, spent * keep + _spent_usd(view, known, demand, learnt))
    trained = trained * keep + _trained_samples(view, version)
    memory = {SPENT: spent, TRAINED: trained}
    return LongRunCost(
        worth_usd_per_h=(spent / trained if trained > 0 else start) * goodput_per_h,
        memory=memory if version is None else {**memory, VERSION: version},
    )


def _version(view: SizingInput) -> float | None:
    reading = view.stage.signals.policy_version
    fresh = reading.freshness(view.now_s, view.signal_max_age_s) is Freshness.FRESH
    return reading.value if fresh else view.memory.get(VERSION)


def _trained_samples(view: SizingInput, version: float | None) -> float:
    signals, before = view.stage.signals, view.memory.get(VERSION)
    if version is None or before is None:
        return 0.0
    return max(0.0, version - before) * signals.batches_per_version * signals.batch_samples


def _spent_usd(view: SizingInput, known: Sequence[Offer], demand: Demand, learnt: Learnt) -> float:
    """Trainer and rent of all that is held, noticed and draining ones too, less what a notice takes within its refund window."""
    by_key = {offer.key: offer for offer in known}
    hours, since_s = demand.elapsed_s / HOUR_S, view.now_s - demand.elapsed_s
    spent = trainer_usd_per_h(known, demand, learnt) * hours
    for replica in view.stage.replicas:
        offer = by_key.get((replica.pool, replica.offering_id))
        if offer is None or not replica.instance_ids:
            continue
        spent += offer.usd_per_h * min(hours, age_h(replica, view.now_s))
        notice = replica.notice
        if notice is None or notice.kind is not NoticeKind.SPOT_INTERRUPTION or not since_s < notice.noticed_at_s:
            continue
        age = age_h(replica, notice.noticed_at_s)
        if age * HOUR_S < offer.billing.refund_if_interrupted_within_s:
            spent -= offer.usd_per_h * age
    return spent
