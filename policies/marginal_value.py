"""Marginal value: buy one more replica while its expected rent is below what it adds, reckoned in long-run cost per sample.

    buy while q_eff < lambda * g * u

lambda  long-run cost per accepted sample, trainer included (USD); declared or at balance first, then learnt slowly
        (`policies.long_run_cost`). Minimising cost per sample over time means buying all that costs less than lambda a sample.
g       accepted samples/h of a ready replica; lambda * g is what a needed one earns an hour ("worth").
q_eff   expected rent per hour of expected use: net of first-hour refunds, after launch and load, before the hazard of its age
        and offering (`policies.rent`, `policies.offer_history`).
u       useful share of the last replica: min(1, level - supply) in a row from cheap to dear (`policies.merit`).

Level: the buffer is a store of replica-hours. With b samples in it, less what launches under way will not make, and shortages
that eat X samples, X exponential with mean D, one sample more saves lambda * P(X > b). It is worth its cost up to

    b*(c) = D * ln(worth / c)              the newsvendor's quantile 1 - c / worth of that distribution

so that, to be there within a horizon H,   level(c) = n* + (b*(c) - b) / (g H),   n* = unblocked rate / g.

Dear capacity has a low b*, so on-demand waits for the store to run down; c >= worth is never bought. A replica is let go only
above the same level with b* + `band_s` of consumption: the upper set-point, since queue age is staleness.

Tiers. Spot is reckoned to be used for `use_s`; capacity that is not taken back stands in for a shortage and is reckoned to be
used for as long as the shortage has lasted (at least `shortage_s`): what has lasted will last, short dips are waited out.
A dearer replica is left when a cheaper one fills its place in the row, and released when enough are READY without it.

Refusals: an offering that refused is asked for one at a time, otherwise twice what it granted of late; a request counts as the
share of requests that was granted there, so that several offerings are asked at once where refusals are likely.

Where the trainer's cost is not declared it is taken to be that of a fleet in balance at the cheapest price.
Source: design section 5; the quantile is the newsvendor's, the row is the merit order of electricity markets.

Invariants: less buffer, more demand (lambda given) or lower prices never ask for fewer; no order of the input matters; signals
missing, stale or invalid: hold. Memory is bounded by the offerings.
Non-goals: limits (guard rails); forecasting capacity (persistence is hard to beat, research/spot-policies.md 0.5).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from policies.base import Place, Sizing, SizingInput
from policies.demand import AT_S, Averaging, Demand, admitted_samples, demand_hold, read_demand
from policies.long_run_cost import SHARE_S, LearnFrom, Learnt, long_run_cost, trainer_usd_per_h
from policies.merit import Candidate, Market, in_merit_order
from policies.moves import moved, not_lowered
from policies.offer_history import HOUR_S, History, Learning, age_h, bucket_of, learn
from policies.offers import Offer, offers
from policies.rent import Rent
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Reason, ReasonCode
from scaler.model.reading import Freshness
from scaler.model.snapshot import ReplicaView

SHORT_SINCE_S, SHORT_SHARE = "short_since_s", "short_share"
"""Memory: since when spot has been short of what is wanted of it, and the share of the time that it has been."""
MOST_SHORT_SHARE = 0.95
MOST_STOCK_RATIO = 0.9
"""Of what admission lets into the buffer: a target at its very edge would stop the workers."""
LEAST_WEIGHT = 0.5


class WorthBy(StrEnum):
    """What an hour of a needed replica is reckoned to earn."""

    LAMBDA = "lambda"
    """Long-run cost per sample times goodput."""
    MOMENT = "moment"
    """Trainer cost over ready replicas plus their mean rent: right at an instant only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """All that signals do not tell, and a switch for each part."""

    trainer_usd_per_h: float | None = field(default=None, metadata={"ge": 0.0})
    """Rent of the trainers. Default: that of a rollout fleet in balance at the cheapest price; scenarios fill it in."""
    lambda_usd_per_sample: float | None = field(default=None, metadata={"gt": 0.0})
    """Long-run cost of an accepted sample, where it is known. Default: learnt."""
    lambda_from: LearnFrom = LearnFrom.AVAILABILITY
    lambda_prior_s: float = field(default=3600.0, metadata={"gt": 0.0})
    """How long a time what is seen first weighs as much as."""
    lambda_forget_s: float = field(default=21600.0, metadata={"gt": 0.0})
    worth_by: WorthBy = WorthBy.LAMBDA

    buffer_counts: bool = True
    """Whether the buffer moves the level; otherwise n* is matched."""
    shortage_depth_s: float = field(default=1200.0, metadata={"ge": 0.0})
    """D: mean of what a shortage eats of the buffer, in seconds of full consumption."""
    horizon_s: float = field(default=3600.0, metadata={"gt": 0.0})
    """H: within which the buffer shall be where it is wanted."""
    band_s: float = field(default=600.0, metadata={"ge": 0.0})
    """Between the depth that is bought up to and the one that is released above, in seconds of full consumption."""

    launch_s: float = field(default=400.0, metadata={"ge": 0.0})
    """From a grant to a ready replica."""
    use_s: float = field(default=21600.0, metadata={"gt": 0.0})
    """How long a spot replica is reckoned to be wanted."""
    shortage_s: float = field(default=1800.0, metadata={"gt": 0.0})
    """How long a shortage is reckoned to last at least: what on-demand is bought for."""
    swap_margin_ratio: float = field(default=0.05, metadata={"ge": 0.0, "le": 1.0})
    """How much cheaper than what is held something new must be."""
    crowding_ratio: float = field(default=0.1, metadata={"ge": 0.0, "le": 1.0})
    """How much dearer an offering counts that would hold the whole fleet: it would all go at once."""

    refunds_count: bool = True
    refusals_count: bool = True
    hazard_by_age: bool = True
    hazard_by_offering: bool = True
    hazard_prior_weight_s: float = field(default=72000.0, metadata={"gt": 0.0})
    """Exposure that the prior weighs as much as."""
    hazard_forget_s: float = field(default=86400.0, metadata={"gt": 0.0})
    refusal_forget_s: float = field(default=1800.0, metadata={"gt": 0.0})

    rate_time_constant_s: float = field(default=300.0, metadata={"ge": 0.0})
    goodput_time_constant_s: float = field(default=3600.0, metadata={"ge": 0.0})
    initial_goodput_per_replica_per_s: float | None = field(default=None, metadata={"gt": 0.0})


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for the replicas that are worth more than they cost, from where they cost least."""
    hold = demand_hold(view, buffered_samples=view.stage.signals.buffered_samples)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    known = offers(view)
    demand = read_demand(view, _averaging(params), admitted_samples(view.stage.signals))
    history = learn(view, known, _learning(params), view.memory.get(AT_S, view.now_s))
    memory = {**demand.memory, **history.sums}
    if not demand.goodput or not known:
        return _unmeasured(view, known, memory)
    cost = long_run_cost(view, known, demand, _learnt(params))
    memory |= cost.memory
    scales = _scales(view, params, known, demand, cost.worth_usd_per_h)
    desk = _Desk(view=view, params=params, scales=scales, history=history)
    return not_lowered(view, demand, desk.sizing(known, memory))


def _averaging(params: Params) -> Averaging:
    return Averaging(
        rate_time_constant_s=params.rate_time_constant_s,
        goodput_time_constant_s=params.goodput_time_constant_s,
        initial_goodput_per_replica_per_s=params.initial_goodput_per_replica_per_s,
    )


def _learning(params: Params) -> Learning:
    return Learning(
        prior_weight_h=params.hazard_prior_weight_s / HOUR_S,
        forget_s=params.hazard_forget_s,
        by_age=params.hazard_by_age,
        by_offering=params.hazard_by_offering,
        answers_forget_s=params.refusal_forget_s,
    )


def _learnt(params: Params) -> Learnt:
    return Learnt(
        source=params.lambda_from,
        usd_per_sample=params.lambda_usd_per_sample,
        trainer_usd_per_h=params.trainer_usd_per_h,
        prior_s=params.lambda_prior_s,
        forget_s=params.lambda_forget_s,
    )


def _unmeasured(view: SizingInput, known: Sequence[Offer], memory: Mapping[str, float]) -> Sizing:
    """Before any goodput was measured: one replica at least, which alone can measure it, else what there is."""
    reason = Reason(code=ReasonCode.STEADY, message="no goodput measured yet: one replica at least")
    usable = [offer.place() for offer in known if offer.usable]
    return moved(view, () if view.counting else usable[:1], (), memory=memory, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scales:
    """The numbers of the formula. Samples, samples/s, USD/h."""

    rate: float
    goodput: float
    stock: float
    """b."""
    reach: float
    """What the buffer can hold at most, apart from what is in flight."""
    worth: float
    """lambda * g."""
    averaged_s: float
    """How long a time the policy has averaged over so far."""

    @property
    def balance(self) -> float:
        return self.rate / self.goodput


def _scales(view: SizingInput, params: Params, known: Sequence[Offer], demand: Demand, by_lambda: float) -> _Scales:
    goodput = demand.goodput or 0.0
    depth = view.stage.signals.buffered_samples.value or 0.0
    missing_s = sum(_to_wait_s(view, params, replica) for replica in view.counting)
    return _Scales(
        rate=demand.rate,
        goodput=goodput,
        stock=depth - missing_s * goodput,
        reach=_reach(view),
        worth=by_lambda if params.worth_by is WorthBy.LAMBDA else _worth_now(view, params, known, demand),
        averaged_s=view.memory.get(SHARE_S, params.lambda_prior_s),
    )


def _to_wait_s(view: SizingInput, params: Params, replica: ReplicaView) -> float:
    """Until it is ready."""
    if replica.phase is ReplicaPhase.READY:
        return 0.0
    return max(0.0, params.launch_s - age_h(replica, view.now_s) * HOUR_S)


def _reach(view: SizingInput) -> float:
    signals = view.stage.signals
    fresh = signals.running_units.freshness(view.now_s, view.signal_max_age_s) is Freshness.FRESH
    running = (signals.running_units.value or 0.0) if fresh else 0.0
    in_training = float(signals.batch_samples)
    return max(in_training, admitted_samples(signals) - running - in_training)


def _worth_now(view: SizingInput, params: Params, known: Sequence[Offer], demand: Demand) -> float:
    trainer = trainer_usd_per_h(known, demand, _learnt(params))
    rents = [offer.usd_per_h for offer in known for _ in range(offer.ready)] or [known[0].usd_per_h if known else 0.0]
    return (trainer + sum(rents)) / len(rents)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A replica that could be had."""

    offer: Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """Values every replica, held or possible, and says what to take and what to leave."""

    view: SizingInput
    params: Params
    scales: _Scales
    history: History

    def sizing(self, known: Sequence[Offer], memory: Mapping[str, float]) -> Sizing:
        held = [candidate for offer in known for candidate in self._held(offer)]
        possible = [candidate for offer in known if offer.usable for candidate in self._possible(offer)]
        taken, left = in_merit_order([*held, *possible], self._market(0.0))
        launches = [candidate.item.offer for candidate in taken if isinstance(candidate.item, _Asked)]
        supply = sum(candidate.weight for candidate in taken)
        return moved(
            self.view,
            _places(launches),
            self._releases(left, supply),
            memory={**memory, **self._shortage(known, held)},
            reason=self._reason(supply),
            releases_first=True,
        )

    # value

    def _market(self, more_depth_s: float) -> Market:
        """`more_depth_s`: how much deeper a buffer is wanted, in seconds of full consumption."""
        scales, params = self.scales, self.params
        within = scales.goodput * params.horizon_s

        def level(usd_per_h: float) -> float:
            if not params.buffer_counts or usd_per_h <= 0:
                return scales.balance
            wanted_s = params.shortage_depth_s * math.log(scales.worth / usd_per_h) if scales.worth > 0 else 0.0
            wanted = min(scales.reach * MOST_STOCK_RATIO, wanted_s * scales.rate) + more_depth_s * scales.rate
            return scales.balance + (min(wanted, scales.reach) - scales.stock) / within

        return Market(worth_usd_per_h=scales.worth, level=level)

    def _held(self, offer: Offer) -> list[Candidate[ReplicaView | _Asked]]:
        rent, use_h = self._rent(offer), self._use_h(offer)
        granted = self.history.grant_ratio(offer) if self.params.refusals_count else 1.0
        return [self._of_replica(replica, rent, use_h, granted) for replica in offer.held]

    def _of_replica(
        self, replica: ReplicaView, rent: Rent, use_h: float, granted: float
    ) -> Candidate[ReplicaView | _Asked]:
        age = age_h(replica, self.view.now_s)
        wait_h = _to_wait_s(self.view, self.params, replica) / HOUR_S
        asked = replica.phase is ReplicaPhase.REQUESTED
        at_risk = rent.hazards_per_h[bucket_of(age)] * self.params.launch_s / HOUR_S
        return Candidate(
            item=replica,
            usd_per_h=rent.per_hour_of_use(age_h=age, wait_h=wait_h, use_h=use_h),
            weight=granted if asked else max(LEAST_WEIGHT, 1 - at_risk),
            name=replica.replica_id,
        )

    def _possible(self, offer: Offer) -> list[Candidate[ReplicaView | _Asked]]:
        wait_h, use_h = self.params.launch_s / HOUR_S, self._use_h(offer)
        fresh = self._rent(offer).per_hour_of_use(age_h=0.0, wait_h=wait_h, use_h=use_h)
        margin = 1 + self.params.swap_margin_ratio if offer.spot else 1.0
        crowding = self.params.crowding_ratio * offer.usd_per_h / max(1.0, self.scales.balance)
        weight = self.history.grant_ratio(offer) if self.params.refusals_count else 1.0
        return [
            Candidate(
                item=_Asked(offer=offer),
                usd_per_h=fresh * margin + crowding * (len(offer.held) + i if offer.spot else 0),
                weight=weight,
                name=f"~{offer.name}",
            )
            for i in range(self._askable(offer))
        ]

    def _rent(self, offer: Offer) -> Rent:
        refund_s = offer.billing.refund_if_interrupted_within_s if self.params.refunds_count and offer.spot else 0.0
        return Rent(
            usd_per_h=offer.usd_per_h,
            hazards_per_h=self.history.hazards_per_h(offer),
            refund_h=refund_s / HOUR_S,
            loss_usd=offer.usd_per_h * self.params.launch_s / HOUR_S,
        )

    def _use_h(self, offer: Offer) -> float:
        """For how long one is reckoned to be wanted."""
        if offer.spot:
            return self.params.use_s / HOUR_S
        since_s = self.view.memory.get(SHORT_SINCE_S, self.view.now_s)
        share = min(MOST_SHORT_SHARE, max(0.0, self.view.memory.get(SHORT_SHARE, 0.0)))
        usual_s = self.params.shortage_s * max(1.0, share / (1 - share))
        return max(usual_s, self.view.now_s - since_s) / HOUR_S

    def _askable(self, offer: Offer) -> int:
        """How many may be asked for at once: refusals in a row make the engine wait long."""
        if not self.params.refusals_count:
            return math.ceil(min(self.scales.balance, 1e4)) + 1
        requested = sum(replica.phase is ReplicaPhase.REQUESTED for replica in offer.held)
        young = sum(bool(r.instance_ids) and age_h(r, self.view.now_s) < 0.25 for r in offer.held)
        return max(0, (1 if offer.view.refusals else 2 + 2 * young) - requested)

    # leaving

    def _releases(self, left: Sequence[Candidate[ReplicaView | _Asked]], supply: float) -> list[ReplicaView]:
        """Of those that nothing is bought for any more: what is not needed even at the upper set-point, dearest first."""
        market = self._market(self.params.band_s)
        ready = sum(self._weight_ready(replica) for replica in self.view.counting)
        going: list[ReplicaView] = []
        for candidate in reversed(left):
            replica = candidate.item
            if isinstance(replica, _Asked):
                continue
            works = replica.phase is ReplicaPhase.READY
            others = ready - candidate.weight if works else supply
            if market.wants(candidate, others):
                continue
            going.append(replica)
            ready -= candidate.weight if works else 0.0
        return going

    def _weight_ready(self, replica: ReplicaView) -> float:
        return 1.0 if replica.phase is ReplicaPhase.READY else 0.0

    def _shortage(self, known: Sequence[Offer], held: Sequence[Candidate[ReplicaView | _Asked]]) -> Mapping[str, float]:
        """Since when spot has been short of the balance, as far as the buffer wants it."""
        spot = {offer.key for offer in known if offer.spot}
        there = sum(
            candidate.weight
            for candidate in held
            if isinstance(candidate.item, ReplicaView)
            and (candidate.item.pool, candidate.item.offering_id) in spot
            and candidate.item.instance_ids
        )
        cheapest = min((offer.usd_per_h for offer in known if offer.spot), default=0.0)
        wanted = min(self.scales.balance, self._market(0.0).level(cheapest))
        short = there < wanted - 1
        since = {SHORT_SINCE_S: self.view.memory.get(SHORT_SINCE_S, self.view.now_s)} if short else {}
        return {**since, SHORT_SHARE: self._short_share(short)}

    def _short_share(self, short: bool) -> float:
        elapsed_s = self.view.now_s - self.view.memory.get(AT_S, self.view.now_s)
        averaged_s = min(self.params.lambda_forget_s, self.scales.averaged_s)
        before = self.view.memory.get(SHORT_SHARE)
        if before is None or averaged_s <= 0:
            return float(short)
        return before + min(1.0, elapsed_s / averaged_s) * (short - before)

    def _reason(self, supply: float) -> Reason:
        scales = self.scales
        return Reason(
            code=ReasonCode.STEADY,
            message=(
                f"a needed replica earns {scales.worth:.2f} USD/h; balance at {scales.balance:.1f}, buffer "
                f"{scales.stock:.0f}: {supply:.1f} are worth their rent, "
                f"{len(self.view.counting)} count now"
            ),
            inputs=(
                ("worth_usd_per_h", scales.worth),
                ("lambda_usd_per_sample", scales.worth / (scales.goodput * HOUR_S)),
                ("balance_replicas", scales.balance),
                ("stock_samples", scales.stock),
            ),
        )


def _places(launches: Sequence[Offer]) -> list[Place]:
    """In order, one entry for each run of the same offering."""
    places: list[Place] = []
    for offer in launches:
        if places and (places[-1].pool, places[-1].offering_id) == offer.key:
            places[-1] = offer.place(places[-1].replicas + 1)
        else:
            places.append(offer.place())
    return places
