"""lambda: what a sample costs in the long run, trainer included; learnt from what was spent and what was trained.

    lambda = spent / trained          both forgotten exponentially over many hours

It starts as a prior worth `prior_s` of full demand: the declared value, else the cost at balance,

    lambda_0 = (C + n* * q) / rate    C trainer (USD/h), q cheapest rent (USD/h), rate unblocked (samples/h)

Spending is C plus the rent of all that is held, noticed and draining ones too, less the rent of what a notice takes within its
refund window; trained is the policy version's advance times the samples of a version. Where C is not declared the trainer is
taken to cost as much as a fleet in balance at the cheapest rent.
Why not from the fleet of the moment: marginal and average cost agree over time only. In a shortage the momentary average is
high and would buy dearly what the ratio over time does not repay.

Memory: `spent_usd`, `trained_samples`, `version`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.base import SizingInput
from policies.demand import Demand
from policies.offer_history import HOUR_S, age_h
from policies.offers import Offer
from scaler.model.interruption import NoticeKind
from scaler.model.reading import Freshness

SPENT, TRAINED, VERSION = "spent_usd", "trained_samples", "version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Where lambda starts, and how slowly it moves. `trainer_usd_per_h` None: unknown."""

    usd_per_sample: float | None
    trainer_usd_per_h: float | None
    prior_s: float
    forget_s: float
    learns: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunCost:
    """USD a sample, and what is to be remembered. None: nothing is known that it could be reckoned from."""

    usd_per_sample: float | None
    memory: Mapping[str, float]


def long_run_cost(view: SizingInput, known: Sequence[Offer], demand: Demand, prior: Prior) -> LongRunCost:
    """Lambda after what happened since the last judgement."""
    start = prior.usd_per_sample or _at_balance(known, demand, prior)
    if start is None or demand.rate <= 0:
        return LongRunCost(usd_per_sample=start, memory=_kept(view))
    if not prior.learns:
        return LongRunCost(usd_per_sample=start, memory={})
    spent, trained = view.memory.get(SPENT), view.memory.get(TRAINED)
    if spent is None or trained is None or not trained > 0:
        trained = demand.rate * prior.prior_s
        spent = start * trained
    keep = math.exp(-demand.elapsed_s / prior.forget_s)
    version = _version(view)
    spent = max(0.0, spent * keep + _spent_usd(view, known, demand, prior))
    trained = trained * keep + _trained_samples(view, version)
    memory = {SPENT: spent, TRAINED: trained}
    return LongRunCost(
        usd_per_sample=spent / trained if trained > 0 else start,
        memory=memory if version is None else {**memory, VERSION: version},
    )


def _kept(view: SizingInput) -> Mapping[str, float]:
    return {name: view.memory[name] for name in (SPENT, TRAINED, VERSION) if name in view.memory}


def _at_balance(known: Sequence[Offer], demand: Demand, prior: Prior) -> float | None:
    """lambda_0 in USD a sample; the cheapest rent may be any offering's, since prices are known before capacity is."""
    balance = demand.balance
    if balance is None or not known or demand.rate <= 0:
        return None
    rent = known[0].usd_per_h * balance
    return (rent + trainer_usd_per_h(known, balance, prior)) / (demand.rate * HOUR_S)


def trainer_usd_per_h(known: Sequence[Offer], balance: float | None, prior: Prior) -> float:
    """C: declared, else the rent of a fleet in balance at the cheapest price."""
    if prior.trainer_usd_per_h is not None:
        return prior.trainer_usd_per_h
    return known[0].usd_per_h * balance if known and balance is not None else 0.0


def _version(view: SizingInput) -> float | None:
    reading = view.stage.signals.policy_version
    fresh = reading.freshness(view.now_s, view.signal_max_age_s) is Freshness.FRESH
    return reading.value if fresh else view.memory.get(VERSION)


def _trained_samples(view: SizingInput, version: float | None) -> float:
    signals, before = view.stage.signals, view.memory.get(VERSION)
    if version is None or before is None:
        return 0.0
    return max(0.0, version - before) * signals.batches_per_version * signals.batch_samples


def _spent_usd(view: SizingInput, known: Sequence[Offer], demand: Demand, prior: Prior) -> float:
    by_key = {offer.key: offer for offer in known}
    hours, since_s = demand.elapsed_s / HOUR_S, view.now_s - demand.elapsed_s
    spent = trainer_usd_per_h(known, demand.balance, prior) * hours
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
