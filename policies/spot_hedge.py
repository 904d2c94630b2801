"""SpotHedge of SkyServe: spread spot replicas over zones that do not preempt, more of them than needed, on-demand meanwhile.

    S = N_Tar + N_Extra                 spot replicas kept requested
    O = min(N_Tar, S - S_ready)         on-demand replicas meanwhile; released as spot becomes READY (launching is not enough)

Zones: Z_A active, Z_P preempting; all start in Z_A. A preemption or a refused launch in z moves z to Z_P, a launch that
succeeds there moves it back. The next replica goes to the cheapest zone of Z_A that holds none of ours, else to the cheapest
of Z_A. Where fewer than two zones are active, all of Z_P becomes active again.

Symbols: N_Tar replicas, ceil(unblocked rate / goodput) (`policies.demand`); N_Extra `extra_replicas`; S_ready spot replicas
that work. Source: SpotHedge (SkyServe, EuroSys '25), sections on placement and dynamic fallback; the placement is the one of
the paper's text. Nothing in it knows prices beyond the order of zones, ages, refunds, buffers or what a sample is worth.

Where an elastic fleet had to choose
* N_Tar is a service's load target there, set by its own autoscaler from requests a second; here the balance point is that.
  It rises at once and falls when it has been lower for `lower_delay_s` (SkyServe's downscale delay is 1200 s; 300 s up).
* A "zone" is a spot offering (an instance type in a zone). On-demand goes to the cheapest offering that is not spot.
* In Z_A only zones that may be asked now count as next: the engine backs off refused ones whatever a policy says.
* Surplus spot (N_Tar fell) goes dearest first; what is not ready yet before what is.

Memory, two numbers an offering at most: `seen` the last trouble that was counted, `passive` while in Z_P.
Invariant: more demand never asks for fewer replicas; signals missing, stale or invalid: hold.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policies.base import Place, Sizing, SizingInput
from policies.demand import Averaging, Demand, admitted_samples, demand_hold, read_demand
from policies.moves import moved, not_lowered
from policies.offers import Offer, latest, offers, replicas_of
from scaler.model.capacity import ReplicaPhase
from scaler.model.plan import Reason, ReasonCode
from scaler.model.snapshot import ReplicaView

TARGET, LOWER_SINCE_S = "target_replicas", "lower_since_s"
"""Memory: N_Tar as it stands, and since when less would do."""
SEEN, PASSIVE = "seen_s:", "passive:"
"""Memory, by offer: last trouble counted, and whether it is in Z_P."""
FEWEST_ACTIVE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """N_Extra, the delays of the target, and the averages behind it."""

    extra_replicas: int = field(default=1, metadata={"ge": 0, "tune": (0, 6)})
    """N_Extra: spot replicas beyond the target."""
    fallback: bool = field(default=True, metadata={"tune": (True, False)})
    """Whether on-demand stands in until spot is ready."""
    lower_delay_s: float = field(default=1200.0, metadata={"ge": 0.0, "tune": (60.0, 7200.0, "log")})
    """How long less must have been enough before the target falls."""
    rate_time_constant_s: float = field(default=300.0, metadata={"ge": 0.0})
    """Over which the trainer's unblocked rate is averaged."""
    goodput_time_constant_s: float = field(default=900.0, metadata={"ge": 0.0})
    """Over which the goodput of a replica is averaged."""
    initial_goodput_per_replica_per_s: float | None = field(default=None, metadata={"gt": 0.0})
    """Accepted samples/s of a ready replica before that was measured. Default: unknown."""


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for N_Tar + N_Extra spot replicas in zones that do not preempt, and on-demand while they are not ready."""
    hold = demand_hold(view)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    averaging = Averaging(
        rate_time_constant_s=params.rate_time_constant_s,
        goodput_time_constant_s=params.goodput_time_constant_s,
        initial_goodput_per_replica_per_s=params.initial_goodput_per_replica_per_s,
    )
    demand = read_demand(view, averaging, admitted_samples(view.stage.signals))
    target, target_memory = _target(view, params, demand)
    known = offers(view)
    zones, zone_memory = _zones(view, tuple(offer for offer in known if offer.spot))
    hedge = _hedge(params, target, zones)
    fallback = tuple(offer for offer in known if not offer.spot)
    sizing = moved(
        view,
        _launches(hedge, zones, fallback),
        (*_surplus_on_demand(hedge, fallback), *_surplus_spot(hedge, zones)),
        memory={**demand.memory, **target_memory, **zone_memory},
        reason=_reason(view, hedge),
    )
    return not_lowered(view, demand, sizing)


def _target(view: SizingInput, params: Params, demand: Demand) -> tuple[int, Mapping[str, float]]:
    """N_Tar, and its memory. Before any goodput is known: one replica at least, else what there is."""
    balance = demand.balance
    wanted = max(1, view.launching + view.ready) if balance is None else math.ceil(min(balance, 1e9) - 1e-9)
    standing = view.memory.get(TARGET)
    if standing is None or wanted >= standing:
        return wanted, {TARGET: float(wanted)}
    since_s = view.memory.get(LOWER_SINCE_S, view.now_s)
    if view.now_s - since_s >= params.lower_delay_s:
        return wanted, {TARGET: float(wanted)}
    return int(standing), {TARGET: standing, LOWER_SINCE_S: since_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zone:
    offer: Offer
    active: bool


def _zones(view: SizingInput, spot: Sequence[Offer]) -> tuple[tuple[_Zone, ...], Mapping[str, float]]:
    """Z_A and Z_P after what was seen since the last judgement."""
    zones, memory = [], {}
    for offer in spot:
        trouble_s = latest(offer.view.refused_at_s, offer.view.reclaiming_at_s)
        seen_s = view.memory.get(SEEN + offer.name, -math.inf)
        passive = trouble_s > seen_s or (PASSIVE + offer.name in view.memory and not _succeeded(offer, seen_s))
        zones.append(_Zone(offer=offer, active=not passive))
        if max(trouble_s, seen_s) > -math.inf:
            memory[SEEN + offer.name] = max(trouble_s, seen_s)
    if sum(zone.active for zone in zones) < FEWEST_ACTIVE:
        return tuple(_Zone(offer=zone.offer, active=True) for zone in zones), memory
    return tuple(zones), memory | {PASSIVE + zone.offer.name: 1.0 for zone in zones if not zone.active}


def _succeeded(offer: Offer, after_s: float) -> bool:
    """Whether a launch brought an instance since."""
    return any(replica.instance_ids and latest(replica.launched_at_s) > after_s for replica in offer.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hedge:
    """Replicas wanted and held, spot and not."""

    target: int
    spot_wanted: int
    spot_held: int
    spot_ready: int
    fallback_wanted: int


def _hedge(params: Params, target: int, zones: Sequence[_Zone]) -> _Hedge:
    wanted = target + params.extra_replicas if target else 0
    ready = sum(zone.offer.ready for zone in zones)
    return _Hedge(
        target=target,
        spot_wanted=wanted,
        spot_held=sum(len(zone.offer.held) for zone in zones),
        spot_ready=ready,
        fallback_wanted=max(0, min(target, wanted - ready)) if params.fallback else 0,
    )


def _launches(hedge: _Hedge, zones: Sequence[_Zone], fallback: Sequence[Offer]) -> tuple[Place, ...]:
    spot = _next_zones(max(0, hedge.spot_wanted - hedge.spot_held), zones)
    missing = max(0, hedge.fallback_wanted - len(replicas_of(fallback)))
    askable = [offer for offer in fallback if offer.usable]
    return (*spot, askable[0].place(missing)) if missing and askable else spot


def _next_zones(missing: int, zones: Sequence[_Zone]) -> tuple[Place, ...]:
    """One place for each replica missing; `zones` are in order of price."""
    active = [zone.offer for zone in zones if zone.active and zone.offer.usable]
    if not active:
        return ()
    empty = [offer for offer in active if not offer.held]
    spread = [offer.place() for offer in empty[:missing]]
    left = missing - len(spread)
    return (*spread, active[0].place(left)) if left else tuple(spread)


def _surplus_on_demand(hedge: _Hedge, fallback: Sequence[Offer]) -> Sequence[ReplicaView]:
    return _first_to_go(fallback, len(replicas_of(fallback)) - hedge.fallback_wanted)


def _surplus_spot(hedge: _Hedge, zones: Sequence[_Zone]) -> Sequence[ReplicaView]:
    return _first_to_go([zone.offer for zone in zones], hedge.spot_held - hedge.spot_wanted)


def _first_to_go(held: Iterable[Offer], surplus: int) -> Sequence[ReplicaView]:
    """What is not ready before what is, the dearest first, the youngest first."""
    order = sorted(
        ((offer, replica) for offer in held for replica in offer.held),
        key=lambda pair: (
            pair[1].phase is ReplicaPhase.READY,
            -pair[0].usd_per_h,
            -latest(pair[1].launched_at_s),
            pair[1].replica_id,
        ),
    )
    return [replica for _, replica in order[: max(0, surplus)]]


def _reason(view: SizingInput, hedge: _Hedge) -> Reason:
    return Reason(
        code=ReasonCode.STEADY,
        message=(
            f"target of {hedge.target}: {hedge.spot_wanted} on spot ({hedge.spot_held} held, {hedge.spot_ready} ready), "
            f"{hedge.fallback_wanted} on demand meanwhile; {len(view.counting)} count now"
        ),
        inputs=(
            ("target_replicas", float(hedge.target)),
            ("spot_wanted", float(hedge.spot_wanted)),
            ("spot_ready", float(hedge.spot_ready)),
            ("fallback_wanted", float(hedge.fallback_wanted)),
        ),
    )
