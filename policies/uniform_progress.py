"""Uniform Progress of "Can't Be Late": on-demand only while behind a straight line, spot whenever there is any.

    cp(t) samples trained since the horizon began        ep(t) = rho * integral of the unblocked rate
    1 thrifty rule    an idle replica goes on-demand when cp < ep
    2 exploitation    spot whenever there is any and not on on-demand, though behind; stay until preempted
    3 hysteresis      on on-demand, stay until cp(t) >= ep(t + 2 d), then leave
    safety net        idle and R(t) < C(t) + 2 d: on-demand to the end of the horizon

Symbols: d `changeover_s`, from a launch until it works (s); rho `progress_ratio`, the share of the unblocked demand that must
be met, which is C(0) / R(0) there: work over time to the deadline; R(t) time left in the horizon (s), C(t) work left, in
seconds at the full rate. Source: Wu et al., "Can't Be Late" (NSDI '24), section on Uniform Progress; going idle is free.

Where an elastic fleet had to choose
* A trainer has no deadline: the line is one for a horizon of `horizon_s`, after which both sums start anew.
  Its speed is bounded by the trainer, so rho = 1 can never be ahead: then on-demand, once bought, stays to the horizon's end.
* Progress is policy version x batches a version x samples a batch, which every trainer tells; a version that falls (restored
  checkpoint) starts a new horizon.
* The job's N instances are N = ceil(unblocked rate / goodput). With `gang` all N are on spot, or all on on-demand, or none, as
  the paper's multi-instance rule says (less than N there counts as unavailable). Without it every replica is one instance of
  that rule, all with the same progress: what spot there is, is kept.
* Spot of several zones: the cheapest that may be asked now (fail over on preemption, UP(S) in SkyNomad, NSDI '27). "Available"
  is what the engine would ask: a refusal makes a zone unavailable until its back-off ends.

Invariants: signals missing, stale or invalid, the policy version's too: hold. Replica by replica, more demand never asks for
fewer; a gang may: where N grows and spot has not that many, what there is counts as unavailable and is let go.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.base import Place, Sizing, SizingInput
from policies.demand import Averaging, Demand, admitted_samples, demand_hold, read_demand
from policies.moves import moved, not_lowered
from policies.offers import Offer, offers, replicas_of
from scaler.model.plan import Reason, ReasonCode
from scaler.model.snapshot import ReplicaView

BEGAN_S, BEGAN_AT, EXPECTED = "began_s", "began_at_samples", "expected_samples"
"""Memory: when the horizon began, the samples trained then, and ep (samples)."""
TO_THE_END = "to_the_end"
"""Memory: the safety net holds in this horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The line, the changeover, and the averages of the demand."""

    progress_ratio: float = field(default=0.9, metadata={"gt": 0.0, "le": 1.0, "tune": (0.3, 1.0)})
    """rho: share of the unblocked demand to be met."""
    horizon_s: float = field(default=43200.0, metadata={"gt": 0.0, "tune": (7200.0, 172800.0, "log")})
    """The deadline that a trainer lacks: the line runs so long, then both sums start anew."""
    changeover_s: float = field(default=360.0, metadata={"ge": 0.0, "tune": (60.0, 3600.0, "log")})
    """d: from a launch until the replica works."""
    gang: bool = field(default=True, metadata={"tune": (True, False)})
    """All or nothing, as its authors run several instances; otherwise replica by replica."""
    rate_time_constant_s: float = field(default=300.0, metadata={"ge": 0.0})
    """Over which the trainer's unblocked rate is averaged."""
    goodput_time_constant_s: float = field(default=900.0, metadata={"ge": 0.0})
    """Over which the goodput of a replica is averaged."""
    initial_goodput_per_replica_per_s: float | None = field(default=None, metadata={"gt": 0.0})
    """Accepted samples/s of a ready replica before that was measured. Default: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """Samples, and what the rules make of them."""

    made: float
    expected: float
    behind: bool
    ahead: bool
    """By enough to leave on-demand."""
    memory: Mapping[str, float]


def size(view: SizingInput, params: Params) -> Sizing:
    """Wish for N replicas on spot, or on demand where the line asks for it."""
    hold = demand_hold(view, policy_version=view.stage.signals.policy_version)
    if hold is not None:
        return Sizing(replicas=None, reason=hold, memory=view.memory)
    averaging = Averaging(
        rate_time_constant_s=params.rate_time_constant_s,
        goodput_time_constant_s=params.goodput_time_constant_s,
        initial_goodput_per_replica_per_s=params.initial_goodput_per_replica_per_s,
    )
    demand = read_demand(view, averaging, admitted_samples(view.stage.signals))
    progress = _progress(view, params, demand)
    fleet = _fleet(view, demand)
    launches, releases = _moves(fleet, progress, gang=params.gang)
    sizing = moved(
        view,
        launches,
        releases,
        memory={**demand.memory, **progress.memory},
        reason=_reason(fleet, progress),
    )
    return not_lowered(view, demand, sizing)


def _progress(view: SizingInput, params: Params, demand: Demand) -> _Progress:
    trained = _trained(view)
    began_s, began_at, expected = (view.memory.get(name) for name in (BEGAN_S, BEGAN_AT, EXPECTED))
    if began_s is None or began_at is None or expected is None or _over(view, params, began_s) or trained < began_at:
        began_s, began_at, expected, to_the_end = view.now_s, trained, 0.0, False
    else:
        expected += params.progress_ratio * demand.rate * demand.elapsed_s
        to_the_end = TO_THE_END in view.memory
    made = trained - began_at
    to_the_end = to_the_end or _safety_net(view, params, demand, began_s, made)
    soon = expected + params.progress_ratio * demand.rate * 2 * params.changeover_s
    memory = {BEGAN_S: began_s, BEGAN_AT: began_at, EXPECTED: expected}
    return _Progress(
        made=made,
        expected=expected,
        behind=made < expected or to_the_end,
        ahead=made >= soon and not to_the_end,
        memory=memory | {TO_THE_END: 1.0} if to_the_end else memory,
    )


def _trained(view: SizingInput) -> float:
    signals = view.stage.signals
    return (signals.policy_version.value or 0.0) * signals.batches_per_version * signals.batch_samples


def _over(view: SizingInput, params: Params, began_s: float) -> bool:
    return not 0 <= view.now_s - began_s < params.horizon_s


def _safety_net(view: SizingInput, params: Params, demand: Demand, began_s: float, made: float) -> bool:
    """R(t) < C(t) + 2 d, with something left to do."""
    left_s = params.horizon_s - (view.now_s - began_s)
    work_s = params.progress_ratio * params.horizon_s - (made / demand.rate if demand.rate > 0 else math.inf)
    return work_s > 0 and left_s < work_s + 2 * params.changeover_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """N, the offers cheapest first, and what is held of them."""

    wanted: int
    spot: Sequence[Offer]
    other: Sequence[Offer]

    @property
    def on_spot(self) -> list[ReplicaView]:
        return replicas_of(self.spot)

    @property
    def on_demand(self) -> list[ReplicaView]:
        return replicas_of(self.other)


def _fleet(view: SizingInput, demand: Demand) -> _Fleet:
    known = offers(view)
    balance = demand.balance
    return _Fleet(
        wanted=max(1, len(view.counting)) if balance is None else math.ceil(min(balance, 1e9) - 1e-9),
        spot=[offer for offer in known if offer.spot],
        other=[offer for offer in known if not offer.spot],
    )


def _moves(fleet: _Fleet, progress: _Progress, *, gang: bool) -> tuple[tuple[Place, ...], list[ReplicaView]]:
    """Launches and releases: on-demand is kept until ahead; else spot where there is any; else on-demand if behind."""
    on_spot, on_demand = fleet.on_spot, fleet.on_demand
    kept = [] if progress.ahead else on_demand[: fleet.wanted]
    leaving = on_demand[len(kept) :]
    if gang and kept:
        return _cheapest(fleet.other, fleet.wanted - len(kept)), leaving + on_spot
    room = fleet.wanted - len(kept)
    leaving += on_spot[::-1][: max(0, len(on_spot) - room)]
    missing = room - len(on_spot)
    if missing <= 0:
        return (), leaving
    spot = _cheapest(fleet.spot, missing)
    if spot or not gang:
        return spot or (_cheapest(fleet.other, missing) if progress.behind else ()), leaving
    return _cheapest(fleet.other, fleet.wanted) if progress.behind else (), leaving + on_spot


def _cheapest(known: Sequence[Offer], missing: int) -> tuple[Place, ...]:
    """All of them at the cheapest that may be asked now."""
    askable = [offer for offer in known if offer.usable]
    return (askable[0].place(missing),) if askable and missing > 0 else ()


def _reason(fleet: _Fleet, progress: _Progress) -> Reason:
    where = "ahead of" if progress.ahead else "behind" if progress.behind else "near"
    return Reason(
        code=ReasonCode.STEADY,
        message=(
            f"{progress.made:.0f} samples trained, {where} the line at {progress.expected:.0f}: {fleet.wanted} wanted, "
            f"{len(fleet.on_spot)} on spot, {len(fleet.on_demand)} on demand"
        ),
        inputs=(
            ("samples_trained", progress.made),
            ("samples_expected", progress.expected),
            ("wanted_replicas", float(fleet.wanted)),
        ),
    )
