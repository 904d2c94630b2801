"""Marginal value: buy one more replica while its expected rent is below what it adds, reckoned in long-run cost per sample.

    buy while q_eff < lambda * g * u

lambda  long-run cost per accepted sample, trainer included (USD); declared or at balance first, then learnt slowly
        (`policies.long_run_cost`). Minimising cost per sample over time means buying all that costs less than lambda a sample.
g       accepted samples/h of a ready replica; lambda * g is what a needed one earns an hour ("worth").
q_eff   expected rent per hour of expected use: net of first-hour refunds and minimums paid for already, after launch and
        load, before the hazard of its age and offering, at the price of late (`policies.rent`, `policies.offer_history`,
        `policies.expected_price`).
u       useful share of the last replica: min(1, level - supply) in a row from cheap to dear (`policies.merit`).

Level: the buffer is a store of replica-hours. With b samples in it, less what launches under way will not make, and shortages
that eat X samples, X exponential with mean D, one sample more saves lambda * P(X > b). It is worth its cost up to

    b*(c) = D * ln(worth / c)              the newsvendor's quantile 1 - c / worth of that distribution

so that, to be there within a horizon H,   level(c) = n* + (b*(c) - b) / (g H),   n* = unblocked rate / g.

Dear capacity has a low b*, so on-demand waits for the store to run down; c >= worth is never bought. A replica is let go only
above the same level with b* + `band_s` of consumption: the upper set-point, since queue age is staleness.

Tiers. Spot is reckoned to be used for `use_s`; capacity that is not taken back stands in for a shortage and is reckoned to be
used for as long as the shortage has lasted (at least `shortage_s`): what has lasted will last, short dips are waited out.
A dearer replica is left when a cheaper one fills its place in the row, and released when enough are READY without it, or
granted while the buffer covers what they will not make until they are; or, at the ceiling, to make room for them.

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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from policies.base import Place, Sizing, SizingInput
from policies.demand import AT_S, Averaging, Demand, admitted_samples, demand_hold, read_demand
from policies.expected_price import expected_prices
from policies.long_run_cost import LearnFrom, Learnt, long_run_cost, trainer_usd_per_h
from policies.merit import Market, in_merit_order, supply_of
from policies.moves import moved, not_lowered
from policies.offer_history import HOUR_S, Learning, learn
from policies.offers import Offer, offers
from policies.pricing import Option, Pricing, name_of
from policies.spot_supply import WANTED, Expectation, SpotSupply, spot_supply
from scaler.model.capacity import ReplicaPhase
from scaler.model.once import for_same
from scaler.model.plan import Reason, ReasonCode
from scaler.model.reading import Freshness
from scaler.model.snapshot import ReplicaView

MOST_STOCK_RATIO = 0.9
"""Of what admission lets into the buffer: a target at its very edge would stop the workers."""


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
    """What the long-run cost of a sample is learnt from: availability, or spending."""
    expected_spot_ratio: float = field(default=0.6, metadata={"ge": 0.0, "le": 1.0, "tune": (0.2, 1.0)})
    """Share of the balance that spot is expected to give in the long run, before that was seen."""
    expected_spot_weight_s: float = field(default=3600.0, metadata={"ge": 0.0})
    """How long a time of seeing that weighs as much as."""
    availability_forget_s: float = field(default=21600.0, metadata={"gt": 0.0})
    """Time constant of the share that spot has given."""
    availability_lasts_s: float = field(default=1800.0, metadata={"ge": 0.0})
    """How long what spot gives stays about the same: so long a look at it is one observation. 0: the mean is certain."""
    lambda_prior_s: float = field(default=43200.0, metadata={"gt": 0.0})
    """Learnt from spending: how long a time of full demand the start weighs as much as."""
    lambda_forget_s: float = field(default=259200.0, metadata={"gt": 0.0})
    """Learnt from spending: time constant of what was spent and trained."""
    worth_by: WorthBy = WorthBy.LAMBDA
    """Whether a needed replica is worth lambda times its goodput, or what trainer and fleet cost at the moment."""

    buffer_counts: bool = True
    """Whether the buffer moves the level; otherwise n* is matched."""
    shortage_depth_s: float = field(default=1200.0, metadata={"ge": 0.0, "tune": (0.0, 7200.0)})
    """D: mean of what a shortage eats of the buffer, in seconds of full consumption."""
    horizon_s: float = field(default=3600.0, metadata={"gt": 0.0, "tune": (900.0, 14400.0, "log")})
    """H: within which the buffer shall be where it is wanted."""
    band_s: float = field(default=600.0, metadata={"ge": 0.0, "tune": (60.0, 3600.0, "log")})
    """Between the depth that is bought up to and the one that is released above, in seconds of full consumption."""

    launch_s: float = field(default=400.0, metadata={"ge": 0.0})
    """From a grant to a ready replica."""
    use_s: float = field(default=21600.0, metadata={"gt": 0.0, "tune": (3600.0, 86400.0, "log")})
    """How long a spot replica is reckoned to be wanted."""
    shortage_s: float = field(default=1800.0, metadata={"gt": 0.0, "tune": (300.0, 14400.0, "log")})
    """How long a shortage is reckoned to last at least: what on-demand is bought for."""
    stand_in_keep_ratio: float = field(default=0.1, metadata={"ge": 0.0, "le": 1.0})
    """Hysteresis: how much cheaper capacity that is not taken back counts once it is held."""
    swap_margin_ratio: float = field(default=0.05, metadata={"ge": 0.0, "le": 1.0, "tune": (0.0, 0.3)})
    """How much cheaper than what is held something new must be."""
    crowding_ratio: float = field(default=0.1, metadata={"ge": 0.0, "le": 1.0, "tune": (0.0, 0.5)})
    """How much dearer an offering counts that would hold the whole fleet: it would all go at once."""

    refunds_count: bool = True
    """Whether refunds of interrupted first hours lower an expected rent."""
    refusals_count: bool = True
    """Whether refused offerings are asked for less, and several where refusals are likely."""
    hazard_by_age: bool = True
    """Whether interruptions are expected by age; else alike at every age."""
    hazard_by_offering: bool = True
    """Whether each offering has hazards of its own; else all share them."""
    hazard_prior_weight_s: float = field(default=72000.0, metadata={"gt": 0.0})
    """Exposure that the prior weighs as much as."""
    hazard_forget_s: float = field(default=86400.0, metadata={"gt": 0.0})
    """Time constant of interruptions and exposure seen."""
    refusal_forget_s: float = field(default=1800.0, metadata={"gt": 0.0})
    """Time constant of grants and refusals seen."""

    price_time_constant_s: float = field(default=7200.0, metadata={"ge": 0.0})
    """Over which the price is averaged that a replica is expected to cost; a price that swings replaces nobody."""
    rate_time_constant_s: float = field(default=300.0, metadata={"ge": 0.0})
    """Over which the trainer's unblocked rate is averaged."""
    goodput_time_constant_s: float = field(default=10800.0, metadata={"ge": 0.0})
    """Over which the goodput of a replica is averaged."""
    initial_goodput_per_replica_per_s: float | None = field(default=None, metadata={"gt": 0.0})
    """Accepted samples/s of a ready replica before that was measured. Default: unknown."""


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for the replicas that are worth more than they cost, from where they cost least."""
    hold = demand_hold(view, buffered_samples=view.stage.signals.buffered_samples)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    since_s = view.memory.get(AT_S, view.now_s)
    priced = expected_prices(offers(view), view.memory, view.now_s - since_s, params.price_time_constant_s)
    known = priced.offers
    demand = read_demand(view, _averaging(params), admitted_samples(view.stage.signals))
    history = learn(view, known, _learning(params), since_s)
    memory = {**history.sums, **demand.memory, **priced.memory}
    if demand.balance is None or not known:
        return _unmeasured(view, known, memory)
    supply = spot_supply(view, known, demand, _expectation(params))
    pricing = Pricing(
        now_s=view.now_s,
        history=history,
        launch_h=params.launch_s / HOUR_S,
        use_h=params.use_s / HOUR_S,
        stand_in_h=supply.lasts_s(view.now_s, params.shortage_s) / HOUR_S,
        fleet_replicas=demand.balance or 0.0,
        margin_ratio=params.swap_margin_ratio,
        crowding_ratio=params.crowding_ratio,
        keep_ratio=params.stand_in_keep_ratio,
        refunds_count=params.refunds_count,
        refusals_count=params.refusals_count,
    )
    cost = long_run_cost(view, known, demand, _learnt(params, supply), pricing.fresh_usd_per_h)
    scales = _scales(view, params, demand, pricing, _worth(params, known, demand, supply, cost.worth_usd_per_h))
    desk = _Desk(view=view, params=params, scales=scales, pricing=pricing)
    memory |= {**supply.memory, **cost.memory}
    sizing = desk.sizing(known, memory)
    return not_lowered(view, demand, sizing)


@for_same
def _averaging(params: Params) -> Averaging:
    return Averaging(
        rate_time_constant_s=params.rate_time_constant_s,
        goodput_time_constant_s=params.goodput_time_constant_s,
        initial_goodput_per_replica_per_s=params.initial_goodput_per_replica_per_s,
    )


@for_same
def _learning(params: Params) -> Learning:
    return Learning(
        prior_weight_h=params.hazard_prior_weight_s / HOUR_S,
        forget_s=params.hazard_forget_s,
        by_age=params.hazard_by_age,
        by_offering=params.hazard_by_offering,
        answers_forget_s=params.refusal_forget_s,
    )


@for_same
def _expectation(params: Params) -> Expectation:
    return Expectation(
        ratio=params.expected_spot_ratio,
        weight_s=params.expected_spot_weight_s,
        forget_s=params.availability_forget_s,
    )


def _learnt(params: Params, supply: SpotSupply) -> Learnt:
    return Learnt(
        source=params.lambda_from,
        usd_per_sample=params.lambda_usd_per_sample,
        trainer_usd_per_h=params.trainer_usd_per_h,
        share=supply.to_count_on(params.availability_lasts_s),
        prior_s=params.lambda_prior_s,
        forget_s=params.lambda_forget_s,
    )


def _unmeasured(view: SizingInput, known: Sequence[Offer], memory: Mapping[str, float]) -> Sizing:
    """Before any goodput was measured: one replica at least, which alone can measure it, else what there is."""
    reason = Reason(code=ReasonCode.STEADY, message="no goodput measured yet: one replica at least")
    usable = [offer.place() for offer in known if offer.usable]
    return moved(view, () if view.counting else usable[:1], (), memory=memory, reason=reason)


def _worth(params: Params, known: Sequence[Offer], demand: Demand, supply: SpotSupply, by_lambda: float) -> float:
    """What an hour of a needed replica earns."""
    if params.worth_by is WorthBy.LAMBDA:
        return by_lambda
    trainer = trainer_usd_per_h(known, demand, _learnt(params, supply))
    rents = [offer.usd_per_h for offer in known for _ in range(offer.ready)] or [known[0].usd_per_h]
    return (trainer + sum(rents)) / len(rents)


class _Scales(NamedTuple):
    """The numbers of the formula. Samples, samples/s, USD/h."""

    rate: float
    goodput: float
    stock: float
    """b."""
    reach: float
    """What the buffer can hold at most, apart from what is in flight."""
    worth: float
    """lambda * g."""

    @property
    def balance(self) -> float:
        return self.rate / self.goodput


def _scales(view: SizingInput, params: Params, demand: Demand, pricing: Pricing, worth: float) -> _Scales:
    goodput = demand.goodput or 0.0
    depth = view.stage.signals.buffered_samples.value or 0.0
    starting = [replica for replica in view.counting if replica.phase is not ReplicaPhase.READY]
    missing_s = sum(map(pricing.to_wait_h, starting)) * HOUR_S
    return _Scales(
        rate=demand.rate,
        goodput=goodput,
        stock=depth - missing_s * goodput,
        reach=_reach(view),
        worth=worth,
    )


def _reach(view: SizingInput) -> float:
    signals = view.stage.signals
    fresh = signals.running_units.freshness(view.now_s, view.signal_max_age_s) is Freshness.FRESH
    running = (signals.running_units.value or 0.0) if fresh else 0.0
    in_training = float(signals.batch_samples)
    return max(in_training, admitted_samples(signals) - running - in_training)


class _Desk(NamedTuple):
    """Says what to take and what to leave."""

    view: SizingInput
    params: Params
    scales: _Scales
    pricing: Pricing

    def sizing(self, known: Sequence[Offer], memory: dict[str, float]) -> Sizing:
        """`memory`: what is to be remembered, and is added to."""
        market = self._market(0.0)
        taken, left = in_merit_order(self.pricing.options(known), market, name_of)
        cheapest = min([offer.usd_per_h for offer in known if offer.spot], default=0.0)
        memory[WANTED] = max(0.0, market.level(cheapest))
        return moved(
            self.view,
            _places(taken),
            self._releases(taken, left),
            memory=memory,
            reason=self._reason(supply_of(taken)),
            releases_first=True,
        )

    def _market(self, more_depth_s: float) -> Market:
        """`more_depth_s`: how much deeper a buffer is wanted, in seconds of full consumption."""
        params, balance = self.params, self.scales.balance
        rate, goodput, stock, reach, worth = self.scales
        within, most, more = goodput * params.horizon_s, reach * MOST_STOCK_RATIO, more_depth_s * rate
        depth_s, counts = params.shortage_depth_s, params.buffer_counts
        known: dict[float, float] = {}

        def level(usd_per_h: float) -> float:
            if not counts or usd_per_h <= 0:
                return balance
            found = known.get(usd_per_h)  # many lots cost the same
            if found is None:
                wanted_s = depth_s * math.log(worth / usd_per_h) if worth > 0 else 0.0
                wanted = min(most, wanted_s * rate) + more
                found = known[usd_per_h] = balance + (min(wanted, reach) - stock) / within
            return found

        return Market(worth, level)

    def _releases(self, taken: Sequence[Option], left: Sequence[Option]) -> list[ReplicaView]:
        """Of those that nothing is bought for any more: what is not needed even at the upper set-point, dearest first.

        What works is needed until enough others work; what does not work yet, until enough is held.
        """
        idle = [option for option in left if not isinstance(option.items[0], Offer)]
        if not idle:
            return []
        market = self._market(self.params.band_s)
        working = supply_of([option for option in taken if self._works(option)])
        held = supply_of([option for option in taken if not isinstance(option.items[0], Offer)])
        going: list[ReplicaView | Offer] = []
        for option in idle:
            items, works = option.items, self._works(option)
            needed = market.wanted(option, 0, len(items), working if works else held)
            held += needed * option.weight
            working += needed * option.weight if works else 0.0
            going += items[needed:] if needed else items
        return [item for item in reversed(going) if not isinstance(item, Offer)] or self._room(taken, idle)

    def _room(self, taken: Sequence[Option], idle: Sequence[Option]) -> list[ReplicaView]:
        """At the ceiling nothing would ever be there to take over: so the dearest goes first.

        Each for one that could be had where nothing was refused of late, if what that saves as long as a shortage lasts is
        more than what is not made until it works.
        """
        if not self.view.full:
            return []
        least_usd_per_h = self.scales.worth * self.pricing.launch_h / self.pricing.stand_in_h
        dearest = [pair for option in reversed(idle) for pair in reversed(_each(option))]
        possible = [usd_per_h for option in taken for usd_per_h, item in _each(option) if _is_there(item)]
        return [
            item
            for (usd_per_h, item), new_usd_per_h in zip(dearest, possible, strict=False)
            if not isinstance(item, Offer) and usd_per_h - new_usd_per_h > least_usd_per_h
        ]

    def _works(self, option: Option) -> bool:
        """Ready; or granted, where the buffer holds what will be missing until then (`stock` has it taken off)."""
        item = option.items[0]
        if isinstance(item, Offer) or item.phase is ReplicaPhase.REQUESTED:
            return False
        covered = self.params.buffer_counts and self.scales.stock > 0
        return covered or item.phase is ReplicaPhase.READY

    def _reason(self, supply: float) -> Reason:
        scales = self.scales
        return Reason(
            code=ReasonCode.STEADY,
            message=(
                f"a needed replica earns {scales.worth:.2f} USD/h; balance at {scales.balance:.1f}, buffer "
                f"{scales.stock:.0f}: {supply:.1f} are worth their rent, {len(self.view.counting)} count now"
            ),
            inputs=(
                ("worth_usd_per_h", scales.worth),
                ("lambda_usd_per_sample", scales.worth / (scales.goodput * HOUR_S)),
                ("balance_replicas", scales.balance),
                ("stock_samples", scales.stock),
            ),
        )


def _each(option: Option) -> list[tuple[float, ReplicaView | Offer]]:
    """With what an hour of use costs."""
    return [(option.cost(i), item) for i, item in enumerate(option.items)]


def _is_there(item: ReplicaView | Offer) -> bool:
    """What could be had, as far as is known."""
    return isinstance(item, Offer) and not item.view.refusals


def _places(taken: Sequence[Option]) -> list[Place]:
    """Where to launch, in order, one entry for each run of the same offering."""
    places: list[Place] = []
    for option in taken:
        asked = option.items[0]
        if not isinstance(asked, Offer):
            continue
        place = asked.place(len(option.items))
        if places and (places[-1].pool, places[-1].offering_id) == asked.key:
            place = replace(place, replicas=places.pop().replicas + place.replicas)
        places.append(place)
    return places
